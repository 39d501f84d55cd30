"""Files of frames, opened by MDAnalysis, vtk, openPMD-api and OVITO, and tables as xarray's and Dask's: many
packages, so these tests belong to the long run (scripts/test-python-outside.sh installs them)."""
from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import swale

COUNT, EPOCHS = 30, 4
ATOM = np.dtype([("x", "f8"), ("y", "f8"), ("z", "f8"), ("vx", "f4"), ("vy", "f4"), ("vz", "f4"),
                 ("type", "i4"), ("q", "f8")])


def atoms(epoch: int) -> np.ndarray:
    random = np.random.default_rng(epoch)
    rows = np.zeros(COUNT, dtype=ATOM)
    for name in ATOM.names:
        rows[name] = random.uniform(1, 9, COUNT) if name != "type" else 1
    return rows


def positions(epoch: int) -> np.ndarray:
    return np.stack([atoms(epoch)[axis] for axis in "xyz"], axis=1)


@pytest.fixture(scope="module")
def gas(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("gas") / "run"
    with swale.create(path, schema=ATOM, key="u64") as out:
        out.set_attributes({"units": "real", "box": [10, 11, 12], "periodic": True})
        for epoch in range(EPOCHS):
            out.append_many(np.arange(COUNT, dtype="u8")[::-1] + 1, atoms(epoch)[::-1])
            out.epoch_end(10 * epoch, 5.0 * epoch)
    return str(path)


def write(gas: str, path: Path, kind: str) -> str:
    with swale.open(gas) as d:
        assert d.export(path, format=kind) == COUNT * EPOCHS
    return str(path)


@pytest.mark.parametrize(("kind", "form"), [("lammpstrj", "LAMMPSDUMP"), ("h5md", "H5MD")])
def test_mdanalysis(gas: str, tmp_path: Path, kind: str, form: str) -> None:
    import MDAnalysis as mda

    universe = mda.Universe.empty(COUNT, trajectory=True)
    more = {"convert_units": False} if form == "H5MD" else {}
    universe.load_new(write(gas, tmp_path / f"run.{kind}", kind), format=form, **more)
    assert len(universe.trajectory) == EPOCHS
    for epoch, _ in enumerate(universe.trajectory):
        assert np.allclose(universe.atoms.positions, positions(epoch), atol=1e-5)
        assert np.allclose(universe.dimensions, [10, 11, 12, 90, 90, 90])


def test_vtk(gas: str, tmp_path: Path) -> None:
    import vtk
    from vtk.util.numpy_support import vtk_to_numpy

    reader = vtk.vtkHDFReader()
    reader.SetFileName(write(gas, tmp_path / "run.vtkhdf", "vtkhdf"))
    reader.UpdateInformation()
    assert reader.GetNumberOfSteps() == EPOCHS
    for epoch in range(EPOCHS):
        reader.SetStep(epoch)
        reader.Update()
        shape = reader.GetOutput()
        assert np.array_equal(vtk_to_numpy(shape.GetPoints().GetData()), positions(epoch))
        data = shape.GetPointData()
        assert np.array_equal(vtk_to_numpy(data.GetArray("q")), atoms(epoch)["q"])
        assert vtk_to_numpy(data.GetArray("id")).tolist() == list(range(1, COUNT + 1))
        assert shape.GetNumberOfVerts() == COUNT


def test_openpmd_api(gas: str, tmp_path: Path) -> None:
    import openpmd_api as io

    series = io.Series(write(gas, tmp_path / "run.h5", "openpmd"), io.Access.read_only)
    assert sorted(series.iterations) == [0, 10, 20, 30]
    for epoch in range(EPOCHS):
        iteration = series.iterations[10 * epoch]
        assert iteration.time == 5.0 * epoch and iteration.time_unit_SI == 1e-15
        species = iteration.particles["particles"]
        y = species["position"]["y"]
        numbers = y.load_chunk()
        charge = species["q"][io.Record_Component.SCALAR].load_chunk()
        offset = species["positionOffset"]["x"].load_chunk()
        series.flush()
        assert y.unit_SI == 1e-10 and np.array_equal(numbers, atoms(epoch)["y"])
        assert np.array_equal(charge, atoms(epoch)["q"]) and (offset == 0).all() and len(offset) == COUNT
    series.close()


@pytest.mark.parametrize("kind", ["extxyz", "lammpstrj"])
def test_ovito(gas: str, tmp_path: Path, kind: str) -> None:
    import ovito.io as ovito

    pipeline = ovito.import_file(write(gas, tmp_path / f"run.{kind}", kind))
    assert pipeline.num_frames == EPOCHS
    for epoch in range(EPOCHS):
        data = pipeline.compute(epoch)
        order = np.argsort(data.particles["Particle Identifier"])
        # Its parser is not exact in the last bit.
        assert np.allclose(data.particles["Position"][...][order], positions(epoch), rtol=1e-14, atol=0)
        assert np.allclose(data.cell[...][:, :3], np.diag([10, 11, 12])) and all(data.cell.pbc)


def test_xarray(gas: str) -> None:
    import xarray

    with swale.open(gas) as d:
        data = d.get_many([1, 3, 2]).to_xarray()
        assert isinstance(data, xarray.Dataset) and data.sizes == {"key": 3, "epoch": EPOCHS}
        assert data["key"].values.tolist() == [1, 2, 3] and data["step"].values.tolist() == [0, 10, 20, 30]
        for epoch in range(EPOCHS):
            assert np.array_equal(data["x"].sel(epoch=epoch).values, atoms(epoch)["x"][:3])
        assert data["type"].dtype == np.int32
        some = d.scan(where="x > 5", columns=["key", "epoch", "x", "type"]).to_xarray()
        assert np.isnan(some["x"].values).any() and some["type"].dtype == np.float64
        assert np.nansum(some["x"].values) == pytest.approx(d.scan(where="x > 5")["x"].sum())
        with pytest.raises(ValueError, match="needs the column 'epoch'"):
            d.scan(columns=["key", "x"]).to_xarray()


def test_xarrays_engine(gas: str, tmp_path: Path) -> None:
    """By its name, and without one, as xarray asks each engine whether it can open a path."""
    import xarray

    with swale.open(gas) as d, xarray.open_dataset(gas, engine="swale", keys=[1, 3, 99]) as data:
        assert data.sizes == {"key": 2, "epoch": EPOCHS} and data.key.values.tolist() == [1, 3]
        assert data.identical(d.get_many([1, 3]).to_xarray().assign_attrs(units="real", periodic=True))
        assert data.x.sel(key=3).values.tolist() == d[3]["x"].tolist()
    with xarray.open_dataset(gas, epochs=[1, 2], columns="x", where="x > 5") as some:
        assert set(some.data_vars) == {"x"} and set(some.coords) == {"key", "epoch", "step", "time"}
        assert some.epoch.values.tolist() == [1, 2] and np.isnan(some.x.values).any()
        assert np.nansum(some.x.values) == pytest.approx(sum(
            atoms(epoch)["x"][atoms(epoch)["x"] > 5].sum() for epoch in (1, 2)))
    with xarray.open_dataset(gas, engine="swale", drop_variables=["x", "time"]) as less:
        assert "x" not in less and "time" not in less.coords and "y" in less
    with pytest.raises(swale.NotFoundError):
        xarray.open_dataset(tmp_path / "nowhere", engine="swale")
    with pytest.raises(ValueError, match="engine"):
        xarray.open_dataset(tmp_path)  # no directory of ours: no engine takes it
    with pytest.raises(swale.InvalidArgumentError, match="enregy"):
        xarray.open_dataset(gas, engine="swale", columns=["enregy"])


def test_xarray_refuses_several_records_of_a_key(tmp_path: Path) -> None:
    with swale.create(tmp_path / "d", schema=[("v", "f4", 3)], key="text", units={"v": "m"}) as out:
        for name in ("a", "b"):
            out.append(name, np.ones(1, dtype=[("v", "f4", 3)]).tobytes())
        out.epoch_end(0)
        for name in ("a", "a"):
            out.append(name, np.ones(1, dtype=[("v", "f4", 3)]).tobytes())
        out.epoch_end(1)
    with swale.open(tmp_path / "d") as d:
        first = d.scan(epochs=0).to_xarray()
        assert first["v"].dims == ("key", "epoch", "v_element") and first["v"].attrs["units"] == "m"
        assert first["key"].values.tolist() == ["a", "b"]
        with pytest.raises(ValueError, match="some have several"):
            d.scan().to_xarray()


def test_dask(gas: str) -> None:
    with swale.open(gas) as d:
        frame = d.to_dask(columns=["epoch", "key", "q"], where="q > 2")
        assert frame.npartitions == EPOCHS
        expected = d.scan(where="q > 2").to_pandas()
        assert frame["q"].sum().compute() == pytest.approx(expected["q"].sum()) and len(frame) == len(
            expected)
        assert frame.compute(scheduler="synchronous")["key"].tolist() == expected["key"].tolist()
        assert d.to_dask(epochs=[1]).compute()["x"].tolist() == d.scan(epochs=1)["x"].tolist()
        assert d.scan().to_dask(npartitions=3)["x"].mean().compute() == pytest.approx(d.scan()["x"].mean())
        with pytest.raises(swale.InvalidArgumentError):
            d.to_dask(where="q >")
