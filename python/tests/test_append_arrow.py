"""Tables of other libraries as records: `Writer.append_arrow`, and what it refuses."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from conftest import EPOCHS, PARTICLE, RECORDS

import swale


def table_of(run: str) -> Any:
    with swale.open(run) as d:
        return d.scan(epochs=0).to_arrow()


def append(path: Path, *tables: Any, **more: Any) -> swale.Directory:
    with swale.create(path, **{"schema": PARTICLE, "key": "u64", **more}) as out:
        for table in tables:
            assert out.append_arrow(table) == len(table)
            out.epoch_end(len(tables))
    return swale.open(path)


def test_a_run_is_copied_by_its_streams(run: str, tmp_path: Path) -> None:
    with swale.open(run) as source, swale.create(tmp_path / "copy", schema=PARTICLE, key="u64") as out:
        for epoch in source.epochs:
            assert out.append_arrow(source.stream(epochs=epoch.epoch, batch_rows=77)) == RECORDS
            out.epoch_end(epoch.step, epoch.time)
        with swale.open(tmp_path / "copy") as copy:
            assert len(copy) == RECORDS * EPOCHS
            for key in (0, 3, 499):
                assert copy[key].tobytes() == source[key].tobytes()


def test_tables_of_other_libraries(run: str, tmp_path: Path) -> None:
    table = table_of(run)
    turned = table.select(["v", "key", "id", "x"])  # any order, without epoch, step and time
    sliced = pa.concat_tables([turned.slice(0, 101), turned.slice(101, 0), turned.slice(101)])
    frame = pl.from_arrow(turned)
    for number, each in enumerate((table, turned, sliced, sliced.slice(7), frame, frame.slice(100, 50))):
        with append(tmp_path / str(number), each) as d:
            assert len(d) == len(each)
            key = d.keys()[0]
            with swale.open(run) as source:
                there = source.get(key, epoch=0)
            for name in PARTICLE.names:
                assert d.get(key)[name].tobytes() == there[name].tobytes()


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_texts(kind: Any, tmp_path: Path) -> None:
    keys = pa.array(["a", "ä", "b"], kind)
    values = pa.array([b"1", b"", b"333"], pa.binary() if kind == pa.string() else pa.large_binary())
    with append(tmp_path / "texts", pa.table({"key": keys, "value": values}).slice(1), schema=None,
                key="text") as d:
        assert d.get("ä")["value"].tolist() == [b""] and "a" not in d
        assert d.get("b")["value"].tolist() == [b"333"]


def test_bytes_of_a_fixed_size(tmp_path: Path) -> None:
    keys = pa.array([b"abc", b"def"], pa.binary(3))
    with append(tmp_path / "fixed", pa.table({"key": keys, "value": keys}), schema=None, key="bytes") as d:
        assert d.get(b"def")["value"].tolist() == [b"def"]


def test_a_null_field_is_one_that_the_value_lacks(tmp_path: Path) -> None:
    options = "imd.schema=a:u1;b:f8;_:*"
    rows = pa.table({"key": pa.array([1, 2], pa.uint64()), "a": pa.array([5, 6], pa.uint8()),
                     "b": [0.5, None]})
    with swale._writer.Writer(tmp_path / "short", f"imd.key=u64,{options}", "u64", None, create=True) as out:
        assert out.append_arrow(rows) == 2
        holes = rows.set_column(1, "a", pa.array([None, 1], pa.uint8())).slice(0, 1)
        with pytest.raises(swale.InvalidArgumentError, match="row 0: a is null and b is not"):
            out.append_arrow(holes)
        out.epoch_end(0)
    with swale.open(tmp_path / "short") as d:
        assert [d.get_many([key]).to_arrow()["b"].to_pylist() for key in (1, 2)] == [[0.5], [None]]
        assert len(d._reader.values(2, -1)[0][3]) == 1


def wrong(run: str) -> dict[str, tuple[Any, str]]:
    table = table_of(run)
    place = {name: i for i, name in enumerate(table.column_names)}

    def with_column(name: str, array: Any) -> Any:
        return table.set_column(place[name], name, array)

    x = table["x"]
    return {
        "other type": (with_column("x", x.cast(pa.float32())),
                       'column "x" has the Arrow type "f".* wants g: cast it'),
        "list length": (with_column("v", pa.array([[1.0, 2.0]] * RECORDS, pa.list_(pa.float32(), 2))),
                        'wants \\+w:3'),
        "list type": (with_column("v", pa.array([[1.0] * 3] * RECORDS, pa.list_(pa.float64(), 3))),
                      'wants \\+w:3'),
        "list null": (with_column("v", pa.array([[1.0, None, 2.0]] * RECORDS, pa.list_(pa.float32(), 3))),
                      "numbers of a list are null"),
        "dictionary": (with_column("x", x.dictionary_encode()), "is a dictionary: decode it first"),
        "null type": (with_column("x", pa.nulls(RECORDS)), 'has the Arrow type "n"'),
        "null": (with_column("x", pa.array([1.0, None] * (RECORDS // 2))), "row 1: x is null"),
        "null key": (with_column("key", pa.array([None] * RECORDS, pa.uint64())), "row 0: the key is null"),
        "signed key": (with_column("key", table["key"].cast(pa.int64())),
                       'column "key" has the Arrow type "l"'),
        "missing": (table.drop(["x"]), 'no column "x"; it has epoch'),
        "unknown": (table.append_column("y", x), 'no column "y"; did you mean'),
        "twice": (table.append_column("x", x), 'twice'),
        "value": (table.append_column("value", pa.array([b""] * RECORDS)), "leave it out"),
    }


def test_what_does_not_fit_is_refused_and_the_writer_goes_on(run: str, tmp_path: Path) -> None:
    with swale.create(tmp_path / "d", schema=PARTICLE, key="u64") as out:
        for name, (table, message) in wrong(run).items():
            with pytest.raises(swale.InvalidArgumentError, match=message):
                out.append_arrow(table)
                pytest.fail(name)
        with pytest.raises(TypeError, match="__arrow_c_stream__"):
            out.append_arrow(np.zeros(3))
        out.append_arrow(table_of(run).slice(0, 3))
        out.epoch_end(0)
    with swale.open(tmp_path / "d") as d:
        assert len(d) == 4, "the row before the null one was appended, as the C call says"


def test_a_source_that_fails_says_why(tmp_path: Path) -> None:
    def batches() -> Any:
        yield pa.record_batch({"key": pa.array([1], pa.uint64()), "value": pa.array([b"1"])})
        raise OSError("the disk is gone")

    names = pa.schema([("key", pa.uint64()), ("value", pa.binary())])
    with swale.create(tmp_path / "d", key="u64") as out:
        with pytest.raises(ValueError, match="the disk is gone"):
            out.append_arrow(pa.RecordBatchReader.from_batches(names, batches()))
        out.epoch_end(0)
