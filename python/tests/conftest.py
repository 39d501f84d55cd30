"""What the tests share: small directories, made with the package itself; and --no-skips, by which CI allows
none.
"""
from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import swale

PARTICLE = np.dtype([("x", "f8"), ("v", "f4", (3,)), ("id", "u4")])
RECORDS = 500
EPOCHS = 4


def frame(epoch: int) -> np.ndarray:
    """The values of all particles in an epoch; particle 3 has NaN and infinity, particle 4 the least integer.
    """
    rows = np.zeros(RECORDS, dtype=PARTICLE)
    rows["x"] = np.arange(RECORDS) + 1000.0 * epoch
    rows["v"] = np.arange(3 * RECORDS).reshape(-1, 3)
    rows["id"] = np.arange(RECORDS)
    rows["x"][3] = np.nan
    rows["v"][3] = [np.inf, -np.inf, -0.0]
    return rows


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A directory of 500 particles and 4 epochs: key u64, schema, units, extrema of x."""
    path = tmp_path_factory.mktemp("run") / "particles"
    with swale.create(path, schema=PARTICLE, key="u64", extrema=["x"], units={"x": "m"}) as out:
        for epoch in range(EPOCHS):
            out.append_many(np.arange(RECORDS, dtype="u8"), frame(epoch))
            out.epoch_end(10 * epoch, 0.5 * epoch)
    return str(path)


@pytest.fixture(scope="session")
def placed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """As `run`, with attributes that files of frames need."""
    path = tmp_path_factory.mktemp("placed") / "particles"
    with swale.create(path, schema=PARTICLE, key="u64") as out:
        out.set_attributes({"position": "v", "periodic": True})
        for epoch in range(EPOCHS):
            out.set_attributes({"box": [1.0, 2.0, 3.0 + epoch]}, epoch=True)
            out.append_many(np.arange(RECORDS, dtype="u8"), frame(epoch))
            out.epoch_end(10 * epoch, 0.5 * epoch)
    return str(path)


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A directory with keys of text and values of any length."""
    path = tmp_path_factory.mktemp("texts") / "run"
    with swale.create(path, key="text") as out:
        for epoch in range(2):
            for name in ("ä", "b", "<b>"):
                out.append(name, f"{name}{epoch}".encode() * epoch)
            out.epoch_end(epoch, 0)
    return str(path)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--no-skips", action="store_true", help="a skipped test fails the run")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if session.config.getoption("--no-skips") and reporter is not None and reporter.stats.get("skipped"):
        session.exitstatus = 1


def damaged_copy(run: str, to: Path, file: str, offset: int) -> str:
    """A copy of a directory with one byte of a file flipped."""
    import shutil

    shutil.copytree(run, to)
    path = to / file
    data = bytearray(path.read_bytes())
    data[offset] ^= 0x41
    path.write_bytes(data)
    return str(to)
