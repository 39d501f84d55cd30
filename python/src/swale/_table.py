"""Tables of records: what queries return."""
from __future__ import annotations

import html
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from . import _lazy, _native

_DTYPES = {"f": "<f4", "g": "<f8", "c": "i1", "s": "<i2", "i": "<i4", "l": "<i8", "C": "u1", "S": "<u2",
           "I": "<u4",
           "L": "<u8"}
_NAMES = {"u": "text", "z": "bytes"}
_ROWS_SHOWN = 10
_CELL_LETTERS_MAX = 40


@dataclass(frozen=True)
class Column:
    """What a column of a table is.

    Attributes
    ----------
    name : str
    type : str
        ``"f8"``, ``"u4"``, ... as in NumPy, ``"text"`` or ``"bytes"``.
    count : int
        How many numbers each row has: 1 is a number, more are an array.
    unit : str
        May be empty.
    nullable : bool
        Whether rows may lack it.
    """

    name: str
    type: str
    count: int
    unit: str
    nullable: bool


def _column(name: str, kind: str, count: int, unit: str, nullable: bool) -> Column:
    return Column(name, _NAMES.get(kind) or _DTYPES[kind].lstrip("<"), count or 1, unit, nullable)


class Table:
    """Records as columns, in memory.

    ``table["x"]`` is a NumPy array, without a copy if the table has one batch. DuckDB, polars, pyarrow and
    pandas read a table through the Arrow PyCapsule interface (``__arrow_c_stream__``), without a copy.

    Do not make tables yourself: queries of a `swale.Directory` return them.
    """

    def __init__(self, schema: _native.Schema, columns: list[Column], batches: list[_native.Batch]) -> None:
        self._schema = schema
        self._columns = {column.name: (i, column) for i, column in enumerate(columns)}
        self._batches = batches
        self._rows = sum(batch.rows for batch in batches)
        self._arrays: dict[str, Any] = {}

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns, in order."""
        return tuple(column for _, column in self._columns.values())

    @property
    def nbytes(self) -> int:
        """Bytes of all columns. Less memory holds them: batches of an epoch share epoch, step and time."""
        return sum(len(batch.data(i)) for batch in self._batches for i in range(len(self._columns)))

    def __len__(self) -> int:
        return self._rows

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __contains__(self, name: object) -> bool:
        return name in self._columns

    def __getitem__(self, name: str) -> Any:
        """The column `name` as a NumPy array: read-only, of shape (rows,) or (rows, count).

        Text and bytes are arrays of objects. If a row lacks the column, the array is a
        `numpy.ma.MaskedArray`.
        """
        if name not in self._columns:
            raise KeyError(f"no column {name!r}: there are {', '.join(self._columns)}")
        if name not in self._arrays:
            self._arrays[name] = self._array(*self._columns[name])
        return self._arrays[name]

    def _array(self, index: int, column: Column) -> Any:
        np = _lazy.numpy()
        parts = [_batch_array(np, batch, index, column) for batch in self._batches]
        if len(parts) == 1:
            return parts[0]
        if not parts:
            shape: tuple[int, ...] = (0,) if column.count == 1 else (0, column.count)
            return np.empty(shape, dtype=_numpy_type(column))
        masked = any(np.ma.isMaskedArray(part) for part in parts)
        array = (np.ma if masked else np).concatenate(parts)
        array.flags.writeable = False
        return array

    def batches(self) -> Iterator[Table]:
        """The batches that the table consists of, as tables: their columns are never copied."""
        for batch in self._batches:
            yield Table(self._schema, [column for _, column in self._columns.values()], [batch])

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The table as an Arrow C stream; a requested schema is not followed, as the interface allows."""
        return _native.stream_capsule(self._schema, self._batches)

    def __arrow_c_schema__(self) -> object:
        """The columns as an Arrow C schema."""
        return _native.schema_capsule(self._schema)

    def to_arrow(self) -> Any:
        """As a `pyarrow.Table`, without a copy."""
        return _lazy.load("pyarrow", "to_arrow()").table(self)

    def to_polars(self) -> Any:
        """As a `polars.DataFrame`, without a copy."""
        return _lazy.load("polars", "to_polars()").DataFrame(self)

    def to_pandas(self) -> Any:
        """As a `pandas.DataFrame`. Array columns become one column for each element: ``v[0]``, ``v[1]``."""
        pandas = _lazy.load("pandas", "to_pandas()")
        np = _lazy.numpy()
        frame: dict[str, Any] = {}
        for name, (_, column) in self._columns.items():
            array = self[name]
            elements = {name: array} if column.count == 1 else {
                f"{name}[{i}]": array[:, i] for i in range(column.count)}
            for label, numbers in elements.items():
                frame[label] = numbers
                if np.ma.isMaskedArray(numbers):
                    frame[label] = _pandas_nullable(pandas, np, numbers)
        return pandas.DataFrame(frame)

    def to_xarray(self) -> Any:
        """As an `xarray.Dataset` over (key, epoch): NaN where a key has no record, units as attributes.

        Needs the columns key and epoch, and one record for a key in an epoch. Step and time are coordinates
        of epoch. Integers become float64 if any are absent.
        """
        xarray = _lazy.load("xarray", "to_xarray()")
        np = _lazy.numpy()
        for name in ("key", "epoch"):
            if name not in self:
                raise ValueError(f"to_xarray() needs the column {name!r}: ask for it, or for all columns")
        keys, row = np.unique(self["key"], return_inverse=True)
        epochs, column = np.unique(self["epoch"], return_inverse=True)
        cells = row * len(epochs) + column
        if len(np.unique(cells)) != len(self):
            raise ValueError("to_xarray() has a place for one record of a key in an epoch, and some have "
                             "several")
        variables = {}
        coordinates: dict[str, Any] = {"key": keys, "epoch": epochs}
        for column_ in self.columns:
            if column_.name in ("step", "time"):
                _, first = np.unique(self["epoch"], return_index=True)
                coordinates[column_.name] = ("epoch", np.ma.filled(self[column_.name][first], -2**63))
            elif column_.name not in coordinates:
                grid = _grid(np, self[column_.name], cells, len(keys), len(epochs))
                dims = ("key", "epoch", *([f"{column_.name}_element"] if column_.count != 1 else []))
                variables[column_.name] = (dims, grid, {"units": column_.unit} if column_.unit else {})
        return xarray.Dataset(variables, coordinates)

    def to_dask(self, *, npartitions: int = 1) -> Any:
        """As a `dask.dataframe.DataFrame`. What does not fit into memory: `Directory.to_dask`."""
        return _lazy.load("dask.dataframe", "to_dask()").from_pandas(self.to_pandas(),
                                                                     npartitions=npartitions, sort=False)

    def __repr__(self) -> str:
        lines = [" ".join(name for name in self._columns)]
        lines += ["  ".join(row) for row in self._head()]
        if self._rows > _ROWS_SHOWN:
            lines.append("...")
        return "\n".join([f"<swale.Table: {self._rows:,} rows, {len(self._columns)} columns>", *lines])

    def _repr_html_(self) -> str:
        cells = "".join(f"<th>{html.escape(_with_unit(column))}</th>" for column in self.columns)
        rows = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
                       for row in self._head())
        return (f"<table><thead><tr>{cells}</tr></thead><tbody>{rows}</tbody></table>"
                f"<p>{self._rows:,} rows, {len(self._columns)} columns</p>")

    def _head(self) -> list[list[str]]:
        """The cells of the first rows; looks at the first batches only."""
        rows: list[list[str]] = []
        for part in self.batches():
            columns = [part[name] for name in part]
            rows += [[_cell(column[i]) for column in columns]
                     for i in range(min(len(part), _ROWS_SHOWN - len(rows)))]
            if len(rows) == _ROWS_SHOWN:
                break
        return rows


class RecordStream:
    """A query on its way: gives its records batch by batch, in bounded memory.

    Iterate over it (each batch is a `Table`), or give it to DuckDB, polars or pyarrow, which read it through
    the Arrow PyCapsule interface: each time from the beginning, as the query is then asked anew. Leaving a
    ``with`` block, or `close`, ends the iteration's query.
    """

    def __init__(self, ask: Callable[[], _native.Stream]) -> None:
        self._ask = ask
        self._stream = ask()
        self._columns = [_column(*each) for each in self._stream.columns()]

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns, in order."""
        return tuple(self._columns)

    def __iter__(self) -> Iterator[Table]:
        return self

    def __next__(self) -> Table:
        batch = self._stream.next()
        if batch is None:
            raise StopIteration
        return Table(self._stream.schema(), self._columns, [batch])

    def read_all(self) -> Table:
        """The records that are left, as one table."""
        schema = self._stream.schema()
        batches = []
        while (batch := self._stream.next()) is not None:
            batches.append(batch)
        return Table(schema, self._columns, batches)

    def close(self) -> None:
        """Ends the query; its threads have stopped when this returns."""
        self._stream.close()

    def __enter__(self) -> RecordStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """All records of the query as an Arrow C stream."""
        return self._ask().capsule()

    def __arrow_c_schema__(self) -> object:
        """The columns as an Arrow C schema."""
        return _native.schema_capsule(self._stream.schema())

    def __repr__(self) -> str:
        return f"<swale.RecordStream: {', '.join(column.name for column in self._columns)}>"


def _grid(np: Any, array: Any, cells: Any, rows: int, columns: int) -> Any:
    """The numbers at their cells; NaN (of objects None) elsewhere."""
    if np.ma.isMaskedArray(array):
        array = array.astype("f8").filled(np.nan) if array.dtype.kind != "O" else array.filled(None)
    shape = (rows * columns, *array.shape[1:])
    if len(array) < rows * columns and array.dtype.kind in "iu":
        array = array.astype("f8")
    grid = np.full(shape, None if array.dtype.kind == "O"
                   else np.nan) if array.dtype.kind in "fO" else np.empty(shape, array.dtype)
    grid = grid.astype(array.dtype)
    grid[cells] = array
    return grid.reshape(rows, columns, *array.shape[1:])


def _numpy_type(column: Column) -> str:
    return "O" if column.type in ("text", "bytes") else column.type


def _batch_array(np: Any, batch: _native.Batch, index: int, column: Column) -> Any:
    rows = batch.rows
    if column.type in ("text", "bytes"):
        array = _objects(np, batch, index, column)
    else:
        array = np.frombuffer(batch.data(index), dtype=_numpy_type(column))
        if column.count != 1:
            array = array.reshape(rows, column.count)
    if batch.nulls(index) == 0:
        array.flags.writeable = False
        return array
    bits = np.unpackbits(np.frombuffer(batch.validity(index), dtype="u1"), bitorder="little")[:rows]
    mask = bits == 0
    if column.count != 1:
        mask = np.repeat(mask[:, None], column.count, axis=1)
    return np.ma.MaskedArray(array, mask=mask)


def _objects(np: Any, batch: _native.Batch, index: int, column: Column) -> Any:
    ends = memoryview(batch.offsets(index)).cast("B").cast("i")
    data = bytes(batch.data(index))
    array = np.empty(batch.rows, dtype=object)
    for row in range(batch.rows):
        item = data[ends[row]:ends[row + 1]]
        array[row] = item.decode() if column.type == "text" else item
    return array


def _pandas_nullable(pandas: Any, np: Any, numbers: Any) -> Any:
    if numbers.dtype.kind == "f":
        return numbers.filled(np.nan)
    if numbers.dtype.kind in "iu":
        return pandas.arrays.IntegerArray(numbers.data.copy(), np.ma.getmaskarray(numbers).copy())
    return numbers.filled(None)


def _with_unit(column: Column) -> str:
    return f"{column.name} ({column.unit})" if column.unit else column.name


def _cell(cell: Any) -> str:
    text = f"{cell:.6g}" if type(cell).__name__.startswith("float") else str(cell)
    text = text.encode("unicode_escape").decode() if not text.isprintable() else text
    return text if len(text) <= _CELL_LETTERS_MAX else text[: _CELL_LETTERS_MAX - 1] + "…"
