"""Files as a massive directory. Batch by batch; an epoch is committed when its last row is read.

The rows of Parquet, Arrow and CSV are in the order of their epochs, as `swale export` writes them. Columns:
``epoch`` or ``step`` divides the rows into epochs (without both there is one), ``time`` is the epoch's,
``key`` or another that is named, and the rest are fields. ``v[0]``, ``v[1]``, … are the elements of an array.
Files of frames (`_import_frames.py`) are made into such rows.
"""
from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from . import _import_frames, _lazy
from ._directory import open as open_directory
from ._schema import Field, Schema
from ._writer import Writer, create

_BATCH_ROWS = 1 << 16
_OF_EPOCH = ("epoch", "step", "time")
_ELEMENT = re.compile(r"(.+)\[(\d+)\]")


@dataclass(frozen=True)
class Imported:
    """What an import has written."""

    epochs: int
    records: int
    passed_over: int  # epochs that were there already


def import_file(source: str | os.PathLike[str], path: str | os.PathLike[str], *, key: str = "key",
                key_type: str | None = None, schema: str | None = None, extrema: Iterable[str] = (),
                units: Mapping[str, str] | None = None, species: str | None = None, resume: bool = False,
                options: str = "", progress: Callable[[int], None] | None = None) -> Imported:
    """Makes a massive directory of a file.

    Parameters
    ----------
    source : str or path-like
        A file that ends in .parquet, .arrow or .csv; or, with an epoch for each frame, .lammpstrj or .dump
        (LAMMPS), .h5, .hdf5 or .h5part (H5Part, openPMD, VPIC); or VPIC's folder particle_hdf5.
    path : str or path-like
        The directory to make.
    key : str
        The column of the keys; in files of frames ``id`` or ``tag``, if it is there. Of VPIC's particles
        without such a column ``row`` is the place in the file.
    key_type : {"u64", "i64", "text", "bytes"}, optional
        As the file says, or as the column's type suggests.
    schema : str, optional
        As the option ``imd.schema``, ``"x:f8:m;v:f4x3"``; as the file says if not given.
    extrema, units, options
        As in `swale.create`.
    species : str, optional
        Whose files to take of VPIC's folder, if it has several.
    resume : bool
        Goes on with a directory whose import was interrupted: its epochs are passed over.
    """
    pyarrow = _lazy.load("pyarrow", "an import")
    file = _open(pyarrow, Path(os.fspath(source)), schema, key, key_type, species)
    if file.frames is not None and key == "key":
        key = next((name for name in _import_frames.IDS if name in file.schema.names), key)
    plan = _Plan(pyarrow, file.schema, key, key_type, schema)
    np = _lazy.numpy()
    dtype = None if plan.schema is None else plan.schema.dtype
    all_units = {**plan.units, **(units or {})}
    done: list[int | None] = []
    if resume and Path(os.fspath(path)).exists():
        with open_directory(path) as old:
            done = [epoch.step for epoch in old.epochs]
            if old.key_type != plan.key_type or (old.schema.dtype if old.schema else None) != dtype:
                raise ValueError(f"{os.fspath(path)} has other keys or fields than {os.fspath(source)}: it "
                                 f"is of another import")
        out = Writer(path, options, plan.key_type, dtype, create=False)
    else:
        out = create(path, schema=dtype, key=plan.key_type, extrema=extrema, units=all_units, options=options)
    with out:
        return _Import(np, plan, out, done, progress, file).run()


class _File(NamedTuple):
    """A file that was opened; `frames` and `document` as of `_import_frames.Source`."""

    schema: Any
    batches: Iterator[Any]
    frames: dict[int, _import_frames.Frame] | None = None
    document: Mapping[str, Any] = {}


def _open(pyarrow: Any, source: Path, schema: str | None, key: str, key_type: str | None,
          species: str | None) -> _File:
    """The file's schema and its batches. Texts have no types but those that the caller tells."""
    key_types = {key: key_type} if key_type else {}
    ending = source.suffix.lower()
    if ending in _import_frames.ENDINGS or source.is_dir():
        own = {"u64": "u8", "i64": "i8"}
        told = {name: kind for field in Schema(schema or "").values() for name, kind in _flat(field)}
        told.update({"id" if name == "key" else name: own.get(kind, kind)
                     for name, kind in key_types.items()})
        return _File(*_import_frames.open_source(pyarrow, source, told, key, species))
    if species is not None:
        raise ValueError(f"{source}: a species is chosen in a folder of VPIC's (particle_hdf5)")
    if ending in (".parquet", ".pq"):
        parquet = _lazy.load("pyarrow.parquet", "an import of Parquet").ParquetFile(source)
        return _File(parquet.schema_arrow, parquet.iter_batches(batch_size=_BATCH_ROWS))
    if ending in (".arrow", ".feather", ".ipc"):
        file = _lazy.load("pyarrow.ipc", "an import of Arrow").open_file(source)
        return _File(file.schema, (file.get_batch(i) for i in range(file.num_record_batches)))
    if ending == ".csv":
        csv = _lazy.load("pyarrow.csv", "an import of CSV")
        own = {"u64": pyarrow.uint64(), "i64": pyarrow.int64(), "text": pyarrow.string(),
               "bytes": pyarrow.binary()}
        types = {"epoch": pyarrow.int64(), "step": pyarrow.int64(), "time": pyarrow.float64(),
                 **_csv_types(pyarrow, schema),
                 **{name: own[kind] for name, kind in key_types.items()}}
        # Nothing at all is a missing number; "nan" is a number here.
        reader = csv.open_csv(source, convert_options=csv.ConvertOptions(column_types=types, null_values=[""],
                                                                         strings_can_be_null=False))
        return _File(reader.schema, reader)
    endings = (".parquet", ".arrow", ".csv", *_import_frames.ENDINGS)
    raise ValueError(f"{source}: expected a file that ends in {', '.join(endings[:-1])} or {endings[-1]}")


def _flat(field: Field) -> list[tuple[str, str]]:
    """The columns that make a field in a file without arrays, with their type."""
    names = [field.name] if field.count == 1 else [f"{field.name}[{i}]" for i in range(field.count)]
    return [(name, field.type) for name in names]


def _csv_types(pyarrow: Any, schema: str | None) -> dict[str, Any]:
    return {name: pyarrow.from_numpy_dtype(kind) for field in Schema(schema or "").values()
            for name, kind in _flat(field)}


class _Plan:
    """Which column is what."""

    def __init__(self, pyarrow: Any, file: Any, key: str, key_type: str | None, schema: str | None) -> None:
        own = {name.decode(): text.decode() for name, text in (file.metadata or {}).items()
               if name.startswith(b"swale.")}
        if key not in file.names:
            raise ValueError(f"no column {key!r} for the keys: there are {', '.join(file.names)}; name one "
                             f"(--key)")
        self.key = key
        self.key_type = key_type or own.get("swale.key") or _key_type(pyarrow, file.field(key).type)
        fields = [name for name in file.names if name not in _OF_EPOCH and name != key]
        self.value = fields == ["value"] and pyarrow.types.is_binary(file.field("value").type)
        self.columns: dict[str, list[str]] = {}
        self.units: dict[str, str] = {}
        self.schema: Schema | None = None
        if self.value:
            return
        told = Schema(schema or own.get("swale.schema", ""))
        derived = Schema(";".join(self._derive(pyarrow, file, fields)))
        self.schema = told if set(told) == {self._field_name(name) for name in self.columns} else derived
        self.columns = {self._field_name(name): columns for name, columns in self.columns.items()}
        self.units = {field.name: field.unit for field in self.schema.values() if field.unit}
        if not self.schema:
            raise ValueError("the file has no fields besides epoch, step, time and the key")

    @staticmethod
    def _field_name(column: str) -> str:
        """A field that is called like one of our columns is written as "[name]"."""
        return column[1:-1] if column.startswith("[") and column.endswith("]") else column

    def _derive(self, pyarrow: Any, file: Any, names: list[str]) -> Iterator[str]:
        """The schema that the columns suggest; notes which columns make a field."""
        for name in names:
            column = file.field(name)
            kind, count = column.type, 1
            if pyarrow.types.is_fixed_size_list(kind):
                kind, count = kind.value_type, kind.list_size
            element = _ELEMENT.fullmatch(name)
            if element is not None and count == 1:
                self.columns.setdefault(element[1], []).append(name)
                if int(element[2]) != len(self.columns[element[1]]) - 1:
                    raise ValueError(f"column {name!r}: the elements of an array stand side by side, from "
                                     f"[0] on")
                if f"{element[1]}[{int(element[2]) + 1}]" in names:
                    continue
                name, count = element[1], len(self.columns[element[1]])
            else:
                self.columns[name] = [name]
            if not (pyarrow.types.is_integer(kind) or pyarrow.types.is_float32(kind)
                    or pyarrow.types.is_float64(kind)):
                raise ValueError(f"column {name!r} is {kind}: a field is a number or an array of numbers; "
                                 f"leave it out")
            base = "<" + kind.to_pandas_dtype()().dtype.str.lstrip("<|=")
            unit = (column.metadata or {}).get(b"unit", b"").decode()
            yield f"{self._field_name(name)}:{base[1:]}" + (f"x{count}" if count != 1
                                                            else "") + (f":{unit}" if unit else "")


def _key_type(pyarrow: Any, kind: Any) -> str:
    if pyarrow.types.is_unsigned_integer(kind):
        return "u64"
    if pyarrow.types.is_integer(kind):
        return "i64"
    if pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind):
        return "text"
    if pyarrow.types.is_binary(kind):
        return "bytes"
    raise ValueError(f"keys are integers, text or bytes, and the column is {kind}")


class _Import:
    """An import on its way."""

    def __init__(self, np: Any, plan: _Plan, out: Writer, done: list[int | None],
                 progress: Callable[[int], None] | None, file: _File) -> None:
        self._np, self._plan, self._out, self._done, self._progress = np, plan, out, done, progress
        self._file = file
        # number, step and time of the epoch that is being written
        self._open: tuple[int, int, float] | None = None
        self._ended = 0
        self._records = self._rows = 0

    def run(self) -> Imported:
        for number, batch in enumerate(self._file.batches):
            if batch.num_rows:
                self._take(batch)
            elif self._file.frames is not None:
                frame = self._file.frames[number]
                self._begin(number, frame.step, frame.time, self._rows)
            if self._file.frames is not None:
                self._end()  # a frame is an epoch
            self._rows += batch.num_rows
            if self._progress is not None:
                self._progress(self._rows)
        self._end()
        passed = min(len(self._done), self._ended)
        return Imported(self._ended - passed, self._records, passed)

    def _take(self, batch: Any) -> None:
        np = self._np
        names = batch.schema.names
        by = "epoch" if "epoch" in names else "step" if "step" in names else None
        numbers = np.zeros(batch.num_rows, "i8") if by is None else self._numbers(batch, by)
        steps = self._numbers(batch, "step") if "step" in names else numbers
        times = self._column(batch, "time") if "time" in names else np.zeros(batch.num_rows)
        begins = [0, *(np.nonzero(numbers[1:] != numbers[:-1])[0] + 1).tolist(), batch.num_rows]
        for begin, end in zip(begins, begins[1:]):
            self._begin(int(numbers[begin]), int(steps[begin]), float(times[begin]), self._rows + begin)
            if self._ended >= len(self._done):
                self._append(batch.slice(begin, end - begin))

    def _begin(self, number: int, step: int, time: float, row: int) -> None:
        if self._open is not None and self._open[0] == number:
            return
        if self._open is not None and number < self._open[0]:
            raise ValueError(f"row {row}: epoch {number} comes after epoch {self._open[0]}: sort the rows "
                             f"by epoch")
        self._end()
        if self._ended < len(self._done) and self._done[self._ended] != step:
            raise ValueError(f"epoch {self._ended} of the directory has step {self._done[self._ended]}, and "
                             f"that of the file "
                             f"{step}: it is of another import")
        self._open = number, step, time
        if self._ended < len(self._done):
            return
        if self._ended == 0 and self._file.document:
            self._out.set_attributes(self._file.document)
        if self._file.frames is not None and self._file.frames[number].attributes:
            self._out.set_attributes(self._file.frames[number].attributes, epoch=True)

    def _end(self) -> None:
        if self._open is None:
            return
        if self._ended >= len(self._done):
            self._out.epoch_end(self._open[1], self._open[2])
        self._ended += 1
        self._open = None

    def _append(self, batch: Any) -> None:
        plan, np = self._plan, self._np
        keys = self._keys(batch)
        if plan.value:
            for key, value in zip(keys, self._objects(batch, "value")):
                self._out.append(key, value)
        else:
            assert plan.schema is not None
            rows = np.zeros(batch.num_rows, dtype=plan.schema.dtype)
            for name, columns in plan.columns.items():
                if len(columns) == 1:
                    rows[name] = self._column(batch, columns[0])
                else:
                    for i, column in enumerate(columns):
                        rows[name][:, i] = self._column(batch, column)
            self._out.append_many(keys, rows)
        self._records += batch.num_rows

    def _keys(self, batch: Any) -> Any:
        if self._plan.key_type in ("u64", "i64"):
            return self._column(batch, self._plan.key)
        return self._objects(batch, self._plan.key)

    def _expect_full(self, batch: Any, name: str) -> Any:
        column = batch.column(batch.schema.get_field_index(name))
        if column.null_count:
            row = column.is_null().to_pylist().index(True)
            raise ValueError(f"row {self._rows + row} has no {name}: every record needs one")
        return column

    def _numbers(self, batch: Any, name: str) -> Any:
        return self._column(batch, name).astype("i8")

    def _column(self, batch: Any, name: str) -> Any:
        column = self._expect_full(batch, name)
        if hasattr(column.type, "list_size"):
            return column.flatten().to_numpy(zero_copy_only=False).reshape(-1, column.type.list_size)
        return column.to_numpy(zero_copy_only=False)

    def _objects(self, batch: Any, name: str) -> list[Any]:
        found: list[Any] = self._expect_full(batch, name).to_pylist()
        return found
