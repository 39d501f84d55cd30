"""Records as files of other tools. Parquet, Arrow, CSV and NPY batch by batch, so memory does not grow with
the file; files of frames (FRAMES) one epoch after the other.

A file appears whole, under its name, when it is finished. Parquet and Arrow files name the schema and the
type of the keys in their metadata (`swale.schema`, `swale.key`), so that `swale import` makes the same
directory of them.
"""
from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import _frames, _lazy
from ._files import replacing

if TYPE_CHECKING:
    from ._directory import Directory, Epochs
    from ._table import Column, RecordStream, Table

FRAMES = ("extxyz", "lammpstrj", "h5md", "hdf5", "openpmd", "vtkhdf")
FORMATS = ("parquet", "arrow", "csv", "npy", *FRAMES)
_ENDINGS = {".parquet": "parquet", ".pq": "parquet", ".arrow": "arrow", ".feather": "arrow", ".ipc": "arrow",
            ".csv": "csv",
            ".npy": "npy", ".extxyz": "extxyz", ".xyz": "extxyz", ".lammpstrj": "lammpstrj",
            ".dump": "lammpstrj", ".h5md": "h5md",
            ".hdf5": "hdf5", ".h5part": "hdf5", ".vtkhdf": "vtkhdf"}
_GROUP_ROWS = 1 << 18  # of a Parquet file: some MB a column, as its readers like it
_BATCH_ROWS = 1 << 16


def format_of(path: str | os.PathLike[str], given: str | None) -> str:
    """The format, as given or as the file's name ends."""
    if given is not None:
        if given not in FORMATS:
            raise ValueError(f"format {given!r}: expected one of {', '.join(FORMATS)}")
        return given
    ending = Path(path).suffix.lower()
    if ending not in _ENDINGS:
        raise ValueError(f"{os.fspath(path)}: its ending names no format; give one of {', '.join(FORMATS)}")
    return _ENDINGS[ending]


def export(directory: Directory, path: str | os.PathLike[str], *, format: str | None = None,
           epochs: Epochs = None, keys: Any = None, columns: Iterable[str] | None = None,
           where: str | None = None, progress: Callable[[int, int], None] | None = None) -> int:
    """Writes records into a file and returns their number; `Directory.export` describes the arguments."""
    kind = format_of(path, format)
    if kind in FRAMES:
        with replacing(path) as temporary:
            found = _frames.frames(directory, kind, epochs, keys, columns, where, progress)
            return _write_frames(kind, temporary, directory, found)
    encoded = None if keys is None else directory._encode(keys)
    chosen = directory._epochs(epochs)
    total = sum(directory.epochs[i].records for i in (range(len(directory.epochs)) if chosen is None
                                                      else chosen))
    with replacing(path) as temporary, directory._stream(chosen, columns, where, 0, _BATCH_ROWS,
                                                         encoded) as stream:
        expect_holds(kind, stream.columns)

        def batches() -> Iterator[Table]:
            done = 0
            for batch in stream:
                yield batch
                done += len(batch)
                if progress is not None:
                    progress(done, total)

        if kind == "npy":
            return _write_npy(temporary, stream.columns, batches())
        return _write_arrow(kind, temporary, _schema(directory, stream), batches())


def _write_frames(kind: str, path: str, directory: Directory, found: Iterator[_frames.Frame]) -> int:
    if kind in ("extxyz", "lammpstrj"):
        from . import _export_text

        return (_export_text.write_extxyz if kind == "extxyz" else _export_text.write_lammpstrj)(path, found)
    from . import _export_hdf5

    if kind == "hdf5":
        return _export_hdf5.write_hdf5(path, found, str(directory.schema), directory.key_type)
    writers = {"h5md": _export_hdf5.write_h5md, "openpmd": _export_hdf5.write_openpmd,
               "vtkhdf": _export_hdf5.write_vtkhdf}
    return writers[kind](path, found)


def expect_holds(kind: str, columns: Iterable[Column]) -> None:
    """ValueError if the format cannot hold a column."""
    for column in columns:
        if column.type == "bytes" and kind == "csv":
            raise ValueError(f"csv cannot hold the bytes of column {column.name!r}: name other columns, or "
                             f"take parquet")
        if column.type in ("text", "bytes") and kind == "npy":
            raise ValueError(f"npy holds numbers, and column {column.name!r} is {column.type}: name other "
                             f"columns, or take "
                             "parquet")


# ---- Parquet, Arrow, CSV: by pyarrow ----


def _schema(directory: Directory, stream: RecordStream) -> Any:
    """The stream's schema, with what an import needs."""
    pyarrow = _lazy.load("pyarrow", "an export to this format")
    own = {"swale.schema": str(directory.schema), "swale.key": directory.key_type}
    return pyarrow.schema(stream).with_metadata(own)


def _write_arrow(kind: str, path: str, schema: Any, batches: Iterator[Table]) -> int:
    pyarrow = _lazy.load("pyarrow", "an export to this format")
    rows = 0
    with _writer(kind, path, schema) as writer:
        waiting: list[Any] = []
        for batch in batches:
            rows += len(batch)
            waiting += pyarrow.table(batch).to_batches()
            if kind != "parquet" or sum(map(len, waiting)) >= _GROUP_ROWS:
                _write_waiting(pyarrow, kind, writer, schema, waiting)
        _write_waiting(pyarrow, kind, writer, schema, waiting)
    return rows


def _write_waiting(pyarrow: Any, kind: str, writer: Any, schema: Any, waiting: list[Any]) -> None:
    if not waiting:
        return
    table = pyarrow.Table.from_batches(waiting).cast(schema)
    waiting.clear()
    if kind == "csv":
        table = flat(pyarrow, table)
    if kind == "parquet":
        writer.write_table(table, row_group_size=table.num_rows)
    else:
        writer.write_table(table)


def _writer(kind: str, path: str, schema: Any) -> Any:
    pyarrow = _lazy.load("pyarrow", "an export to this format")
    if kind == "parquet":
        # Dictionaries cost time and help texts only; keys and coordinates hardly repeat.
        texts = [field.name for field in schema if pyarrow.types.is_string(field.type)]
        repeated = [name for name in ("epoch", "step", "time") if name in schema.names]
        return _lazy.load("pyarrow.parquet", "an export to Parquet").ParquetWriter(
            path, schema, compression="zstd", use_dictionary=texts + repeated)
    if kind == "arrow":
        return _lazy.load("pyarrow.ipc", "an export to Arrow").new_file(path, schema)
    csv = _lazy.load("pyarrow.csv", "an export to CSV")
    return csv.CSVWriter(path, flat(pyarrow, schema.empty_table()).schema)


def flat(pyarrow: Any, table: Any) -> Any:
    """The table with a column for each element of an array: ``v[0]``, ``v[1]``."""
    names, columns = [], []
    for name in table.schema.names:
        column = table.column(name)
        if not pyarrow.types.is_fixed_size_list(column.type):
            names.append(name)
            columns.append(column)
            continue
        element = _lazy.load("pyarrow.compute", "an export to CSV").list_element
        for i in range(column.type.list_size):
            names.append(f"{name}[{i}]")
            columns.append(element(column, i))
    return pyarrow.table(columns, names=names)


# ---- NPY: a structured array ----


def _write_npy(path: str, columns: Iterable[Column], batches: Iterator[Table]) -> int:
    np = _lazy.numpy()
    lib = _lazy.load("numpy.lib.format", "an export to NPY")
    dtype = np.dtype([(column.name, "<" + column.type) if column.count == 1 else
                      (column.name, "<" + column.type, (column.count,)) for column in columns])
    rows = 0
    with open(path, "wb") as file:
        header = {"descr": lib.dtype_to_descr(dtype), "fortran_order": False}
        # NumPy leaves space in the header for a longer number of rows.
        lib.write_array_header_2_0(file, {**header, "shape": (0,)})
        begin = file.tell()
        for batch in batches:
            array = np.empty(len(batch), dtype=dtype)
            for name in batch:
                if np.ma.isMaskedArray(batch[name]):
                    raise ValueError(f"npy cannot hold a missing number, and some records lack {name!r}: "
                                     f"take parquet, or "
                                     f"only records that have it (where has({name}))")
                array[name] = batch[name]
            file.write(memoryview(array).cast("B") if len(array) else b"")
            rows += len(array)
        file.seek(0)
        lib.write_array_header_2_0(file, {**header, "shape": (rows,)})
        if file.tell() != begin:
            raise RuntimeError("the header of the NPY file has grown: please report it")
    return rows
