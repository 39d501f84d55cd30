"""Files of other tools: what is written is what is there, and what is read again is the same directory."""
from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas
import polars
import pyarrow
import pyarrow.parquet
import pytest
from conftest import EPOCHS, PARTICLE, RECORDS, damaged_copy
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from test_random import EXAMPLES, FIELDS, random_rows

import swale
from swale import _export
from swale.__main__ import main


def same(a: Any, b: Any) -> None:
    """Two tables have the same columns and rows, to the last bit."""
    assert list(a) == list(b) and len(a) == len(b)
    for name in a:
        x, y = a[name], b[name]
        assert np.asarray(x).dtype == np.asarray(y).dtype, name
        assert x.tolist() == y.tolist() if x.dtype == object else x.tobytes() == y.tobytes(), name


def sorted_rows(d: swale.Directory) -> Any:
    """All records by key: an import may store them in another order."""
    return d.get_many(sorted(set(key for epoch in range(len(d.epochs)) for key in list(d.keys(epoch=epoch)))))


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow", "a.csv", "a.npy"])
def test_a_file_has_the_records(run: str, tmp_path: Path, name: str) -> None:
    with swale.open(run) as d:
        told: list[tuple[int, int]] = []
        where = "key >= 5 and key < 450"
        rows = d.export(tmp_path / name, where=where, progress=lambda *both: told.append(both))
        assert rows == 445 * EPOCHS and told[-1] == (rows, RECORDS * EPOCHS)
        assert [each.name for each in tmp_path.iterdir()] == [name]
        table = d.scan(where=where)
        if name.endswith("npy"):
            array = np.load(tmp_path / name)
            assert array.dtype.names == tuple(table)
            assert all(array[column].tobytes() == table[column].tobytes() for column in table)
        elif name.endswith("csv"):
            frame = pandas.read_csv(tmp_path / name)
            assert list(frame) == ["epoch", "step", "time", "key", "x", "v[0]", "v[1]", "v[2]", "id"]
            assert np.array_equal(frame["x"],
                                  table["x"]) and np.array_equal(frame["v[2]"].astype("f4"), table["v"][:, 2])
            found = duckdb.sql(f"select count(*), max(id) from '{tmp_path / name}'").fetchall()
            assert found == [(rows, 449)]
        else:
            frame = polars.read_parquet(tmp_path / name) if "parquet" in name else polars.read_ipc(
                tmp_path / name)
            assert frame.equals(table.to_polars())
            assert (pyarrow.parquet.read_schema(tmp_path / name) if "parquet" in name else
                    pyarrow.ipc.open_file(tmp_path / name).schema).field("x").metadata[b"unit"] == b"m"


def test_keys_epochs_and_columns_are_chosen(run: str, tmp_path: Path) -> None:
    with swale.open(run) as d:
        assert d.export(tmp_path / "a.npy", keys=[7, 3], epochs=[0, -1], columns=["key", "id"]) == 4
        assert np.load(tmp_path / "a.npy").tolist() == [(7, 7), (7, 7), (3, 3), (3, 3)]
        assert d.export(tmp_path / "b", format="csv", epochs=0, columns=["id"], where="key == 9") == 1
        assert (tmp_path / "b").read_text() == '"id"\n9\n'
        assert d.export(tmp_path / "c.npy", where="key > 1000") == 0 and len(np.load(tmp_path / "c.npy")) == 0
        assert d.export(tmp_path / "c.parquet", where="key > 1000") == 0
        assert pandas.read_parquet(tmp_path / "c.parquet").shape == (0, 7)


@pytest.mark.parametrize("ending", ["parquet", "arrow", "csv"])
def test_exported_and_imported_is_equal(run: str, tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"a.{ending}"
    with swale.open(run) as d:
        d.export(file)
        typed = {"schema": str(d.schema), "key_type": "u64"} if ending == "csv" else {}  # CSV has no types
        made = swale.import_file(file, tmp_path / "again", extrema=["x"], **typed)
        assert made == swale.Imported(EPOCHS, EPOCHS * RECORDS, 0)
        with swale.open(tmp_path / "again") as again:
            assert again.schema == d.schema and again.key_type == d.key_type and again.epochs == d.epochs
            same(sorted_rows(again), sorted_rows(d))


@settings(max_examples=EXAMPLES, deadline=None, database=None, phases=(Phase.generate,))
@given(fields=FIELDS, count=st.integers(1, 300), seed=st.integers(0, 2**32),
       ending=st.sampled_from(["parquet", "arrow", "csv"]))
def test_any_numbers_come_back(fields: list[tuple[str, int]], count: int, seed: int, ending: str) -> None:
    rows = random_rows(fields, count, seed)
    if ending == "csv":  # text has one NaN
        for name in rows.dtype.names:
            if rows[name].dtype.kind == "f":
                rows[name][np.isnan(rows[name])] = np.nan
    keys = np.random.default_rng(seed).integers(0, 2**64, len(rows), dtype="u8")
    with tempfile.TemporaryDirectory() as folder:
        with swale.create(Path(folder) / "d", schema=rows.dtype, key="u64") as out:
            out.append_many(keys, rows)
            out.epoch_end(-5, 1 / 3)
        with swale.open(Path(folder) / "d") as d:
            d.export(Path(folder) / f"a.{ending}")
            typed = {"schema": str(d.schema), "key_type": "u64"} if ending == "csv" else {}
            swale.import_file(Path(folder) / f"a.{ending}", Path(folder) / "again", **typed)
            with swale.open(Path(folder) / "again") as again:
                assert again.epochs == d.epochs and again.schema == d.schema
                same(sorted_rows(again), sorted_rows(d))


def test_text_keys_and_values_come_back(texts: str, tmp_path: Path) -> None:
    with swale.open(texts) as d:
        d.export(tmp_path / "a.parquet")
        swale.import_file(tmp_path / "a.parquet", tmp_path / "again")
        with swale.open(tmp_path / "again") as again:
            assert again.key_type == "text" and not again.schema
            same(sorted_rows(again), sorted_rows(d))
        with pytest.raises(ValueError, match="csv cannot hold the bytes of column 'value'"):
            d.export(tmp_path / "a.csv")
        with pytest.raises(ValueError, match="npy holds numbers, and column 'key' is text"):
            d.export(tmp_path / "a.npy")
        assert d.export(tmp_path / "a.csv", columns=["key", "epoch"]) == 6
        assert {each.name for each in tmp_path.iterdir()} == {"a.parquet", "a.csv", "again"}


def test_files_of_others_become_directories(tmp_path: Path) -> None:
    """No epoch, a key of another name, numbers of any kind, units in the metadata."""
    frame = pandas.DataFrame({"id": [5, 3, 9], "mass": [1.5, 2.5, 3.5], "r[0]": [1, 2, 3], "r[1]": [4, 5, 6]})
    frame.to_parquet(tmp_path / "a.parquet")
    frame.to_csv(tmp_path / "a.csv", index=False)
    for name in ("a.parquet", "a.csv"):
        assert swale.import_file(tmp_path / name, tmp_path / f"{name}.d", key="id",
                                 units={"mass": "kg"}).records == 3
        with swale.open(tmp_path / f"{name}.d") as d:
            assert str(d.schema) == "mass:f8:kg;r:i8x2" and d.key_type == "i64" and d.epochs[0].step == 0
            assert d[3]["r"].tolist() == [[2, 5]]
    frame["step"] = [10, 10, 20]
    frame.to_csv(tmp_path / "b.csv", index=False)
    swale.import_file(tmp_path / "b.csv", tmp_path / "b", key="id")
    with swale.open(tmp_path / "b") as d:
        assert [epoch.step for epoch in d.epochs] == [10, 20]


@pytest.mark.parametrize(("text", "given_", "says"), [
    ("key,x\n1,2\n", {"key": "id"}, "no column 'id' for the keys: there are key, x"),
    ("key,epoch\n1,2\n", {}, "no fields besides"),
    ("key,x\n1,a\n", {}, "column 'x' is string"),
    ("key,x\n1,\n2,3\n", {}, "row 0 has no x"),
    ("epoch,key,x\n1,1,1\n0,1,1\n", {}, "row 1: epoch 0 comes after epoch 1: sort"),
    ("key,v[1]\n1,2\n", {}, r"from \[0\] on"),
    ("key,x\n1,2\n", {"schema": "x:f9"}, "f9"),
    ("", {}, "(?i)empty"),
])
def test_wrong_files_say_what_is_wrong(tmp_path: Path, text: str, given_: dict[str, str], says: str) -> None:
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises((ValueError, TypeError, swale.SwaleError), match=says) as told:
        swale.import_file(tmp_path / "a.csv", tmp_path / "d", **given_)
    assert str(told.value)


def test_an_import_goes_on_where_it_was_interrupted(run: str, tmp_path: Path) -> None:
    with swale.open(run) as d:
        d.export(tmp_path / "a.parquet")

        def stop(rows: int) -> None:
            raise KeyboardInterrupt

        part = pyarrow.parquet.read_table(tmp_path / "a.parquet").slice(0, RECORDS * 2 + 100)
        pyarrow.parquet.write_table(part, tmp_path / "part.parquet")
        with pytest.raises(KeyboardInterrupt):
            swale.import_file(tmp_path / "part.parquet", tmp_path / "again", progress=stop)
        with swale.open(tmp_path / "again") as again:
            assert [epoch.step for epoch in again.epochs] == [0, 10]
        with pytest.raises(swale.AlreadyExistsError):
            swale.import_file(tmp_path / "a.parquet", tmp_path / "again")
        assert swale.import_file(tmp_path / "a.parquet", tmp_path / "again",
                                 resume=True) == swale.Imported(2, 2 * RECORDS, 2)
        with swale.open(tmp_path / "again") as again:
            assert again.epochs == d.epochs
            same(sorted_rows(again), sorted_rows(d))
        d.export(tmp_path / "b.parquet", columns=["step", "key", "x"])
        with pytest.raises(ValueError, match="of another import"):
            swale.import_file(tmp_path / "b.parquet", tmp_path / "again", resume=True)


def test_a_file_has_the_mode_of_others(run: str, tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        with swale.open(run) as d:
            d.export(tmp_path / ("n" * 250 + ".csv"), epochs=0)
    finally:
        os.umask(before)
    assert next(tmp_path.iterdir()).stat().st_mode & 0o777 == 0o640


def test_a_failed_export_leaves_no_file(placed: str, tmp_path: Path) -> None:
    data = max(Path(placed).rglob("*.data"), key=lambda each: each.stat().st_size)
    with swale.open(damaged_copy(placed, tmp_path / "copy", str(data.relative_to(placed)), 4096 + 100)) as d:
        for kind in _export.FORMATS:
            (tmp_path / "out").mkdir(exist_ok=True)
            with pytest.raises(swale.CorruptionError):
                d.export(tmp_path / "out" / f"a.{kind}", format=kind)
            assert list((tmp_path / "out").iterdir()) == []


def test_a_full_disk_leaves_no_half_file(placed: str, tmp_path: Path) -> None:
    for kind in _export.FORMATS:
        assert left_by_a_full_disk(placed, tmp_path, kind) == []
    print(f"{len(_export.FORMATS)} formats met a full disk")


def test_canary_a_half_file_is_seen(placed: str, tmp_path: Path) -> None:
    """An export that writes under its name at once."""
    hasty = "import contextlib, swale._export; swale._export.replacing = contextlib.nullcontext; "
    assert left_by_a_full_disk(placed, tmp_path, "csv", hasty) == ["a.csv"]


def left_by_a_full_disk(placed: str, folder: Path, kind: str, first: str = "") -> list[str]:
    """The file size limit stands for the full disk: both end a write in the middle."""
    code = (first + "import resource, signal, sys, swale; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); d = "
            "swale.open(sys.argv[1]);"
            "resource.setrlimit(resource.RLIMIT_FSIZE, (4_000, 4_000)); d.export(sys.argv[2], "
            "format=sys.argv[3])")
    done = subprocess.run([sys.executable, "-c", code, placed, str(folder / f"a.{kind}"), kind],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "File too large" in done.stderr, (kind, done.stderr)
    return [each.name for each in folder.iterdir()]


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """A run of 90 MB of columns, exported with half of it to spare."""
    rows = np.zeros(500_000, dtype=[("a", "f8"), ("b", "f8")])
    with swale.create(tmp_path / "d", schema=rows.dtype, key="u64") as out:
        for epoch in range(4):
            rows["a"] = np.random.default_rng(epoch).random(len(rows))
            out.append_many(np.arange(len(rows), dtype="u8"), rows)
            out.epoch_end(epoch)
    code = ("import resource, sys, swale, numpy, pyarrow, pyarrow.parquet, pyarrow.csv; d = "
            "swale.open(sys.argv[1]);"
            "d.export(sys.argv[2] + '0', format=sys.argv[3], where='key < 1000');"
            "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss; d.export(sys.argv[2], "
            "format=sys.argv[3]);"
            "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)")
    for kind in ("npy", "arrow", "parquet"):
        done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "d"), str(tmp_path / "a"), kind],
                              check=True, capture_output=True, text=True, timeout=300)
        assert int(done.stdout) < 128 << 10, kind  # KiB; the columns are 90 MiB, and a batch 3
    assert os.path.getsize(tmp_path / "a") > 10 << 20


def test_the_commands_export_and_import(run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, again = str(tmp_path / "a.parquet"), str(tmp_path / "again")
    assert main(["export", run, file, "--epochs", "1:2", "--where", "id < 10"]) == 0
    assert capsys.readouterr().out == f"{file}: 20 records\n"
    assert main(["import", file, again, "--extrema", "x"]) == 0
    assert capsys.readouterr().out == f"{again}: 20 records in 2 epochs\n"
    assert main(["import", file, again, "--resume"]) == 0
    assert capsys.readouterr().out == f"{again}: 0 records in 0 epochs; 2 epochs were there already\n"
    (tmp_path / "keys").write_text("7\n\n8\n")
    assert main(["export", run, str(tmp_path / "b.csv"), "--key", "3", "--keys", str(tmp_path / "keys"),
                 "-e", "0"]) == 0
    assert capsys.readouterr().out.endswith(": 3 records\n")
    for words, code, says in ((["export", run, "a.xls"], 2, "its ending names no format"),
                              (["import", file, again], 3, "already"),
                              (["export", run, file, "--columns", "y"], 2, "did you mean"),
                              (["import", "none.parquet", "d"], 3, "none.parquet"),
                              (["import", "a.xls", "d"], 2, ".parquet")):
        assert main(words) == code, words
        err = capsys.readouterr().err
        assert says in err and err.count("\n") == 1
    assert PARTICLE.names
