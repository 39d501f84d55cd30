"""What engines ask for becomes look-ups, epochs and conditions; and the answer is the one without."""
from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars
import pyarrow
import pyarrow.compute as pc
import pyarrow.dataset
import pytest
from conftest import EPOCHS, RECORDS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import swale
from swale import _condition, _dataset, _polars

EXAMPLES = 2000 if os.environ.get("SWALE_FAULT_ROUNDS") else 60
# 0.1 is no float32; 2**53 + 1 is no float64; 2**63 is no int64.
NUMBERS = [0, 1, -1, 2, 3.0, 0.1, 0.5, -0.0, 1e30, 16777217, 2**53 + 1, 2**63, 2**64 - 1, -2**63, 254, 255]
FLOATS = [0.0, -0.0, 0.1, 0.5, 3.0, -1.0, 1e30, 16777216.0, float("inf"), -float("inf"), float("nan")]
PARTICLE = np.dtype([("f", "f4"), ("d", "f8"), ("c", "u1"), ("i", "i8"), ("u", "u8"), ("step", "i4"),
                     ("a-b", "f8"), ("v", "f4", 2)])
COLUMNS = ["epoch", "step", "time", "key", "f", "d", "c", "i", "u", "[step]", "a-b"]


@pytest.fixture(scope="module")
def odd() -> Iterator[swale.Directory]:
    """Records whose numbers are those that types and engines disagree on; some keys in some epochs only."""
    rng = np.random.default_rng(7)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "d"
        with swale.create(path, schema=PARTICLE, key="u64") as out:
            for epoch in range(4):
                rows = np.zeros(60, dtype=PARTICLE)
                for name in ("f", "d", "a-b"):
                    rows[name] = rng.choice(FLOATS, 60)
                rows["c"], rows["step"] = rng.choice([0, 1, 2, 3, 254, 255], 60), rng.integers(-2, 3, 60)
                rows["i"] = rng.choice(np.array([0, 1, -1, 2, 3, 2**53, 2**53 + 1, -2**63, 2**63 - 1], "i8"),
                                       60)
                rows["u"] = rng.choice(np.array([0, 1, 2, 3, 2**53 + 1, 2**63, 2**64 - 1], "u8"), 60)
                keys = rng.permutation(np.array([*range(100), 2**53 + 1, 2**63, 2**64 - 1], "u8"))[:60]
                out.append_many(keys, rows)
                out.epoch_end(10 * epoch, 0.5 * epoch)
        with swale.open(path) as d:
            yield d


def rows_of(table: pyarrow.Table) -> list[str]:
    """All rows in an order of their own; NaN equals NaN."""
    return sorted(map(repr, zip(*(table.column(name).to_pylist() for name in sorted(table.schema.names)))))


COMPARISON = st.tuples(st.sampled_from(COLUMNS), st.sampled_from(["<", "<=", ">", ">=", "=", "!="]),
                       st.sampled_from(NUMBERS))
MEMBER = st.tuples(st.sampled_from(COLUMNS), st.just("in"), st.lists(st.sampled_from(NUMBERS), min_size=1,
                                                                     max_size=4))
CONDITIONS = st.recursive(
    COMPARISON | MEMBER,
    lambda inner: st.tuples(st.sampled_from(["and", "or"]), inner, inner) | st.tuples(st.just("not"), inner),
    max_leaves=6)


def in_pyarrow(tree: Any) -> pc.Expression:
    if tree[0] == "not":
        return ~in_pyarrow(tree[1])
    if tree[0] in ("and", "or"):
        a, b = in_pyarrow(tree[1]), in_pyarrow(tree[2])
        return a & b if tree[0] == "and" else a | b
    column, operator, value = tree
    field = pc.field(column)
    if operator == "in":
        return field.isin(value if all(isinstance(each, int) and abs(each) < 2**63 for each in value)
                          else [0.5, 1.0])
    return {"<": field < value, "<=": field <= value, ">": field > value, ">=": field >= value,
            "=": field == value,
            "!=": field != value}[operator]


def in_polars(tree: Any) -> polars.Expr:
    if tree[0] == "not":
        return ~in_polars(tree[1])
    if tree[0] in ("and", "or"):
        a, b = in_polars(tree[1]), in_polars(tree[2])
        return a & b if tree[0] == "and" else a | b
    column, operator, value = tree
    field = polars.col(column)
    if operator == "in":
        return field.is_in(value)
    return {"<": field < value, "<=": field <= value, ">": field > value, ">=": field >= value,
            "=": field == value,
            "!=": field != value}[operator]


def in_sql(tree: Any) -> str:
    if tree[0] == "not":
        return f"(not {in_sql(tree[1])})"
    if tree[0] in ("and", "or"):
        return f"({in_sql(tree[1])} {tree[0]} {in_sql(tree[2])})"
    column, operator, value = tree
    if operator == "in":
        return f'"{column}" in ({", ".join(map(repr, value))})'
    return f'"{column}" {operator} {value!r}'


def outcome(ask: Any) -> Any:
    """The rows, or that the engine refuses the question (a type that it cannot compare)."""
    try:
        return rows_of(ask())
    except (pyarrow.ArrowInvalid, pyarrow.ArrowNotImplementedError, OverflowError, duckdb.Error,
            polars.exceptions.PolarsError) as refused:
        return type(refused)


def expect_same(pushed: Any, without: Any) -> None:
    """Equal rows. An engine that cannot compare some record's number may not meet that record if we leave it
    out.
    """
    found, expected = outcome(pushed), outcome(without)
    assert found == expected or isinstance(expected, type), (found, expected)


@settings(max_examples=EXAMPLES, deadline=None, database=None,
          suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tree=CONDITIONS)
def test_pyarrow_and_duckdb_answer_as_without(odd: swale.Directory, tree: Any) -> None:
    everything = odd.scan().to_arrow()
    dataset = odd.dataset()
    try:
        expression = in_pyarrow(tree)
    except (OverflowError, pyarrow.ArrowInvalid, TypeError):
        expression = None
    if expression is not None:
        memory = pyarrow.dataset.dataset(everything)
        expect_same(lambda: dataset.to_table(filter=expression), lambda: memory.to_table(filter=expression))
    connection = duckdb.connect()
    connection.register("without", everything)
    connection.register("pushed", dataset)
    sql = f"select * from {{}} where {in_sql(tree)}"
    expect_same(lambda: connection.sql(sql.format("pushed")).to_arrow_table(),
                lambda: connection.sql(sql.format("without")).to_arrow_table())


@settings(max_examples=EXAMPLES, deadline=None, database=None,
          suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tree=CONDITIONS, columns=st.lists(st.sampled_from([*COLUMNS, "v"]), min_size=1, max_size=4,
                                         unique=True))
def test_polars_answers_as_without(odd: swale.Directory, tree: Any, columns: list[str]) -> None:
    try:
        expression = in_polars(tree)
    except (OverflowError, TypeError):
        return
    without = odd.scan().to_polars().lazy()
    expect_same(lambda: odd.scan_polars().filter(expression).select(columns).collect().to_arrow(),
                lambda: without.filter(expression).select(columns).collect().to_arrow())


# ---- That something is pushed down at all ----


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[_condition.Plan]:
    """The plans that queries make, in order."""
    made: list[_condition.Plan] = []

    def noted(*arguments: Any) -> _condition.Plan:
        made.append(_condition.plan(*arguments))
        return made[-1]

    monkeypatch.setattr(_polars, "plan", noted)
    monkeypatch.setattr(_dataset, "plan", noted)
    return made


def test_keys_and_epochs_are_looked_up(run: str, plans: list[_condition.Plan]) -> None:
    col = polars.col
    with swale.open(run) as d:
        dataset = d.dataset()
        found = duckdb.sql(
            "select epoch, x from dataset where key = 42 and step >= 20 order by epoch").fetchall()
        assert found == [(2, 2042.0), (3, 3042.0)] and plans[-1].keys == [42] and plans[-1].epochs == [2, 3]
        found = duckdb.sql("select count(*) from dataset where key in (1, 2, 499, 500, 12345)").fetchall()
        assert found == [(3 * EPOCHS,)] and plans[-1].keys == [1, 2, 499, 500, 12345]
        assert duckdb.sql("select count(*) from dataset").fetchall() == [(RECORDS * EPOCHS,)]
        assert duckdb.sql("select count(*) from dataset where step = 11").fetchall() == [(0,)] and plans[
            -1].nothing
        duckdb.sql("select key from dataset where x <= 3").fetchall()
        assert plans[-1].where == "(x <= 3.0)"
        assert dataset.to_table(filter=pc.field("key") == 42).num_rows == EPOCHS and plans[-1].keys == [42]
        lazy = d.scan_polars()
        assert lazy.filter(col("key") == 42, col("time") == 0.5).collect()["x"].to_list() == [1042.0]
        assert plans[-1] == _condition.Plan([1], [42],
                                            "(time == 0.5 and key == 42)") or plans[-1].keys == [42]
        assert lazy.filter(col("key").is_in([7, 8])).select("key").collect().height == 2 * EPOCHS and plans[
            -1].keys == [7, 8]
        # NaN is the largest number
        assert lazy.filter(col("x") > 3400).select("key").collect().height == 99 + EPOCHS
        assert plans[-1].where == "(!(x <= 3400.0))"


def test_columns_and_rows_are_chosen(run: str) -> None:
    with swale.open(run) as d:
        lazy = d.scan_polars(epochs=[1], where="key < 100")
        assert lazy.select("v").head(3).collect().shape == (3, 1)
        assert lazy.collect().shape == (100, 7)
        assert lazy.filter(polars.col("x") > 1050).head(2).collect().height == 2
        assert lazy.filter(polars.col("x") > 1050).sort("x").head(2).collect()["x"].to_list() == [
            1051.0, 1052.0]
        assert lazy.select(polars.len()).collect().item() == 100
        dataset = d.dataset(epochs=-1, where="id >= 490")
        assert dataset.count_rows() == 10 and dataset.head(3).num_rows == 3
        assert dataset.to_table(columns=["x", "key"]).schema.names == ["x", "key"]
        assert dataset.to_table(columns={"twice": pc.field("x") * 2},
                                filter=pc.field("id") == 499)["twice"].to_pylist() == [6998.0]
        assert dataset.filter(pc.field("key") == 495).to_table().num_rows == 1
        assert dataset.filter(pc.field("key") > 495).count_rows(filter=pc.field("key") < 498) == 2
        assert sum(batch.num_rows for batch in dataset.to_batches(batch_size=3)) == 10


def test_text_keys_are_looked_up(texts: str, plans: list[_condition.Plan]) -> None:
    with swale.open(texts) as d:
        assert d.scan_polars().filter(polars.col("key") ==
                                      "ä").collect().height == 2 and plans[-1].keys == ["ä"]
        dataset = d.dataset()
        assert duckdb.sql("select count(*) from dataset where key = '<b>'").fetchall() == [(2,)] and plans[
            -1].keys == ["<b>"]
        assert duckdb.sql("select count(*) from dataset where key in ('b', '')").fetchall() == [(2,)]


def test_a_wrong_question_is_told(run: str) -> None:
    with swale.open(run) as d:
        for ask in (d.scan_polars, d.dataset):
            with pytest.raises(swale.InvalidArgumentError, match="column 4"):
                ask(where="x >")
            with pytest.raises(IndexError, match="4 committed epochs"):
                ask(epochs=7)
        with pytest.raises((pyarrow.ArrowInvalid, KeyError), match="nothing"):
            d.dataset().to_table(columns=["nothing"])


EVERY_NAME = """
import sys, swale, pyarrow.compute as pc
d = swale.open(sys.argv[1])
for name in (name for name in dir(d.dataset()) if not name.startswith("_")):
    for arguments in ((), (pc.field("key") == 1,), ([0, 1],), ("key",), (d.dataset(), "key"),
                      (d.dataset().schema,)):
        print(name, len(arguments), flush=True)
        try:
            made = getattr(d.dataset(), name)
            made = made(*arguments) if callable(made) else made
            made = list(made) if hasattr(made, "__next__") else [made]
            made = [part.to_table() if hasattr(part, "to_table") else part for part in made]
        except Exception as error:
            print("   ", type(error).__name__, flush=True)
            continue
        rows = sum(part.num_rows for part in made if hasattr(part, "num_rows"))
        assert rows in (0, 2, 4, 5, 2000), (name, rows)
print("end")
"""


def test_every_name_of_a_dataset_gives_rows_or_an_error(run: str) -> None:
    """In a child: pyarrow ends the process of whoever finds a Dataset that it did not expect."""
    done = subprocess.run([sys.executable, "-c", EVERY_NAME, run], capture_output=True, text=True,
                          timeout=120)
    assert done.returncode == 0 and done.stdout.endswith("end\n"), (done.returncode, done.stdout[-300:],
                                                                    done.stderr)
    for name in ("scanner", "to_table", "get_fragments", "join", "sort_by", "take", "replace_schema"):
        assert f"\n{name} 0" in done.stdout
