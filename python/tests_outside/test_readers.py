"""Massive directories opened by MDAnalysis and OVITO themselves, without a file in between."""
from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from test_outside import ATOM, COUNT, EPOCHS, atoms, gas, positions  # noqa: F401: a fixture

import swale


def test_mdanalysis(gas: str) -> None:  # noqa: F811
    import MDAnalysis as mda

    import swale.mdanalysis  # noqa: F401: adds the format

    universe = mda.Universe(gas, format="SWALE", topology_format="SWALE")
    assert universe.atoms.ids.tolist() == list(range(1, COUNT + 1)) and set(universe.atoms.types) == {"1"}
    assert len(universe.trajectory) == EPOCHS and universe.trajectory.dt == pytest.approx(0.005)
    for epoch, step in enumerate(universe.trajectory):
        assert np.allclose(universe.atoms.positions, positions(epoch), atol=1e-5)
        velocity = np.stack([atoms(epoch)[name] for name in ("vx", "vy", "vz")], axis=1)
        assert np.allclose(universe.atoms.velocities, velocity * 1000, rtol=1e-6), "of Å/fs, in Å/ps"
        assert np.allclose(universe.dimensions, [10, 11, 12, 90, 90, 90])
        assert step.time == pytest.approx(0.005 * epoch) and step.data["step"] == 10 * epoch
    universe.trajectory[2]
    assert np.allclose(universe.atoms.positions, positions(2), atol=1e-5)
    copy = pickle.loads(pickle.dumps(universe))
    assert np.allclose(copy.atoms.positions, positions(2), atol=1e-5)
    other = mda.Universe.empty(2, trajectory=True)
    other.load_new(os.path.join(gas, "swale.json"), format="SWALE", keys=[3, 1], convert_units=False)
    assert np.allclose(other.atoms.positions, positions(0)[[0, 2]], atol=1e-5), "sorted by key"
    assert other.trajectory[1].time == 5.0


def test_mdanalysis_is_told_what_cannot_be(tmp_path: Path) -> None:
    import MDAnalysis as mda

    import swale.mdanalysis  # noqa: F401

    with swale.create(tmp_path / "run", schema=ATOM, key="u64") as out:
        for epoch in range(2):
            out.append_many(np.arange(3, dtype="u8") + epoch, atoms(0)[:3])
            out.epoch_end(epoch)
    universe = mda.Universe(tmp_path / "run", format="SWALE", topology_format="SWALE")
    with pytest.raises(ValueError, match="epoch 1 of .* has other keys than epoch 0"):
        universe.trajectory[1]
    swale.create(tmp_path / "empty", key="u64").close()
    with pytest.raises(ValueError, match="no committed epoch"):
        mda.Universe(tmp_path / "empty", format="SWALE", topology_format="SWALE")


def test_ovito_finds_the_reader_by_its_entry_point(gas: str, tmp_path: Path) -> None:  # noqa: F811
    import ovito.io as ovito

    pipeline = ovito.import_file(os.path.join(gas, "swale.json"))
    assert pipeline.num_frames == EPOCHS
    for epoch in range(EPOCHS):
        data = pipeline.compute(epoch)
        assert data.particles["Particle Identifier"][...].tolist() == list(range(1, COUNT + 1))
        assert np.array_equal(data.particles["Position"][...], positions(epoch))
        assert np.allclose(data.particles["Velocity"][:, 0], atoms(epoch)["vx"])
        assert np.array_equal(data.particles["q"][...], atoms(epoch)["q"])
        assert np.allclose(data.cell[...][:, :3], np.diag([10, 11, 12])) and all(data.cell.pbc)
        assert data.attributes["Timestep"] == 10 * epoch and data.attributes["Time"] == 5.0 * epoch
    (tmp_path / "swale.json").write_text("{}")
    with pytest.raises(RuntimeError):
        ovito.import_file(str(tmp_path / "swale.json"))
