"""Random schemas, bytes and conditions: what comes back is what NumPy has, to the last bit."""
from __future__ import annotations

import operator
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
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


@settings(max_examples=EXAMPLES, deadline=None, database=None)
@given(fields=FIELDS, count=st.integers(1, 200), seed=st.integers(0, 2**32))
def test_values_of_any_length_lack_what_they_are_too_short_for(fields: list[tuple[str, int]], count: int,
                                                               seed: int) -> None:
    rows = random_rows(fields, count, seed)
    lengths = np.random.default_rng(seed).integers(0, rows.dtype.itemsize + 3, count)
    schema = ";".join(f"f{i}:{kind}" + (f"x{size}" if size > 1 else "")
                      for i, (kind, size) in enumerate(fields))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "d"
        with swale._writer.Writer(path, f"imd.key=u64,imd.schema={schema};_:*", "u64", None,
                                  create=True) as out:
            for key, (row, length) in enumerate(zip(rows, lengths.tolist())):
                out.append(key, (row.tobytes() + b"end")[:length])
            out.epoch_end(0)
        with swale.open(path) as d:
            table = d.scan()
            order = in_order(table)
            assert table["key"][order].tolist() == list(range(count))
            for name in rows.dtype.names:
                kind, offset = rows.dtype.fields[name][:2]
                lacks = lengths < offset + kind.itemsize
                found = np.ma.asarray(table[name])[order]
                assert np.array_equal(np.ma.getmaskarray(found).reshape(count, -1).all(axis=1), lacks)
                assert np.array_equal(np.ma.getmaskarray(found).reshape(count, -1).any(axis=1), lacks)
                expected = np.ascontiguousarray(rows[name])[~lacks]
                assert np.ascontiguousarray(found.data[~lacks]).tobytes() == expected.tobytes()


# ---- What `swale scan` gives ----

NUMBERS = ["0", "-0.0", "1", "-1", "0.5", "1e300", "16777217", str(2**53 + 1), str(2**63), str(2**64 - 1)]
OPERANDS = st.sampled_from(["a", "b", "c", "v[1]", "key", "epoch", "step", "time", *NUMBERS])
SUMS = st.recursive(OPERANDS, lambda inner: st.builds("({} {} {})".format, inner,
                                                      st.sampled_from(["+", "-", "*", "/", "%"]), inner),
                    max_leaves=3)
CONDITIONS = st.recursive(
    st.builds("{} {} {}".format, SUMS, st.sampled_from(list(OPERATORS)), SUMS) | st.just("has(b)"),
    lambda inner: st.builds("({} {} {})".format, inner, st.sampled_from(["and", "or"]), inner)
    | st.builds("not ({})".format, inner), max_leaves=4)


@pytest.fixture(scope="module")
def odd() -> Iterator[str]:
    """NaN, infinities, both zeros, the least and largest integers, empty values, and missing fields."""
    dtype = np.dtype([("a", "f8"), ("b", "i8"), ("c", "u8"), ("v", "f4", 2)])
    rng = np.random.default_rng(3)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "d"
        with swale._writer.Writer(path, "imd.key=u64,imd.schema=a:f8;b:i8;c:u8;v:f4x2;_:*", "u64", None,
                                  create=True) as out:
            for epoch in range(2):
                for key in [*range(60), 2**53 + 1, 2**63, 2**64 - 1]:
                    row = np.zeros((), dtype=dtype)
                    row["a"] = rng.choice([0.0, -0.0, 0.5, 1.0, 1e300, np.nan, np.inf, -np.inf])
                    row["b"] = rng.choice(np.array([0, 1, -1, 2**53 + 1, 2**63 - 1, -2**63], "i8"))
                    row["c"] = rng.choice(np.array([0, 1, 2**53 + 1, 2**63, 2**64 - 1], "u8"))
                    row["v"] = rng.choice(np.array([0, 1, 0.5, 16777216, np.nan], "f4"), 2)
                    out.append(key, row.tobytes()[:rng.choice([0, 8, 11, 16, 24, 28, 32])])
                out.epoch_end(10 * epoch, 0.5 * epoch)
        yield str(path)


@settings(max_examples=4 * EXAMPLES, deadline=None, database=None)
@given(where=CONDITIONS)
def test_conditions_choose_what_the_command_chooses(odd: str, where: str) -> None:
    command = os.path.join(os.environ.get("SWALE_COMMANDS", ""), "swale")
    if not os.path.exists(command):
        pytest.skip("SWALE_COMMANDS names no folder of the commands")
    said = subprocess.run([command, "scan", odd, "--where", where, "--fields", "epoch,key", "--format",
                           "csv"], capture_output=True, text=True)

    def found(**how: Any) -> list[tuple[int, int]]:
        with swale.open(odd) as d:
            table = d.scan(where=where, columns=["epoch", "key"], **how)
            return sorted(zip(table["epoch"].tolist(), table["key"].tolist()))

    if said.returncode != 0:
        with pytest.raises(swale.InvalidArgumentError) as refused:
            found()
        assert str(refused.value).partition(": ")[2].split(";")[0] in said.stderr, where
        return
    lines = [line.split(",") for line in said.stdout.splitlines()[1:]]
    assert sorted((int(epoch), int(key)) for epoch, key in lines) == found(threads=1), where
