"""Random schemas, bytes and conditions: what comes back is what NumPy has, to the last bit."""
from __future__ import annotations

import operator
import os
import tempfile
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import swale

EXAMPLES = 1000 if os.environ.get("SWALE_FAULT_ROUNDS") else 15
TYPES = ("f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")
OPERATORS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq,
             "!=": operator.ne}
FIELDS = st.lists(st.tuples(st.sampled_from(TYPES), st.integers(1, 4)), min_size=1, max_size=8)


def random_rows(fields: list[tuple[str, int]], count: int, seed: int) -> np.ndarray:
    """Any bytes: NaN of all kinds, infinities, both zeros, the least and largest integers among them."""
    dtype = np.dtype([(f"f{i}", kind) if size == 1 else (f"f{i}", kind, (size,)) for i,
                      (kind, size) in enumerate(fields)])
    rng = np.random.default_rng(seed)
    rows = np.frombuffer(rng.bytes(count * dtype.itemsize), dtype=dtype).copy()
    for name in dtype.names:
        column = rows[name]
        special = [0, 1] if column.dtype.kind != "f" else [0.0, -0.0, 1.5, np.nan, np.inf, -np.inf]
        column[rng.random(column.shape) < 0.3] = rng.choice(np.array(special, dtype=column.dtype))
    return rows


def in_order(table: swale.Table) -> np.ndarray:
    return np.argsort(table["key"], kind="stable")


@settings(max_examples=EXAMPLES, deadline=None, database=None)
@given(fields=FIELDS, count=st.integers(1, 700), seed=st.integers(0, 2**32), step=st.integers(1, 3))
def test_any_array_comes_back(fields: list[tuple[str, int]], count: int, seed: int, step: int) -> None:
    rows = random_rows(fields, count, seed)[::step]  # strided, too
    keys = np.random.default_rng(seed).permutation(len(rows)).astype("u8")
    with tempfile.TemporaryDirectory() as folder:
        with swale.create(Path(folder) / "d", schema=rows.dtype, key="u64") as out:
            out.append_many(keys, rows)
            out.epoch_end(0)
        with swale.open(Path(folder) / "d") as d:
            table = d.scan()
            order = in_order(table)
            by_key = rows[np.argsort(keys)]
            for name in rows.dtype.names:
                assert table[name][order].tobytes() == np.ascontiguousarray(by_key[name]).tobytes()
            some = keys[:20]
            many = d.get_many(some)
            assert many["key"].tolist() == some.tolist()
            for i, key in enumerate(some.tolist()):
                assert d[key].view("u1")[24:].tobytes() == rows[i].tobytes()
                assert all(many[name][i].tobytes() == rows[i][name].tobytes() for name in rows.dtype.names)


@settings(max_examples=EXAMPLES, deadline=None, database=None)
@given(kinds=st.lists(st.sampled_from(TYPES), min_size=1, max_size=4), seed=st.integers(0, 2**32),
       data=st.data())
def test_conditions_choose_what_numpy_chooses(kinds: list[str], seed: int, data: st.DataObject) -> None:
    rows = random_rows([(kind, 1) for kind in kinds], 400, seed)
    with tempfile.TemporaryDirectory() as folder:
        with swale.create(Path(folder) / "d", schema=rows.dtype, key="u64") as out:
            out.append_many(np.arange(len(rows), dtype="u8"), rows)
            out.epoch_end(0)
        with swale.open(Path(folder) / "d") as d:
            for _ in range(5):
                name = data.draw(st.sampled_from(rows.dtype.names))
                sign = data.draw(st.sampled_from(list(OPERATORS)))
                stored = rows[name][data.draw(st.integers(0, len(rows) - 1))].item()
                number = data.draw(st.sampled_from([0, 1, -1, stored if np.isfinite(stored) else 2]))
                with np.errstate(invalid="ignore"):  # a signalling NaN that is converted
                    column = rows[name].astype("f8") if rows[name].dtype.kind == "f" else rows[name].astype(
                        object)
                    expected = np.nonzero(OPERATORS[sign](column, number).astype(bool) & (
                        column == column).astype(bool))[0]
                found = d.scan(where=f"{name} {sign} {number!r}", columns=["key"])["key"]
                assert sorted(found.tolist()) == expected.tolist(), f"{name} {sign} {number!r}"
