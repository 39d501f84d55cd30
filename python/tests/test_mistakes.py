"""Bad input: one line that says what to do."""
from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from conftest import PARTICLE, frame

import swale


@pytest.mark.parametrize(("ask", "kind", "says"), [
    (lambda d: d["17"], TypeError, "'17' is of type str: this directory's keys are integers"),
    (lambda d: d[1.5], TypeError, "float: this directory's keys are integers"),
    (lambda d: d[-1], ValueError, "from 0 to 2**64-1"),
    (lambda d: d[2**64], ValueError, "from 0 to 2**64-1"),
    (lambda d: d.get_many(17), TypeError, "write [key]"),
    (lambda d: d.scan(where=5), TypeError, "as text"),
    (lambda d: d.scan(columns=[5]), TypeError, "names of columns"),
    (lambda d: d.scan(threads=-1), ValueError, "threads is -1"),
    (lambda d: swale.open("a\0b"), ValueError, "NUL"),
    (lambda d: d.get_many("17"), TypeError, "write [key]"),
    (lambda d: d.get_many(np.array([1.5])), TypeError, "float64"),
    (lambda d: d.get_many(np.array([-1])), ValueError, "from 0 to"),
    (lambda d: d.scan(columns=["enrgy", "x"]), ValueError, "did you mean"),
    (lambda d: d.scan(columns=["xx"]), ValueError, "did you mean \"x\""),
    (lambda d: d.scan(columns=[]), ValueError, "no column"),
    (lambda d: d.scan(where="x >"), ValueError, "column 4"),
    (lambda d: d.scan(where="y > 1"), ValueError, "no field \"y\""),
    (lambda d: d.scan(where="x + 1"), ValueError, "expected a condition"),
    (lambda d: d.scan(epochs=4), IndexError, "4 committed epochs, from 0 to 3"),
    (lambda d: d.scan(epochs=-5), IndexError, "-1 is the last"),
    (lambda d: d.scan(epochs=slice(2, 2)), ValueError, "selects none of the 4 epochs"),
    (lambda d: d.scan(epochs=[]), ValueError, "selects none"),
    (lambda d: d.scan(epochs="1"), TypeError, ""),
    (lambda d: d.top("xx"), ValueError, "did you mean 'x'"),
    (lambda d: d.top("v"), ValueError, "v[0..2]"),
    (lambda d: d.top("x", 0), ValueError, "0"),
    (lambda d: d.scan()["energy"], KeyError, "there are epoch"),
])
def test_a_wrong_question_says_what_was_meant(run: str, ask, kind: type[Exception], says: str) -> None:
    with swale.open(run) as d:
        with pytest.raises(kind) as told:
            ask(d)
        assert says in str(told.value)
        assert "\n" not in str(told.value)


def test_a_wrong_place_says_so(tmp_path, run: str) -> None:
    with pytest.raises(swale.NotFoundError) as told:
        swale.open(tmp_path / "nowhere")
    assert isinstance(told.value, FileNotFoundError) and "nowhere" in told.value.path
    (tmp_path / "plain").mkdir()
    with pytest.raises(swale.SwaleError):
        swale.open(tmp_path / "plain")
    (tmp_path / "file").write_text("x")
    with pytest.raises(swale.SwaleError):
        swale.open(tmp_path / "file")
    with pytest.raises(swale.InvalidArgumentError, match="imd.mpa"):
        swale.open(run, options="imd.mpa=never")


def test_a_closed_directory_says_so(run: str) -> None:
    d = swale.open(run)
    d.close()
    d.close()
    assert d.closed and "closed" in repr(d)
    for ask in (lambda: d[1], lambda: d.scan(), lambda: d.keys(), lambda: d.refresh(), lambda: 1 in d):
        with pytest.raises(ValueError, match="swale.open"):
            ask()


@pytest.mark.parametrize(("dtype", "says"), [
    ([("x", "O")], "Python objects"),
    ([("x", ">f8")], "big-endian"),
    ([("x", "f2")], "use one of"),
    ([("x", "U4")], "use one of"),
    ([("x", "f8", (2, 3))], "2 dimensions: use one, (6,)"),
    ([("x", [("y", "f8")])], "fields of its own"),
    ("f8", "no fields"),
])
def test_a_dtype_that_no_schema_can_have_says_why(tmp_path, dtype, says: str) -> None:
    with pytest.raises(ValueError) as told:
        swale.create(tmp_path / "d", schema=np.dtype(dtype), key="u64")
    assert says in str(told.value) and not (tmp_path / "d").exists()


def test_wrong_arrays_change_nothing(tmp_path) -> None:
    with swale.create(tmp_path / "d", schema=PARTICLE, key="u64") as out:
        rows = frame(0)
        keys = np.arange(len(rows), dtype="u8")
        for wrong, says in ((rows.astype(rows.dtype.newbyteorder(">")), "big-endian"),
                            (rows[["x", "id"]], "astype"),
                            (rows.astype(object), "Python objects"), (rows.reshape(2, -1), "2 dimensions")):
            with pytest.raises(ValueError, match=says):
                out.append_many(keys, wrong)
        with pytest.raises(ValueError, match="500 keys and 499 values"):
            out.append_many(keys, rows[1:])
        with pytest.raises(TypeError, match="float64"):
            out.append_many(keys * 1.0, rows)
        with pytest.raises(ValueError, match="the least is -1"):
            out.append_many(keys.astype("i8") - 1, rows)
        with pytest.raises(TypeError, match="integers"):
            out.append("a", rows[0])
        with pytest.raises(swale.InvalidArgumentError, match="a value of 3 bytes"):
            out.append(1, b"abc")
        out.epoch_end(5)
        with pytest.raises(swale.InvalidArgumentError, match="step"):
            out.epoch_end(4)
    with swale.open(tmp_path / "d") as d:
        assert len(d) == 0 and len(d.epochs) == 1


def test_writing_says_what_is_wrong(tmp_path, run: str) -> None:
    with pytest.raises(swale.AlreadyExistsError):
        swale.create(run, schema=PARTICLE, key="u64")
    with pytest.raises(ValueError, match="'u32'"):
        swale.create(tmp_path / "d", key="u32")
    with pytest.raises(ValueError, match="units names 'y'"):
        swale.create(tmp_path / "d", schema=PARTICLE, units={"y": "m"})
    out = swale.create(tmp_path / "d", key="u64")
    out.append(1, b"lost")
    with pytest.raises(swale.AbortedError, match="1"):
        out.close()
    with pytest.raises(ValueError, match="closed"):
        out.append(1, b"x")


@pytest.mark.parametrize(("key", "good", "bad"), [("i64", -5, "a"), ("text", "ä", b"a"),
                                                  ("bytes", b"\xff", "a")])
def test_each_type_of_keys(tmp_path, key: str, good: object, bad: object) -> None:
    with swale.create(tmp_path / "d", key=key) as out:
        out.append(good, b"value")
        out.epoch_end(0)
    with swale.open(tmp_path / "d") as d:
        assert d[good]["value"].tolist() == [b"value"] and list(d.keys()) == [good]
        assert list(d.scan()["key"]) == [good]
        assert list(d.get_many([good])["value"]) == [b"value"]
        with pytest.raises(TypeError, match="keys are"):
            d[bad]


def test_a_missing_package_says_what_to_install(run: str) -> None:
    program = f"""
import sys
for name in ("numpy", "pandas", "pyarrow", "polars"):
    sys.modules[name] = None
import swale
d = swale.open({run!r})
print(len(d), d.epochs[0].step, 17 in d, len(d.scan()))
for ask in (lambda: d[1], lambda: d.scan().to_arrow(), lambda: d.scan().to_polars(),
            lambda: d.scan().to_pandas()):
    try:
        ask()
    except ModuleNotFoundError as error:
        print(error)
"""
    told = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True,
                          text=True).stdout.splitlines()
    assert told[0] == "2000 0 True 2000"
    assert [line.rsplit(" ", 1)[1] for line in told[1:]] == ["numpy", "pyarrow", "polars", "pandas"]
    assert all("pip install" in line for line in told[1:])


def test_nothing_is_imported_before_it_is_needed() -> None:
    program = ("import swale, sys; "
               "print([m for m in ('numpy', 'pandas', 'pyarrow', 'polars', 'duckdb') if m in sys.modules])")
    told = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert told == "[]\n"
