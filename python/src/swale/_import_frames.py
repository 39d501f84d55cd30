"""Files of frames, to be imported: LAMMPS dumps, H5Part, VPIC's own HDF5 and openPMD. Each frame is a record
batch.

Frames are epochs in the order of the file. What a file tells of boxes and units becomes attributes.
"""
from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from . import _lazy

ENDINGS = (".lammpstrj", ".dump", ".h5", ".hdf5", ".h5part")
IDS = ("id", "tag")  # what columns with the names of particles are called
# Columns of LAMMPS that are integers; names of elements are passed over, and the others are numbers.
_INTEGERS = {"id": "u8", **dict.fromkeys(("type", "mol", "proc", "procp1", "ix", "iy", "iz"), "i8")}


class Frame(NamedTuple):
    """What a file has of one epoch."""

    step: int
    time: float
    columns: dict[str, Any]  # arrays of one or two dimensions
    attributes: dict[str, Any]


class Source(NamedTuple):
    """A file that was opened."""

    schema: Any  # of pyarrow
    batches: Iterator[Any]  # one for each frame, also for an empty one
    frames: dict[int, Frame]  # by number; the newest one or two, without columns
    document: dict[str, Any]  # attributes of the directory


def open_source(pyarrow: Any, source: Path, types: dict[str, Any], key: str,
                species: str | None) -> Source:
    """Opens a file whose ending is one of `ENDINGS`, or a folder of VPIC's.

    `types`: of columns of a text, as far as the caller knows. `key`: the column of the keys, and `species`:
    whose files to take of a folder, as the caller has named them.
    """
    if source.is_dir():
        return _source(pyarrow, _vpic(_vpic_files(source, species), key), {}, {})
    if species is not None:
        raise ValueError(f"{source} is a file: a species is chosen in a folder of VPIC's (particle_hdf5)")
    if source.suffix.lower() in (".lammpstrj", ".dump"):
        return _source(pyarrow, _lammps(source, types), {}, {})
    h5py = _lazy.load("h5py", "an import of HDF5")
    file = h5py.File(source, "r")
    if "openPMD" in file.attrs:
        document, frames = _openpmd(file, source)
        return _source(pyarrow, frames, {}, document)
    steps = sorted(int(name[9:]) for name in file if _is_step(name, "Timestep_"))
    if steps:
        file.close()
        return _source(pyarrow, _vpic([(step, source) for step in steps], key), {}, {})
    own = {name: str(file.attrs[name]) for name in ("swale.schema", "swale.key") if name in file.attrs}
    return _source(pyarrow, _h5part(file, source), own, {})


def _source(pyarrow: Any, frames: Iterator[Frame], own: dict[str, str], document: dict[str, Any]) -> Source:
    """The frames as batches; the first one says which columns there are."""
    seen: dict[int, Frame] = {}

    def batches(first: Any, later: Iterator[Frame]) -> Iterator[Any]:
        yield first
        for number, frame in enumerate(later, 1):
            yield batch_of(number, frame, first.schema)

    def batch_of(number: int, frame: Frame, schema: Any) -> Any:
        np = _lazy.numpy()
        seen[number] = frame._replace(columns={})
        seen.pop(number - 2, None)
        rows = len(next(iter(frame.columns.values()), ()))
        own_columns = {"epoch": np.full(rows, number), "step": np.full(rows, frame.step),
                       "time": np.full(rows, float(frame.time))}
        named = {f"[{name}]" if name in own_columns else name: array for name, array in frame.columns.items()}
        arrays = {name: _array(pyarrow, array) for name, array in {**own_columns, **named}.items()}
        if schema is None:
            return pyarrow.RecordBatch.from_pydict(arrays, metadata=own or None)
        told = {name: array.type for name, array in arrays.items()}
        known = {name: schema.field(name).type for name in schema.names}
        if told != known:
            odd = sorted(name for name in {*told, *known} if told.get(name) != known.get(name))
            here, before = (types.get(odd[0], "missing") for types in (told, known))
            raise ValueError(f"frame {number}: column {odd[0]!r} is {here}, and in the first frame "
                             f"{before}: all "
                             "frames need the same columns")
        return pyarrow.RecordBatch.from_pydict(arrays, schema=schema)

    start = next(frames, None)
    if start is None:
        raise ValueError("the file has no frame")
    first = batch_of(0, start, None)
    return Source(first.schema, batches(first, frames), seen, document)


def _array(pyarrow: Any, array: Any) -> Any:
    np = _lazy.numpy()
    array = np.ascontiguousarray(array)
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    flat = pyarrow.array(array.reshape(-1))
    return flat if array.ndim == 1 else pyarrow.FixedSizeListArray.from_arrays(flat, array.shape[1])


# ---- LAMMPS dumps ----


def _lammps(source: Path, types: dict[str, Any]) -> Iterator[Frame]:
    with open(source, encoding="utf-8") as file:
        place = _Lines(file, source)
        while (head := place.next(optional=True)) is not None:
            yield _lammps_frame(place, head, types)


class _Lines:
    """Lines of a file, and their numbers for errors."""

    def __init__(self, file: TextIO, source: Path) -> None:
        self._file, self._source, self._number = file, source, 0

    def next(self, optional: bool = False) -> str | None:
        line = self._file.readline()
        self._number += 1
        if not line:
            if optional:
                return None
            raise self.wrong("the file ends inside a frame: it was cut off")
        return line.rstrip("\n")

    def text(self) -> str:
        line = self.next()
        assert line is not None
        return line

    def wrong(self, what: str) -> ValueError:
        return ValueError(f"{self._source}: line {self._number}: {what}")

    def number(self, kind: Callable[[str], Any], text: str) -> Any:
        try:
            return kind(text)
        except ValueError:
            raise self.wrong(f"expected a number, got {text!r:.60}") from None


def _lammps_frame(place: _Lines, head: str, types: dict[str, Any]) -> Frame:
    step = time = None
    rows = 0
    attributes: dict[str, Any] = {}
    while not head.startswith("ITEM: ATOMS"):
        if head.startswith("ITEM: TIMESTEP"):
            step = place.number(int, place.text())
        elif head.startswith("ITEM: TIME"):
            time = place.number(float, place.text())
        elif head.startswith("ITEM: NUMBER OF ATOMS"):
            rows = place.number(int, place.text())
        elif head.startswith("ITEM: UNITS"):
            attributes["units"] = place.text().strip()
        elif head.startswith("ITEM: BOX BOUNDS"):
            attributes.update(_lammps_box(place, head.split()[3:]))
        else:
            raise place.wrong(f"expected ITEM: TIMESTEP or ITEM: ATOMS, got {head!r:.60}")
        head = place.text()
    if step is None:
        raise place.wrong("the frame has no ITEM: TIMESTEP")
    names = head.split()[2:]
    return Frame(step, 0.0 if time is None else time, _lammps_columns(place, names, rows, types), attributes)


def _lammps_columns(place: _Lines, names: list[str], rows: int, types: dict[str, Any]) -> dict[str, Any]:
    np = _lazy.numpy()
    kinds = {name: types.get(name, _INTEGERS.get(name, "f8")) for name in names}
    columns = {name: np.empty(rows, dtype=kinds[name]) for name in names if name != "element"}
    parse = {name: int if np.dtype(kind).kind in "iu" else float for name, kind in kinds.items()}
    for row in range(rows):
        words = place.text().split()
        if len(words) != len(names):
            raise place.wrong(f"expected {len(names)} numbers, got {len(words)}")
        for name, word in zip(names, words):
            if name in columns:
                columns[name][row] = place.number(parse[name], word)
    return columns


def _lammps_box(place: _Lines, words: list[str]) -> dict[str, Any]:
    """Box, origin and periodicity of three lines of bounds."""
    lines = [[place.number(float, word) for word in place.text().split()] for _ in range(3)]
    letters = [word for word in words if len(word) == 2 and set(word) <= set("pfsm")]
    told: dict[str, Any] = {"periodic": [word == "pp" for word in letters]} if len(letters) == 3 else {}
    if {len(line) for line in lines} == {2}:
        return {**told, "origin": [low for low, _ in lines], "box": [high - low for low, high in lines]}
    if {len(line) for line in lines} != {3} or "xy" not in words:
        return told  # a general box, in a form that we do not know
    (x0, x1, xy), (y0, y1, xz), (z0, z1, yz) = lines
    x0, x1 = x0 - min(0, xy, xz, xy + xz), x1 - max(0, xy, xz, xy + xz)
    y0, y1 = y0 - min(0, yz), y1 - max(0, yz)
    return {**told, "origin": [x0, y0, z0],
            "box": [[x1 - x0, 0.0, 0.0], [xy, y1 - y0, 0.0], [xz, yz, z1 - z0]]}


# ---- H5Part ----


def _h5part(file: Any, source: Path) -> Iterator[Frame]:
    """Groups ``Step#N`` with a dataset for each column."""
    steps = sorted(int(name[5:]) for name in file if _is_step(name, "Step#"))
    if not steps:
        raise ValueError(f"{source}: neither openPMD, H5Part nor VPIC: it has no groups Step#N or Timestep_N")
    with file:
        for number in steps:
            group = file[f"Step#{number}"]
            told = json.loads(group.attrs["attributes"]) if "attributes" in group.attrs else {}
            yield Frame(int(group.attrs.get("step", number)), float(group.attrs.get("TimeValue", 0.0)),
                        {name: data[...] for name, data in group.items() if getattr(data, "ndim", 0) == 1},
                        told)


def _is_step(name: str, before: str) -> bool:
    return name.startswith(before) and name[len(before):].isdigit()


# ---- VPIC ----


def _vpic_files(folder: Path, species: str | None) -> list[tuple[int, Path]]:
    """The files ``T.STEP/SPECIES_STEP.h5`` of a species, in the order of their steps."""
    steps = sorted(int(each.name[2:]) for each in folder.iterdir() if _is_step(each.name, "T."))
    if not steps:
        raise ValueError(f"{folder}: expected VPIC's folders T.STEP in it, as particle_hdf5 has them")
    ending = f"_{steps[0]}.h5"
    found = sorted(each.name.removesuffix(ending) for each in (folder / f"T.{steps[0]}").glob(f"*{ending}")
                   if not each.name.startswith("grid_metadata_"))
    if species is None and len(found) == 1:
        species = found[0]
    if species not in found:
        raise ValueError(f"{folder}: {'no species ' + repr(species) if species else 'several species'}; "
                         f"choose one of {', '.join(found) or 'none'} (--species)")
    return [(step, folder / f"T.{step}" / f"{species}_{step}.h5") for step in steps]


def _vpic(files: list[tuple[int, Path]], key: str) -> Iterator[Frame]:
    """Groups ``Timestep_N`` with a dataset for each column."""
    np, h5py = _lazy.numpy(), _lazy.load("h5py", "an import of HDF5")
    for step, path in files:
        with h5py.File(path, "r") as file:
            if f"Timestep_{step}" not in file:
                raise ValueError(f"{path}: no group Timestep_{step}")
            columns = {name: data[...] for name, data in file[f"Timestep_{step}"].items()
                       if getattr(data, "ndim", 0) == 1 and data.dtype.kind in "iuf"}
        if len({len(each) for each in columns.values()}) > 1:
            raise ValueError(f"{path}: the datasets of Timestep_{step} have different lengths")
        if key == "row" and columns:
            columns.setdefault("row", np.arange(len(next(iter(columns.values()))), dtype="u8"))
        elif key == "key" and not {"key", *IDS} & set(columns):
            raise ValueError(f"{path} has no column that tells particles apart ({', '.join(columns)}): only "
                             "builds of VPIC that trace particles write one (tag). --key row takes the place "
                             "in the file, where another step may have another particle")
        yield Frame(step, 0.0, columns, {})


# ---- openPMD ----


def _openpmd(file: Any, source: Path) -> tuple[dict[str, Any], Iterator[Frame]]:
    """What its records mean, and its iterations. A vector is an array; one species."""
    if "data" not in file or not len(file["data"]):
        raise ValueError(f"{source}: it has no iterations, or one a file: expected group-based encoding")
    steps = sorted(map(int, file["data"]))
    where = _text(file.attrs.get("particlesPath", "particles/")).strip("/")
    found = list(file[f"data/{steps[0]}"].get(where, {}))
    if len(found) != 1:
        raise ValueError(f"{source}: expected one species of particles, found {', '.join(found) or 'none'}")
    first = file[f"data/{steps[0]}/{where}/{found[0]}"]
    document: dict[str, Any] = {
        "time": {"si": float(file[f"data/{steps[0]}"].attrs.get("timeUnitSI", 1.0))},
        "fields": {name: {"si": float(_part(record).attrs.get("unitSI", 1.0)),
                          "dimension": [float(each) for each in record.attrs.get("unitDimension", [0] * 7)]}
                   for name, record in first.items()
                   if name not in ("id", "positionOffset", "particlePatches")}}
    document.update({role: role for role in ("position", "velocity") if role in first})

    def frames() -> Iterator[Frame]:
        with file:
            for step in steps:
                iteration = file[f"data/{step}"]
                columns = _openpmd_columns(iteration[where][found[0]])
                yield Frame(step, float(iteration.attrs.get("time", 0.0)), columns, {})

    return document, frames()


def _part(record: Any) -> Any:
    """A scalar record, or a component of another one."""
    return record if hasattr(record, "ndim") or "value" in record.attrs else record[sorted(record)[0]]


def _openpmd_columns(species: Any) -> dict[str, Any]:
    np = _lazy.numpy()
    columns = {}
    for name, record in species.items():
        if name in ("positionOffset", "particlePatches"):
            continue
        if _part(record) is record:
            columns[name] = _numbers(np, record)
        else:
            columns[name] = np.stack([_numbers(np, record[axis]) for axis in sorted(record)], axis=1)
    if "position" in columns and "positionOffset" in species:
        offset = species["positionOffset"]
        moved = np.stack([_numbers(np, offset[axis]) * float(offset[axis].attrs.get("unitSI", 1.0))
                          for axis in sorted(offset)], axis=1)
        if moved.any():
            unit = float(_part(species["position"]).attrs.get("unitSI", 1.0))
            columns["position"] = columns["position"] + moved / unit
    return columns


def _numbers(np: Any, component: Any) -> Any:
    """A dataset, or a constant that stands for one."""
    if hasattr(component, "ndim"):
        return component[...]
    return np.full(tuple(int(each) for each in np.atleast_1d(component.attrs["shape"])),
                   component.attrs["value"])


def _text(told: Any) -> str:
    return told.decode() if isinstance(told, bytes) else str(told)
