"""Files of frames, opened by what people use: ASE and h5py here; tests_outside has those that are too large
for every run.
"""
from __future__ import annotations

from pathlib import Path
from typing import Any

import ase.io
import h5py
import numpy as np
import pytest
from test_commands import run as run_command

import swale
from swale import _export

ATOM = np.dtype([("x", "f8"), ("y", "f8"), ("z", "f8"), ("v", "f4", 3), ("type", "i4"), ("q", "f8"),
                 ("s", "i8", 2)])
COUNT = 40
NAMES = {"extxyz": "run.extxyz", "lammpstrj": "run.lammpstrj", "h5md": "run.h5md", "hdf5": "run.hdf5",
         "openpmd": "run.h5",
         "vtkhdf": "run.vtkhdf"}


def atoms(epoch: int) -> np.ndarray:
    random = np.random.default_rng(epoch)
    rows = np.zeros(COUNT, dtype=ATOM)
    for name in ("x", "y", "z", "q"):
        rows[name] = random.normal(size=COUNT)
    rows["v"] = random.normal(size=(COUNT, 3))
    rows["type"] = 1 + np.arange(COUNT) % 2
    rows["s"] = random.integers(-2**62, 2**62, (COUNT, 2))
    return rows


@pytest.fixture(scope="module")
def gas(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("gas") / "run"
    with swale.create(path, schema=ATOM, key="u64", units={"q": "e"}) as out:
        out.set_attributes({"units": "metal", "velocity": "v", "periodic": [True, True, False],
                            "origin": [-1, -2, -3],
                            "elements": {"1": "Cu", "2": "O"},
                            "fields": {"q": {"si": 1.602e-19, "dimension": [0, 0, 1, 1, 0, 0, 0]}}})
        for epoch in range(3):
            out.set_attributes({"box": [[10, 0, 0], [epoch, 11, 0], [0, 0, 12]]}, epoch=True)
            out.append_many(np.arange(COUNT, dtype="u8")[::-1] + 100, atoms(epoch)[::-1])
            out.epoch_end(10 * epoch, 0.25 * epoch)
    return str(path)


def write(gas: str, tmp_path: Path, kind: str, **more: Any) -> Path:
    path = tmp_path / NAMES[kind]
    with swale.open(gas) as d:
        rows = d.export(path, format=kind, **more)
        assert rows == COUNT * 3 or more
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
    return path


def positions(epoch: int) -> np.ndarray:
    rows = atoms(epoch)
    return np.stack([rows["x"], rows["y"], rows["z"]], axis=1)


def test_ase_reads_extxyz(gas: str, tmp_path: Path) -> None:
    frames = ase.io.read(write(gas, tmp_path, "extxyz"), index=":", format="extxyz")
    assert len(frames) == 3
    for epoch, frame in enumerate(frames):
        rows = atoms(epoch)
        assert np.array_equal(frame.positions, positions(epoch))
        assert np.array_equal(frame.arrays["velo"].astype("f4"), rows["v"])
        assert frame.arrays["id"].tolist() == list(range(100, 100 + COUNT))
        assert np.array_equal(frame.arrays["q"],
                              rows["q"]) and frame.arrays["s"].astype("i8").tolist() == rows["s"].tolist()
        assert frame.get_chemical_symbols()[:3] == ["Cu", "O", "Cu"]
        assert frame.cell.tolist() == [[10, 0, 0], [epoch, 11, 0],
                                       [0, 0, 12]] and frame.pbc.tolist() == [True, True, False]
        assert frame.info["Step"] == 10 * epoch and frame.info["Time"] == 0.25 * epoch


def test_ase_reads_a_lammps_dump(gas: str, tmp_path: Path) -> None:
    frames = ase.io.read(write(gas, tmp_path, "lammpstrj"), index=":", format="lammps-dump-text", order=True,
                         units="metal")
    assert len(frames) == 3
    for epoch, frame in enumerate(frames):
        assert np.allclose(frame.positions, positions(epoch), rtol=0, atol=1e-12)
        assert np.allclose(frame.cell.array, [[10, 0, 0], [epoch, 11, 0], [0, 0, 12]])
        assert frame.numbers.tolist() == atoms(epoch)["type"].tolist() and frame.pbc.tolist() == [
            True, True, False]
        assert np.array_equal(frame.get_initial_charges(), atoms(epoch)["q"])


def test_h5md_has_its_elements(gas: str, tmp_path: Path) -> None:
    with h5py.File(write(gas, tmp_path, "h5md")) as file:
        assert file["h5md"].attrs["version"].tolist() == [1, 1]
        all_ = file["particles/all"]
        assert all_["id"][:].tolist() == list(range(100, 100 + COUNT))
        assert all_["position/step"][:].tolist() == [0, 10, 20] and all_["position/time"][:].tolist() == [
            0, 0.25, 0.5]
        assert all_["position/value"].attrs["unit"] == "Angstrom" and all_["position/time"].attrs[
            "unit"] == "ps"
        assert all_["velocity/value"].attrs["unit"] == "Angstrom ps-1" and all_["q/value"].attrs[
            "unit"] == "e"
        assert all_["box"].attrs["boundary"].tolist() == [b"periodic", b"periodic", b"none"]
        for epoch in range(3):
            assert np.array_equal(all_["position/value"][epoch], positions(epoch))
            assert np.array_equal(all_["s/value"][epoch], atoms(epoch)["s"])
            assert all_["box/edges/value"][epoch].tolist() == [[10, 0, 0], [epoch, 11, 0], [0, 0, 12]]


def test_hdf5_has_a_group_for_each_epoch(gas: str, tmp_path: Path) -> None:
    with h5py.File(write(gas, tmp_path, "hdf5")) as file:
        assert sorted(file) == ["Step#0", "Step#1", "Step#2"] and file.attrs["swale.key"] == "u64"
        for epoch in range(3):
            group = file[f"Step#{epoch}"]
            assert group.attrs["TimeValue"] == 0.25 * epoch and group.attrs["step"] == 10 * epoch
            assert np.array_equal(group["x"][:],
                                  atoms(epoch)["x"]) and np.array_equal(group["v[1]"][:], atoms(epoch)["v"][
                                      :, 1])
            assert group["x"].attrs["unit"] == "Å" and group["v[1]"].dtype == np.float32


def test_openpmd_has_its_records(gas: str, tmp_path: Path) -> None:
    with h5py.File(write(gas, tmp_path, "openpmd")) as file:
        assert file.attrs["openPMD"] == b"1.1.0" and sorted(file["data"], key=int) == ["0", "10", "20"]
        assert file["data/10"].attrs["timeUnitSI"] == 1e-12
        species = file["data/10/particles/particles"]
        assert np.array_equal(species["position/y"][:],
                              atoms(1)["y"]) and species["position/y"].attrs["unitSI"] == 1e-10
        assert species["velocity"].attrs["unitDimension"].tolist() == [1, 0, -1, 0, 0, 0, 0]
        assert species["velocity/x"].attrs["unitSI"] == 1e-10 / 1e-12
        assert np.array_equal(species["q"][:], atoms(1)["q"]) and species["q"].attrs["unitSI"] == 1.602e-19
        assert species["positionOffset/x"].attrs["shape"].tolist() == [COUNT]


def test_vtkhdf_has_points_and_steps(gas: str, tmp_path: Path) -> None:
    with h5py.File(write(gas, tmp_path, "vtkhdf")) as file:
        root = file["VTKHDF"]
        assert root.attrs["Type"] == b"PolyData" and root["Steps"].attrs["NSteps"] == 3
        assert root["Steps/PointOffsets"][:].tolist() == [0, COUNT, 2 * COUNT]
        assert np.array_equal(root["Points"][COUNT:2 * COUNT], positions(1))
        assert np.array_equal(root["PointData/s"][2 * COUNT:], atoms(2)["s"])
        assert root["Vertices/Offsets"].shape == (3 * (COUNT + 1),) and root["Lines/Offsets"].shape == (3,)


@pytest.mark.parametrize("kind", NAMES)
def test_records_are_chosen(gas: str, tmp_path: Path, kind: str) -> None:
    path = tmp_path / NAMES[kind]
    with swale.open(gas) as d:
        told: list[tuple[int, int]] = []
        rows = d.export(path, format=kind, epochs=[0, 2], where="key < 110", columns=["q"],
                        progress=lambda *both: told.append(both))
        assert rows == 20 and told[-1] == (20, 2 * COUNT)
    if kind == "extxyz":
        frames = ase.io.read(path, index=":")
        assert [len(frame) for frame in frames] == [10, 10] and "s" not in frames[0].arrays


@pytest.mark.parametrize("kind", NAMES)
def test_a_run_without_any_attributes(run: str, tmp_path: Path, kind: str) -> None:
    """Of positions nothing is known; HDF5 needs none."""
    with swale.open(run) as d:
        if kind == "hdf5":
            assert d.export(tmp_path / "a", format=kind) == len(d)
            return
        with pytest.raises(ValueError, match="no field of .* is known to be one: the attribute 'position'"):
            d.export(tmp_path / "a", format=kind)
    assert list(tmp_path.iterdir()) == []


def made(path: Path, frames: list[tuple[list[Any], dict[str, Any]]], key: str = "u64") -> str:
    schema = [("x", "f8"), ("y", "f8"), ("z", "f8")]
    with swale.create(path, schema=schema, key=key) as out:
        for step, (keys, attributes) in enumerate(frames):
            out.set_attributes(attributes, epoch=True)
            for name in keys:
                out.append(name, np.zeros(1, dtype=schema).tobytes())
            out.epoch_end(step)
    return str(path)


@pytest.mark.parametrize(("kind", "key", "frames", "says"), [
    ("h5md", "u64", [([1, 2], {}), ([1, 3], {})], "epoch 1 has others than epoch 0"),
    ("h5md", "u64", [([1], {}), ([1], {"box": [1, 1, 1]})], "one has a box"),
    ("lammpstrj", "u64", [([1], {"box": [[1, 1, 0], [0, 1, 0], [0, 0, 1]]})], "first edge is along x"),
    ("lammpstrj", "text", [(["a"], {})], "keys are text"),
    ("extxyz", "text", [(["a b"], {})], "without blanks"),
    ("extxyz", "u64", [([2**63], {})], "below 2\\*\\*63"),
    ("extxyz", "u64", [([1], {"box": "wide"})], "attribute 'box'"),
    ("extxyz", "bytes", [([b"a"], {})], "without blanks"),
    *[(kind, "text", [(["a"], {})], "keys are text") for kind in ("h5md", "hdf5", "openpmd", "vtkhdf")],
])
def test_what_a_format_cannot_hold_is_said(tmp_path: Path, kind: str, key: str, frames: Any,
                                           says: str) -> None:
    path = made(tmp_path / "run", frames, key)
    with swale.open(path) as d, pytest.raises(ValueError, match=says):
        d.export(tmp_path / "out", format=kind)
    assert [each.name for each in tmp_path.iterdir()] == ["run"], "half a file is left"


@pytest.mark.parametrize("kind", NAMES)
def test_an_empty_epoch_and_text_keys(tmp_path: Path, kind: str) -> None:
    path = made(tmp_path / "run", [([], {}), ([], {})])
    with swale.open(path) as d:
        assert d.export(tmp_path / "out", format=kind) == 0
    if kind == "extxyz":
        path = made(tmp_path / "texts", [(["b", "ä"], {})], "text")
        with swale.open(path) as d:
            d.export(tmp_path / "texts.extxyz")
        assert ase.io.read(tmp_path / "texts.extxyz").arrays["id"].tolist() == ["b", "ä"]


def test_the_command_and_a_missing_library(gas: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, _ = run_command("export", Path(gas), "last.lammpstrj", "--epoch", "-1", folder=tmp_path)
    assert out == f"last.lammpstrj: {COUNT} records\n"
    monkeypatch.setitem(__import__("sys").modules, "h5py", None)
    with swale.open(gas) as d, pytest.raises(ModuleNotFoundError, match="an export to h5md needs h5py: "
                                             "python -m pip install h5py"):
        d.export(tmp_path / "a.h5md")


def test_every_format_has_an_ending_or_needs_the_option() -> None:
    endings = {_export.format_of(f"a{ending}", None) for ending in _export._ENDINGS}
    assert endings == set(_export.FORMATS) - {"openpmd"}
