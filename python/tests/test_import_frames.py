"""LAMMPS dumps, H5Part and openPMD as massive directories: what export wrote comes back, others' files are
read.
"""
from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
from test_commands import run as command

import swale

ATOM = np.dtype([("x", "f8"), ("y", "f8"), ("z", "f8"), ("vx", "f8"), ("vy", "f8"), ("vz", "f8"),
                 ("type", "i8"), ("q", "f8")])
ODD = np.dtype([("x", "f8"), ("y", "f8"), ("step", "i4"), ("id", "u2"), ("w", "f4", 4), ("key", "i8")])


def make(path: Path, dtype: np.dtype, epochs: int = 3, count: int = 20) -> swale.Directory:
    with swale.create(path, schema=dtype, key="u64") as out:
        out.set_attributes({"units": "metal", "periodic": [True, False, True]})
        for epoch in range(epochs):
            random = np.random.default_rng(epoch)
            rows = np.zeros(count, dtype=dtype)
            for name in dtype.names:
                kind = dtype[name].base.kind
                shape = rows[name].shape
                rows[name] = random.integers(1, 9, shape) if kind in "iu" else random.normal(size=shape)
            out.set_attributes({"box": [[9.0, 0.0, 0.0], [1.0, 8.0, 0.0], [-0.5, 0.25, 7.0]]}, epoch=True)
            out.append_many(np.arange(count, dtype="u8")[::-1] * 3, rows)
            out.epoch_end(10 * epoch, 0.5 * epoch)
    return swale.open(path)


def expect_equal(first: swale.Directory, second: swale.Directory, names: tuple[str, ...],
                 times: bool = True) -> None:
    assert [epoch.step for epoch in first.epochs] == [epoch.step for epoch in second.epochs]
    assert not times or [epoch.time for epoch in first.epochs] == [epoch.time for epoch in second.epochs]
    assert first.key_type == second.key_type and len(first) == len(second)
    for key in first.keys():
        for name in names:
            assert first[key][name].tobytes() == second[key][name].tobytes(), (key, name)


def test_a_lammps_dump_comes_back(tmp_path: Path) -> None:
    with make(tmp_path / "run", ATOM) as d:
        d.export(tmp_path / "run.lammpstrj")
        made = swale.import_file(tmp_path / "run.lammpstrj", tmp_path / "again")
        assert made == swale.Imported(3, 60, 0)
        with swale.open(tmp_path / "again") as again:
            expect_equal(d, again, ATOM.names, times=False)  # a dump has no times
            told = again._described(1)
            assert np.allclose(told["box"], d._described(1)["box"]) and told["periodic"] == [True, False,
                                                                                             True]


def test_h5part_comes_back_with_all_that_it_was(tmp_path: Path) -> None:
    """Also fields that are called like our columns, arrays, and attributes."""
    with make(tmp_path / "run", ODD) as d:
        d.export(tmp_path / "run.hdf5")
        swale.import_file(tmp_path / "run.hdf5", tmp_path / "again")
        with swale.open(tmp_path / "again") as again:
            assert str(again.schema) == str(d.schema)
            expect_equal(d, again, ODD.names)
            assert again._described(2) == d._described(2)


def test_openpmd_comes_back_as_vectors(tmp_path: Path) -> None:
    with make(tmp_path / "run", ATOM) as d:
        d.export(tmp_path / "run.h5", format="openpmd")
        swale.import_file(tmp_path / "run.h5", tmp_path / "again")
        with swale.open(tmp_path / "again") as again:
            expect_equal(d, again, ("type", "q"))
            assert again.attributes["position"] == "position" and again.attributes["time"] == {"si": 1e-12}
            assert again.attributes["fields"]["position"] == {"si": 1e-10, "dimension": [1, 0, 0, 0, 0, 0, 0]}
            for key in d.keys():
                assert np.array_equal(again[key]["position"],
                                      np.stack([d[key][axis] for axis in "xyz"], axis=1))


def test_constants_and_offsets_of_openpmd(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.attrs["openPMD"], file.attrs["particlesPath"] = "1.1.0", np.bytes_(b"particles/")
        species = file.create_group("data/7/particles/e")
        for axis, numbers in (("x", [1.0, 2.0]), ("y", [3.0, 4.0])):
            species[f"position/{axis}"] = numbers
            species[f"position/{axis}"].attrs["unitSI"] = 0.5
            constant = species.create_group(f"positionOffset/{axis}")
            constant.attrs["value"], constant.attrs["shape"], constant.attrs["unitSI"] = 10, [2], 1.0
        species["id"] = np.array([5, 6], "u8")
        charge = species.create_group("charge")
        charge.attrs["value"], charge.attrs["shape"] = -1.0, [2]
    swale.import_file(tmp_path / "a.h5", tmp_path / "run")
    with swale.open(tmp_path / "run") as d:
        assert d[5]["position"].tolist() == [[21.0, 23.0]]
        assert d[6]["charge"].tolist() == [-1.0] and d[6]["step"] == [7]


def frame(step: int, *atoms: str, names: str = "id type x element", more: str = "") -> str:
    return (f"{more}ITEM: TIMESTEP\n{step}\nITEM: NUMBER OF ATOMS\n{len(atoms)}\n"
            f"ITEM: BOX BOUNDS pp ff pp\n0 4\n-1 1\n0 8\nITEM: ATOMS {names}\n"
            + "".join(f"{atom}\n" for atom in atoms))


def test_dumps_of_others(tmp_path: Path) -> None:
    """Units, times, names of elements, and a frame without an atom."""
    text = frame(0, "2 1 0.5 Cu", "1 1 1e-3 Cu",
                 more="ITEM: UNITS\nreal\nITEM: TIME\n0.25\n") + frame(10) + frame(20, "7 2 3 H")
    (tmp_path / "a.dump").write_text(text)
    out, _ = command("import", tmp_path / "a.dump", tmp_path / "run", "--extrema", "x")
    assert out.endswith("3 records in 3 epochs\n")
    with swale.open(tmp_path / "run") as d:
        assert [tuple(epoch[1:]) for epoch in d.epochs] == [(0, 0.25, 2), (10, 0.0, 0), (20, 0.0, 1)]
        assert str(d.schema) == "type:i8;x:f8" and d.get(1, epoch=0)["x"].tolist() == [1e-3]
        assert d._described(0) == {"units": "real", "periodic": [True, False, True], "origin": [0, -1, 0],
                                   "box": [4, 2, 8]}


def test_it_resumes_by_epoch(tmp_path: Path) -> None:
    whole = [frame(step, f"1 1 {step} X", f"2 1 {step} X") for step in range(4)]
    (tmp_path / "a.dump").write_text("".join(whole[:2]) + whole[2][:-5])
    with pytest.raises(ValueError, match="a.dump: line 33: (the file ends inside a frame|expected 4 "
                       "numbers)"):
        swale.import_file(tmp_path / "a.dump", tmp_path / "run")
    (tmp_path / "a.dump").write_text("".join(whole))
    assert swale.import_file(tmp_path / "a.dump", tmp_path / "run", resume=True) == swale.Imported(2, 4, 2)
    with swale.open(tmp_path / "run") as d:
        assert d[2]["x"].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(("text", "message"), [
    ("hello\n", "line 1: expected ITEM: TIMESTEP"), ("", "no frame"),
    (frame(0, "1 1 x Cu"), "expected a number, got 'x'"),
    (frame(0, "1 1.5 2 Cu"), "expected a number, got '1.5'"), (frame(0, "1 2"), "expected 4 numbers, got 2"),
    (frame(0, "1 1 1 X") + frame(1, "1 1", names="id type"), "frame 1: column 'x' is missing"),
    (frame(0, "1 1 2 X").replace("ITEM: TIMESTEP\n0\n", ""), "no ITEM: TIMESTEP")])
def test_wrong_dumps_say_where(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "a.dump").write_text(text)
    with pytest.raises(ValueError, match=message):
        swale.import_file(tmp_path / "a.dump", tmp_path / "run")


def test_wrong_hdf5_says_what_was_expected(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = [1.0]
    with pytest.raises(ValueError, match="neither openPMD, H5Part nor VPIC"):
        swale.import_file(tmp_path / "a.h5", tmp_path / "run")
    with h5py.File(tmp_path / "b.h5", "w") as file:
        file.attrs["openPMD"] = "1.1.0"
        file["data/0/particles/e/id"], file["data/0/particles/p/id"] = [1], [1]
    with pytest.raises(ValueError, match="one species of particles, found e, p"):
        swale.import_file(tmp_path / "b.h5", tmp_path / "run")


def vpic_step(folder: Path, species: str, step: int, count: int, tags: bool = True) -> dict[str, np.ndarray]:
    """A file as VPIC's HDF5 dump writes it: places in a cell, the cell's number; tags if they are traced.
    """
    random = np.random.default_rng(step)
    columns = {name: random.normal(size=count).astype("f4")
               for name in ("dX", "dY", "dZ", "ux", "uy", "uz", "q")}
    columns["i"] = random.integers(0, 999, count, dtype="i4")
    if tags:
        columns["tag"] = random.permutation(count).astype("u8") + 7
    (folder / f"T.{step}").mkdir(parents=True, exist_ok=True)
    with h5py.File(folder / f"T.{step}" / f"{species}_{step}.h5", "w") as file:
        for name, column in columns.items():
            file[f"Timestep_{step}/{name}"] = column
    return columns


def test_folders_of_vpic(tmp_path: Path) -> None:
    folder = tmp_path / "particle_hdf5"
    written = {step: vpic_step(folder, "electron", step, 40) for step in (0, 100, 20)}
    vpic_step(folder, "ion", 0, 5)
    (folder / "T.0" / "grid_metadata_electron_0.h5").write_bytes(b"not read")
    out, _ = command("import", folder, tmp_path / "run", "--species", "electron")
    assert "120 records in 3 epochs" in out
    with swale.open(tmp_path / "run") as d:
        assert [epoch.step for epoch in d.epochs] == [0, 20, 100] and d.key_type == "u64"
        assert d.schema["i"].type == "i4" and d.schema["dX"].type == "f4" and "tag" not in d.schema
        for epoch in d.epochs:
            columns = written[epoch.step or 0]
            for row, tag in enumerate(columns["tag"].tolist()):
                found = d.get(tag, epoch=epoch.epoch)
                assert all(found[name][0] == columns[name][row] for name in d.schema)
    vpic_step(folder, "electron", 120, 40)
    made = swale.import_file(folder, tmp_path / "run", species="electron", resume=True)
    assert made == swale.Imported(1, 40, 3)


def test_particles_of_vpic_without_names(tmp_path: Path) -> None:
    """Their place in the file is a key only if somebody says so."""
    columns = vpic_step(tmp_path / "hdf5", "ion", 4, 10, tags=False)
    file = tmp_path / "hdf5" / "T.4" / "ion_4.h5"
    _, err = command("import", file, tmp_path / "run", expect=2)
    assert "no column that tells particles apart" in err and "--key row" in err
    for source, name in ((file, "a"), (tmp_path / "hdf5", "b")):
        swale.import_file(source, tmp_path / name, key="row")
        with swale.open(tmp_path / name) as d:
            assert d[3]["ux"][0] == columns["ux"][3] and d.epochs[0].step == 4 and "row" not in d.schema


def test_wrong_folders_of_vpic_say_what_to_do(tmp_path: Path) -> None:
    folder = tmp_path / "hdf5"
    vpic_step(folder, "electron", 0, 4)
    vpic_step(folder, "ion", 0, 4)
    for words, says in ((["--species", "muon"], "no species 'muon'; choose one of electron, ion"),
                        ([], "several species; choose one of electron, ion (--species)")):
        _, err = command("import", folder, tmp_path / "run", *words, expect=2)
        assert says in err
    (tmp_path / "empty").mkdir()
    assert "expected VPIC's folders T.STEP" in command("import", tmp_path / "empty", tmp_path / "run",
                                                       expect=2)[1]
    file = folder / "T.0" / "ion_0.h5"
    assert "a species is chosen in a folder" in command("import", file, tmp_path / "run", "--species", "ion",
                                                        expect=2)[1]
    (folder / "T.9").mkdir()
    assert "ion_9.h5" in command("import", folder, tmp_path / "run", "--species", "ion", expect=3)[1]
    with h5py.File(file, "a") as odd:
        odd["Timestep_0/short"] = np.zeros(3)
    assert "different lengths" in command("import", file, tmp_path / "more", expect=2)[1]
