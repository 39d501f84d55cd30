"""Damage seen through everything that reads: each question, engine and export is right, or raises. Each
checker has a canary that it must find.
"""
from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

import swale
from swale import _export

PARTICLE = np.dtype([("x", "f8"), ("v", "f4", (3,)), ("id", "u4")])
RECORDS = 40
BYTES_A_FILE = 5  # that are flipped; all with SWALE_FLIPS


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small"
    with swale.create(path, schema=PARTICLE, key="u64", extrema=["x"]) as out:
        out.set_attributes({"position": "v"})
        for epoch in range(2):
            out.set_attributes({"box": [1.0, 2.0, 3.0 + epoch]}, epoch=True)
            rows = np.zeros(RECORDS, dtype=PARTICLE)
            rows["x"], rows["id"] = np.arange(RECORDS) * 1.5 + epoch, np.arange(RECORDS)
            rows["v"] = np.arange(3 * RECORDS).reshape(-1, 3)
            out.append_many(np.arange(RECORDS, dtype="u8"), rows)
            out.epoch_end(epoch)
    return path


def file_content(path: Path) -> Any:
    """What a reader finds in a file; HDF5 has times in it that differ."""
    if not path.read_bytes().startswith(b"\x89HDF"):
        return path.read_bytes()
    h5py = pytest.importorskip("h5py")
    found: dict[str, bytes] = {}
    with h5py.File(path) as file:
        file.visititems(lambda name, item: found.update({name: item[()].tobytes()})
                        if isinstance(item, h5py.Dataset) else None)
    return found


def exported(kind: str) -> Callable[[swale.Directory, Path], Any]:
    def ask(d: swale.Directory, folder: Path) -> Any:
        path = folder / f"out.{kind}"
        try:
            d.export(path, format=kind)
            return file_content(path)
        finally:
            path.unlink(missing_ok=True)
            assert not list(folder.iterdir()), f"{kind}: a failed export leaves a file"

    return ask


def by_duckdb(d: swale.Directory, _: Path) -> Any:
    with duckdb.connect() as connection:
        connection.register("run", d.dataset())
        return connection.execute("select key, x from run where x < 30").fetchall()


ENGINES: dict[str, Callable[[swale.Directory, Path], Any]] = {
    "pyarrow": lambda d, _: d.dataset().to_table().to_pylist(),
    "duckdb": by_duckdb,
    "polars": lambda d, _: d.scan_polars().collect().rows(),
    "pandas": lambda d, _: d.scan().to_pandas().to_csv(),
    "stream": lambda d, _: [batch["x"].tobytes() for batch in d.stream(batch_rows=16)],
    "sample": lambda d, _: d.sample(5).tolist(),
    **{kind: exported(kind) for kind in _export.FORMATS},
}


def flips(path: Path) -> Iterator[str]:
    """Flips one byte of the directory's files after the other, and mends it."""
    for file in sorted(each for each in path.rglob("*") if each.is_file()):
        original = file.read_bytes()
        used = [i for i in range(len(original)) if original[i] or i % 64 == 0]
        step = 1 if os.environ.get("SWALE_FLIPS") else max(1, len(used) // BYTES_A_FILE)
        for at in used[::step]:
            data = bytearray(original)
            data[at] ^= 1 << (at % 8)
            file.write_bytes(data)
            yield f"{file.name}: byte {at}"
        file.write_bytes(original)


def check(path: Path, folder: Path, engines: dict[str, Callable[[swale.Directory, Path], Any]]) -> tuple[
        int, int]:
    """How many questions were answered rightly, and how many raised."""
    folder.mkdir()
    with swale.open(path) as d:
        right = {name: ask(d, folder) for name, ask in engines.items()}
    harmless = told = 0
    for place in flips(path):
        for name, ask in engines.items():
            try:
                with swale.open(path) as d:
                    answer = ask(d, folder)
            except (swale.SwaleError, OSError, ValueError, duckdb.Error) as error:
                assert str(error), (name, place)
                told += 1
                continue
            except Exception as error:  # the engine's own kind; it says what ours said
                assert "swale verify" in str(error) or "damaged" in str(error), (name, place, error)
                told += 1
                continue
            assert answer == right[name], (name, place)
            harmless += 1
    return harmless, told


def test_each_engine_and_export_is_right_or_raises(small: Path, tmp_path: Path) -> None:
    harmless, told = check(small, tmp_path / "out", ENGINES)
    print(f"{harmless + told} questions to a directory with one flipped byte: {told} errors, "
          f"{harmless} right answers")
    assert told > 50 and harmless > 50


def test_canary_an_engine_that_leaves_damaged_records_out_is_found(small: Path, tmp_path: Path) -> None:
    def lenient(d: swale.Directory, _: Path) -> Any:
        try:
            return d.scan()["x"].tobytes()
        except swale.CorruptionError:
            return b""

    with pytest.raises(AssertionError, match="lenient"):
        check(small, tmp_path / "out", {"lenient": lenient})


# ---- A restart drops epochs during a stream ----

BATCH_ROWS = 10


def frames(tag: float) -> np.ndarray:
    rows = np.zeros(RECORDS, dtype=PARTICLE)
    rows["x"] = tag
    return rows


def expect_no_mixture(seen: list[float]) -> None:
    assert set(seen) <= {0.0, 1.0, 2.0, 3.0}, "records of the epochs that replaced the dropped ones"
    assert all(seen.count(tag) <= RECORDS for tag in set(seen))


@pytest.mark.parametrize("threads", [1, 2])
def test_a_stream_whose_epochs_are_dropped_gives_them_or_an_error(tmp_path: Path, threads: int) -> None:
    whole = ended = 0
    batches = 4 * RECORDS // BATCH_ROWS
    for taken in range(0, batches + 1, 3):
        path = tmp_path / str(taken)
        with swale.create(path, schema=PARTICLE, key="u64") as out:
            for epoch in range(4):
                out.append_many(np.arange(RECORDS, dtype="u8"), frames(float(epoch)))
                out.epoch_end(epoch)
        with swale.open(path) as d:
            stream = d.stream(batch_rows=BATCH_ROWS, threads=threads)
            seen = [x for _ in range(taken) for x in next(stream)["x"].tolist()]
            with swale._writer.Writer(path, "imd.resume_after=1", "u64", PARTICLE, create=False) as again:
                for epoch in (2, 3):
                    again.append_many(np.arange(RECORDS, dtype="u8"), frames(100.0 + epoch))
                    again.epoch_end(epoch)
            try:
                for batch in stream:
                    seen += batch["x"].tolist()
                assert len(seen) == 4 * RECORDS
                whole += 1
            except swale.AbortedError as error:
                assert str(error)
                ended += 1
            expect_no_mixture(seen)
    print(f"{whole + ended} restarts during a stream: {whole} streams whole, {ended} ended with an error")


def test_canary_a_mixture_is_found() -> None:
    with pytest.raises(AssertionError, match="replaced"):
        expect_no_mixture([0.0, 1.0, 102.0])
