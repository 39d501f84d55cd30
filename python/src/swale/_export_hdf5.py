"""Frames as HDF5: H5Part's layout (ParaView, VisIt), H5MD (MDAnalysis), openPMD (openPMD-viewer), VTKHDF
(ParaView, vtk).
"""
from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from . import __version__, _lazy
from ._described import LENGTH, VELOCITY, Component
from ._frames import Frame, flat

_H5MD_UNITS = ("Angstrom", "nm", "pm", "fm", "fs", "ps", "ns", "s")
_CHUNK_BYTES = 1 << 20


class _Storage:
    """A file for h5py. When the disk is full HDF5 cannot close its file, and ends the process: so here a
    write never fails. The first failure is kept, what comes after it goes nowhere, and `_file` raises it.
    """

    def __init__(self, path: str) -> None:
        self._file = open(path, "r+b", buffering=0)
        self.failure: OSError | None = None
        file = self._file
        self.read, self.seek, self.tell, self.close = file.read, file.seek, file.tell, file.close

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        done = 0
        while done < len(view) and (count := self._file.readinto(view[done:])):
            done += count
        view[done:] = bytes(len(view) - done)
        return len(view)

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self._try(lambda: self._write(view))
        return len(view)

    def _write(self, view: memoryview) -> None:
        while len(view):
            view = view[self._file.write(view) or 0:]

    def truncate(self, size: int) -> int:
        self._try(lambda: self._file.truncate(size))
        return size

    def flush(self) -> None:
        pass

    def _try(self, write: Callable[[], object]) -> None:
        if self.failure is None:
            try:
                write()
            except OSError as failure:
                self.failure = failure

    def expect_good(self) -> None:
        if self.failure is not None:
            raise self.failure


@contextlib.contextmanager
def _file(path: str, kind: str, frames: Iterable[Frame]) -> Iterator[tuple[Any, Iterator[Frame]]]:
    """The HDF5 file, and the frames, which end when a write has failed."""
    h5py = _lazy.load("h5py", f"an export to {kind}")
    storage = _Storage(path)

    def while_good() -> Iterator[Frame]:
        for frame in frames:
            yield frame
            storage.expect_good()

    with contextlib.closing(storage):
        try:
            with h5py.File(storage, "w", libver="v110") as file:
                yield file, while_good()
        finally:
            storage.expect_good()


def _ids(kind: str, frame: Frame) -> Any:
    if frame.keys.dtype.kind not in "iu":
        raise ValueError(f"{kind} holds particles with integers as ids, and the keys are text: export to "
                         f"parquet")
    return frame.keys


# ---- H5Part ----


def write_hdf5(path: str, frames: Iterable[Frame], schema: str, key_type: str) -> int:
    """A group ``Step#N`` for each epoch, with a dataset for each number of the records, and the key as
    ``id``.
    """
    rows = 0
    with _file(path, "hdf5", frames) as (file, frames):
        file.attrs["swale.schema"], file.attrs["swale.key"] = schema, key_type
        for number, frame in enumerate(frames):
            group = file.create_group(f"Step#{number}")
            group.attrs["TimeValue"], group.attrs["step"] = frame.epoch.time, frame.step
            group.attrs["epoch"], group.attrs["attributes"] = frame.epoch.epoch, json.dumps(
                frame.described.document)
            group.create_dataset("id", data=_ids("hdf5", frame))
            for name, array in frame.arrays.items():
                unit = frame.described.unit(name)
                for shown, part in flat(name, frame.schema[name], array):
                    shown = shown if shown not in group else f"[{shown}]"
                    dataset = group.create_dataset(shown.replace("/", "_"), data=part)
                    if unit:
                        dataset.attrs["unit"] = unit
            rows += len(frame)
    return rows


# ---- H5MD ----


def write_h5md(path: str, frames: Iterable[Frame]) -> int:
    """Version 1.1: all frames have the same particles, in the order of their keys."""
    np = _lazy.numpy()
    rows = 0
    first: Any = None
    with _file(path, "h5md", frames) as (file, frames):
        _h5md_head(file)
        particles = file.create_group("particles/all")
        for number, frame in enumerate(frames):
            ids = _ids("h5md", frame)
            if first is None:
                first = frame
                _h5md_begin(np, particles, frame)
            elif not np.array_equal(ids, first.keys):
                raise ValueError(f"h5md holds the same particles in each frame, and epoch "
                                 f"{frame.epoch.epoch} has others than "
                                 f"epoch {first.epoch.epoch}: name keys that all epochs have, or take extxyz")
            if (frame.described.box is None) != (first.described.box is None):
                raise ValueError(f"h5md: epochs {first.epoch.epoch} and {frame.epoch.epoch}: one has a box, "
                                 f"one has none")
            for name, data in _h5md_elements(np, frame).items():
                group = particles[name]
                for member, value in (("step", frame.step), ("time", frame.epoch.time), ("value", data)):
                    group[member].resize(number + 1, axis=0)
                    group[member][number] = value
            rows += len(frame)
        if first is None:
            particles.create_group("box").attrs["dimension"] = 3
    return rows


def _h5md_head(file: Any) -> None:
    head = file.create_group("h5md")
    head.attrs["version"] = [1, 1]
    head.create_group("author").attrs["name"] = "swale"
    creator = head.create_group("creator")
    creator.attrs["name"], creator.attrs["version"] = "swale", __version__


def _h5md_elements(np: Any, frame: Frame) -> dict[str, Any]:
    """The time-dependent elements of the particles, by name."""
    elements = {"position": frame.vectors(frame.described.position)}
    if frame.described.velocity:
        elements["velocity"] = frame.vectors(frame.described.velocity)
    for name, array in frame.others():
        elements[_free(name, {*elements, "box", "id"})] = array
    if frame.described.box is not None:
        elements["box/edges"] = np.array(frame.described.box.edges)
    return elements


def _h5md_begin(np: Any, particles: Any, frame: Frame) -> None:
    box = particles.create_group("box")
    box.attrs["dimension"] = 3
    periodic = frame.described.periodic if frame.described.box is not None else (False,) * 3
    box.attrs["boundary"] = np.array([b"periodic" if each else b"none" for each in periodic])
    particles.create_dataset("id", data=frame.keys)
    roles = {"position": frame.described.position, "velocity": frame.described.velocity}
    for name, data in _h5md_elements(np, frame).items():
        group = particles.create_group(name)
        group.create_dataset("step", shape=(0,), maxshape=(None,), dtype="i8")
        time = group.create_dataset("time", shape=(0,), maxshape=(None,), dtype="f8")
        value = group.create_dataset("value", shape=(0, *data.shape), maxshape=(None, *data.shape),
                                     dtype=data.dtype, chunks=(1, *data.shape) if data.size else None)
        components = roles.get(name, frame.described.position if name == "box/edges" else ())
        unit = frame.described.unit(components[0].field if components else name)
        if components:
            _h5md_unit(value, unit)
        elif unit:
            value.attrs["unit"] = unit
        _h5md_unit(time, frame.described.unit("time"))


def _h5md_unit(dataset: Any, unit: str) -> None:
    """The unit as H5MD spells it. MDAnalysis refuses files with units of length or time that it does not
    know.
    """
    parts = unit.replace("Å", "Angstrom").replace("µ", "u").split("/")
    if all(part in _H5MD_UNITS for part in parts):
        dataset.attrs["unit"] = " ".join([parts[0], *(f"{part}-1" for part in parts[1:])])
    elif unit:
        dataset.attrs["swale.unit"] = unit


# ---- openPMD ----


def write_openpmd(path: str, frames: Iterable[Frame]) -> int:
    """openPMD 1.1.0, group-based; one species, ``particles``. Numbers that nobody described in SI units have
    factor 1.
    """
    np = _lazy.numpy()
    rows = 0
    seen: dict[int, int] = {}
    with _file(path, "openpmd", frames) as (file, frames):
        _attributes(np, file, openPMD="1.1.0", openPMDextension=np.uint32(0), basePath="/data/%T/",
                    particlesPath="particles/", iterationEncoding="groupBased", iterationFormat="/data/%T/",
                    software="swale", softwareVersion=__version__)
        file.create_group("data")
        for frame in frames:
            if frame.step in seen or frame.step < 0:
                raise ValueError(f"openpmd holds one iteration for each step from 0, and epoch "
                                 f"{frame.epoch.epoch} has step "
                                 f"{frame.step}" + (f", as epoch {seen[frame.step]} has"
                                                    if frame.step in seen else ""))
            seen[frame.step] = frame.epoch.epoch
            iteration = file.create_group(f"data/{frame.step}")
            second = frame.described.si("time")
            _attributes(np, iteration, time=frame.epoch.time, dt=0.0, timeUnitSI=second.factor if second
                        else 1.0)
            _openpmd_species(np, iteration.create_group("particles/particles"), frame)
            rows += len(frame)
    return rows


def _openpmd_species(np: Any, group: Any, frame: Frame) -> None:
    axes = "xyz"[:len(frame.described.position)]
    names = {"position", "positionOffset", "id"}
    _openpmd_record(np, group, "position", frame, dict(zip(axes, frame.described.position)), LENGTH)
    offset = group.create_group("positionOffset")
    _attributes(np, offset, unitDimension=list(map(float, LENGTH)), timeOffset=np.float32(0))
    factor = frame.described.si(frame.described.position[0].field)
    for axis in axes:  # constant components have no dataset
        _attributes(np, offset.create_group(axis), value=0.0, shape=np.array([len(frame)], "u8"),
                    unitSI=factor.factor if factor else 1.0)
    identity = group.create_dataset("id", data=_ids("openpmd", frame))
    _attributes(np, identity, unitDimension=[0.0] * 7, unitSI=1.0, timeOffset=np.float32(0))
    if frame.described.velocity:
        names.add("velocity")
        parts = dict(zip("xyz", frame.described.velocity))
        _openpmd_record(np, group, "velocity", frame, parts, VELOCITY)
    for name, _ in frame.others():
        field = frame.schema[name]
        shown = _free("".join(letter if letter.isalnum() or letter == "_" else "_" for letter in name), names)
        names.add(shown)
        if field.count == 1:
            dataset = group.create_dataset(shown, data=frame.arrays[name])
            _openpmd_units(np, dataset, dataset, frame, name, (0,) * 7)
            continue
        many = {"xyz"[i] if field.count <= 3 else str(i): Component(name, i) for i in range(field.count)}
        _openpmd_record(np, group, shown, frame, many, (0,) * 7)


def _openpmd_record(np: Any, group: Any, name: str, frame: Frame, parts: dict[str, Component],
                    dimension: tuple[float, ...]) -> None:
    record = group.create_group(name)
    for axis, component in parts.items():
        dataset = record.create_dataset(axis, data=frame.numbers(component))
        _openpmd_units(np, record, dataset, frame, component.field, dimension)


def _openpmd_units(np: Any, record: Any, dataset: Any, frame: Frame, field: str,
                   dimension: tuple[float, ...]) -> None:
    known = frame.described.si(field)
    _attributes(np, record, unitDimension=list(map(float, known.dimension if known else dimension)),
                timeOffset=np.float32(0))
    _attributes(np, dataset, unitSI=known.factor if known else 1.0)


def _attributes(np: Any, group: Any, **values: Any) -> None:
    for name, value in values.items():
        # Readers expect text of a fixed length.
        group.attrs[name] = np.bytes_(value.encode()) if isinstance(value, str) else value


def _free(name: str, taken: set[str]) -> str:
    name = name.replace("/", "_")
    while name in taken:
        name += "_"
    return name


# ---- VTKHDF ----


def write_vtkhdf(path: str, frames: Iterable[Frame]) -> int:
    """VTKHDF 2.0: PolyData with a vertex for each record, over time. All frames have the same fields."""
    np = _lazy.numpy()
    rows = 0
    with _file(path, "vtkhdf", frames) as (file, frames):
        root = file.create_group("VTKHDF", track_order=True)
        _attributes(np, root, Version=np.array([2, 0], "i8"), Type="PolyData")
        steps = root.create_group("Steps")
        points = _growing(root, "Points", "f8", 3)
        times = _growing(steps, "Values", "f8")
        counts = _growing(root, "NumberOfPoints", "i8")
        cells = {kind: {name: _growing(root, f"{kind}/{name}", "i8") for name in
                        ("NumberOfCells", "NumberOfConnectivityIds", "Connectivity", "Offsets")}
                 for kind in ("Vertices", "Lines", "Polygons", "Strips")}
        offsets = {name: _growing(steps, name, "i8") for name in ("PartOffsets", "NumberOfParts",
                                                                  "PointOffsets")}
        cell_offsets = {name: _growing(steps, name, "i8", 4)
                        for name in ("CellOffsets", "ConnectivityIdOffsets")}
        data: dict[str, Any] = {}
        frame_count = 0
        for frame in frames:
            count = len(frame)
            arrays = _vtk_arrays(frame)
            if frame_count == 0:
                data = {name: _growing(root, f"PointData/{name}", array.dtype, *array.shape[1:]) for name,
                        array in arrays.items()}
                offsets.update({f"PointDataOffsets/{name}": _growing(steps, f"PointDataOffsets/{name}", "i8")
                                for name in data})
            _extend(times, [frame.epoch.time])
            _extend(points, frame.vectors(frame.described.position))
            _extend(counts, [count])
            for name, dataset in offsets.items():
                _extend(dataset, [frame_count if name == "PartOffsets" else 1 if name == "NumberOfParts"
                                  else rows])
            for dataset in cell_offsets.values():
                _extend(dataset, [[rows, 0, 0, 0]])
            for kind, members in cells.items():
                own = count if kind == "Vertices" else 0
                _extend(members["NumberOfCells"], [own])
                _extend(members["NumberOfConnectivityIds"], [own])
                _extend(members["Connectivity"], np.arange(own))
                _extend(members["Offsets"], np.arange(own + 1))
            for name, array in arrays.items():
                _extend(data[name], array)
            rows += count
            frame_count += 1
        steps.attrs["NSteps"] = frame_count
    return rows


def _vtk_arrays(frame: Frame) -> dict[str, Any]:
    arrays = {"id": _ids("vtkhdf", frame)}
    if frame.described.velocity:
        arrays["velocity"] = frame.vectors(frame.described.velocity)
    for name, array in frame.others():
        arrays[_free(name, set(arrays))] = array
    return arrays


def _growing(group: Any, name: str, dtype: Any, *shape: int) -> Any:
    return group.create_dataset(name, shape=(0, *shape), maxshape=(None, *shape), dtype=dtype,
                                chunks=(max(1, _CHUNK_BYTES // (8 * max(1, *shape, 1))), *shape))


def _extend(dataset: Any, rows: Any) -> None:
    begin = dataset.shape[0]
    dataset.resize(begin + len(rows), axis=0)
    if len(rows):
        dataset[begin:] = rows
