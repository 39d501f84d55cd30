"""What others make of a table: pyarrow, DuckDB, polars, pandas; and that they get what NumPy gets."""
from __future__ import annotations

import duckdb
import numpy as np
import polars
import pyarrow
from conftest import EPOCHS, RECORDS

import swale


def test_pyarrow_reads_tables_and_streams(run: str) -> None:
    with swale.open(run) as d:
        table = d.scan(where="key < 10")
        arrow = table.to_arrow()
        arrow.validate(full=True)
        assert arrow.schema.names == list(table)
        assert arrow.schema.field("x").metadata == {b"unit": b"m"}
        assert arrow.schema.field("v").type == pyarrow.list_(pyarrow.field("item", pyarrow.float32(), False),
                                                             3)
        assert arrow.column("key").to_pylist() == table["key"].tolist()
        assert arrow.column("v").to_pylist()[0] == table["v"][0].tolist()
        reader = pyarrow.RecordBatchReader.from_stream(d.stream(batch_rows=100))
        assert sum(batch.num_rows for batch in reader) == RECORDS * EPOCHS
        assert pyarrow.schema(table).names == list(table)


def test_tables_outlive_everything_that_made_them(run: str) -> None:
    with swale.open(run) as d:
        arrow = d.scan(epochs=0).to_arrow()
    kept = arrow.column("x").slice(5, 10)
    del arrow, d
    assert len(kept.to_pylist()) == 10


def test_duckdb_asks_tables_and_streams(run: str) -> None:
    with swale.open(run) as d:
        particles = d.scan()
        found = duckdb.sql("select epoch, count(*), max(id) from particles where x < 1e9 group by epoch "
                           "order by epoch")
        assert found.fetchall() == [(epoch, RECORDS - 1, RECORDS - 1) for epoch in range(EPOCHS)]
        passing = d.stream(where="key >= 490", columns=["key", "v"])
        for _ in range(2):
            found = duckdb.sql("select count(*), max(v[3]) from passing")
            assert found.fetchall() == [(10 * EPOCHS, 3 * RECORDS - 1.0)]


def test_polars_and_pandas(run: str) -> None:
    with swale.open(run) as d:
        table = d.get_many([3, 4, 5])
        frame = table.to_polars()
        assert isinstance(frame, polars.DataFrame) and frame.shape == (12, 7)
        assert frame["key"].to_list() == table["key"].tolist()
        pandas_frame = table.to_pandas()
        assert list(pandas_frame) == ["epoch", "step", "time", "key", "x", "v[0]", "v[1]", "v[2]", "id"]
        assert np.array_equal(pandas_frame["v[2]"], table["v"][:, 2])


def test_text_and_bytes_arrive(texts: str) -> None:
    with swale.open(texts) as d:
        arrow = d.scan().to_arrow()
        arrow.validate(full=True)
        assert sorted(arrow.column("key").to_pylist()) == sorted(["ä", "b", "<b>"] * 2)
        assert arrow.schema.field("value").type == pyarrow.binary()


def test_an_empty_answer_is_a_table(run: str) -> None:
    with swale.open(run) as d:
        empty = d.scan(where="x > 1e300")
        assert empty.to_arrow().num_rows == 0 and empty.to_polars().shape == (0, 7) and len(
            empty.to_pandas()) == 0
        assert duckdb.sql("select count(*) from empty").fetchall() == [(0,)]


def test_a_stream_is_read_by_each_from_its_beginning(run: str) -> None:
    with swale.open(run) as d:
        stream = d.stream(batch_rows=50)
        next(stream)
        readers = [pyarrow.RecordBatchReader.from_stream(stream) for _ in range(2)]
        next(stream)
        assert [reader.read_all().num_rows for reader in readers] == [RECORDS * EPOCHS] * 2
        unused = stream.__arrow_c_stream__()
        del unused  # a capsule that nobody reads frees its query
