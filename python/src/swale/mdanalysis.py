"""Swale for MDAnalysis: ``import swale.mdanalysis`` adds the format SWALE, for trajectories and topologies.

>>> import MDAnalysis as mda
>>> import swale.mdanalysis
>>> universe = mda.Universe("run", format="SWALE", topology_format="SWALE")   # doctest: +SKIP
>>> universe = mda.Universe("system.psf", "run", format="SWALE")              # doctest: +SKIP

A frame is an epoch, its atoms are sorted by key: atom i has the i-th key of the first epoch, and every epoch
must have the same keys. Lengths are in Å and times in ps if the attributes tell the units, else as they are.
"""
from __future__ import annotations

import os
from typing import Any

from . import _lazy
from ._described import LENGTH, VELOCITY, Described
from ._directory import Directory
from ._frames import Frame, expect_position, frames

_base: Any = _lazy.load("MDAnalysis.coordinates.base", "swale.mdanalysis")
_topology: Any = _lazy.load("MDAnalysis.topology.base", "swale.mdanalysis")
_ANGSTROM, _PICOSECOND = 1e-10, 1e-12


def _open(path: str | os.PathLike[str]) -> Directory:
    """The directory at the path, which may name its swale.json."""
    folder, name = os.path.split(os.fspath(path))
    directory = Directory(folder or "." if name == "swale.json" else path)
    if not directory.epochs:
        raise ValueError(f"{directory.path} has no committed epoch yet: there is nothing to show")
    expect_position(directory, "MDAnalysis", Described(directory.schema, directory._described(0)))
    return directory


def _frame(directory: Directory, epoch: int, keys: Any = None, columns: list[str] | None = None) -> Frame:
    [found] = frames(directory, "MDAnalysis", epoch, keys, columns, None, None)
    return found


class SwaleReader(_base.ReaderBase):  # type: ignore[misc]
    """Reads a massive directory as a trajectory.

    Parameters
    ----------
    filename : str or path-like
        The directory, or its swale.json.
    keys : iterable or numpy.ndarray, optional
        Only these atoms, those of the topology.
    """

    format = ["SWALE"]
    units = {"time": "ps", "length": "Angstrom", "velocity": "Angstrom/ps"}

    def __init__(self, filename: str | os.PathLike[str], convert_units: bool = True, keys: Any = None,
                 **more: Any) -> None:
        super().__init__(filename, convert_units=convert_units, **more)
        self._directory = _open(filename)
        self._epochs = self._directory.epochs
        self._wanted = keys
        first = _frame(self._directory, 0, keys, [])
        self._keys = first.keys
        self.n_atoms = len(first)
        time = self._factor(first.described, "time", _PICOSECOND)
        if len(self._epochs) > 1 and self._epochs[1].time != self._epochs[0].time:
            self._ts_kwargs.setdefault("dt", time * (self._epochs[1].time - self._epochs[0].time))
        self.ts = self._Timestep(self.n_atoms, positions=True, velocities=bool(first.described.velocity),
                                 **self._ts_kwargs)
        self._show(first)

    @property
    def n_frames(self) -> int:
        """The epochs."""
        return len(self._epochs)

    def _factor(self, described: Described, name: str, unit: float) -> float:
        si = described.si(name) if self.convert_units else None
        return 1.0 if si is None else si.factor / unit

    def _read_frame(self, number: int) -> Any:
        if not 0 <= number < len(self._epochs):
            raise OSError(f"no epoch {number}: {self._directory.path} has {len(self._epochs)}")
        self._show(_frame(self._directory, number, self._wanted, []))
        return self.ts

    def _read_next_timestep(self, ts: Any = None) -> Any:
        if self.ts.frame + 1 >= len(self._epochs):
            raise EOFError
        return self._read_frame(self.ts.frame + 1)

    def _show(self, frame: Frame) -> None:
        """Makes the frame the current one."""
        np, ts, described = _lazy.numpy(), self.ts, frame.described
        if not np.array_equal(frame.keys, self._keys):
            raise ValueError(f"epoch {frame.epoch.epoch} of {self._directory.path} has other keys than "
                             f"epoch 0: choose "
                             "those that all epochs have (keys=)")
        for what, components, dimension in (("positions", described.position, LENGTH),
                                            ("velocities", described.velocity, VELOCITY)):
            if components:
                unit = _ANGSTROM ** dimension[0] * _PICOSECOND ** dimension[2]
                setattr(ts, what, frame.vectors(components) * self._factor(described, components[0].field,
                                                                           unit))
        box = described.box
        if box is not None:
            edges = np.array(box.edges) * self._factor(described, described.position[0].field, _ANGSTROM)
            lengths = _lazy.load("MDAnalysis.lib.mdamath", "swale.mdanalysis").triclinic_box(*edges)
            ts.dimensions = lengths
        ts.frame = frame.epoch.epoch
        ts.data["step"] = frame.step
        ts.data["time"] = frame.epoch.time * self._factor(described, "time", _PICOSECOND)

    def _reopen(self) -> None:
        self.ts.frame = -1

    def close(self) -> None:
        """Closes the directory."""
        self._directory.close()

    @staticmethod
    def parse_n_atoms(filename: str | os.PathLike[str], **_: Any) -> int:
        """The records of the first epoch."""
        with _open(filename) as directory:
            return directory.epochs[0].records


class SwaleParser(_topology.TopologyReaderBase):  # type: ignore[misc]
    """The atoms of the first epoch: their keys as ids, and their species as types."""

    format = ["SWALE"]

    def parse(self, **_: Any) -> Any:
        """The topology."""
        attributes: Any = _lazy.load("MDAnalysis.core.topologyattrs", "swale.mdanalysis")
        topology: Any = _lazy.load("MDAnalysis.core.topology", "swale.mdanalysis")
        np = _lazy.numpy()
        with _open(self.filename) as directory:
            species = Described(directory.schema, directory._described(0)).species
            frame = _frame(directory, 0, None, [species] if species else [])
        told: list[Any] = [attributes.Resids(np.array([1])), attributes.Resnums(np.array([1])),
                           attributes.Segids(np.array(["SYSTEM"], dtype=object))]
        if frame.keys.dtype.kind in "iu":
            told.append(attributes.Atomids(frame.keys))
        else:
            told.append(attributes.Atomnames(np.array([str(key) for key in frame.keys], dtype=object)))
        if species:
            names = frame.described.get("elements", dict, "names of kinds") or {}
            kinds = [str(names.get(str(kind), kind)) for kind in frame.arrays[species].tolist()]
            told.append(attributes.Atomtypes(np.array(kinds, dtype=object)))
        return topology.Topology(len(frame), 1, 1, attrs=told)
