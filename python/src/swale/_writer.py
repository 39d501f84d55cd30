"""A massive directory, open for writing, by this process or by the ranks of a job."""
from __future__ import annotations

import json
import operator
import os
from collections.abc import Iterable, Mapping
from typing import Any

from . import _lazy, _native
from ._paths import path_bytes
from ._schema import schema_text

_KEY_DTYPES = {"u64": "<u8", "i64": "<i8"}


def create(path: str | os.PathLike[str], *, schema: Any = None, key: str = "bytes",
           extrema: Iterable[str] = (), units: Mapping[str, str] | None = None, options: str = "",
           comm: Any = None) -> Writer:
    """Makes a massive directory and opens it for writing.

    Parameters
    ----------
    path : str or path-like
        Must not exist; the directories above it are made.
    schema : numpy.dtype, optional
        Structured: what a value consists of, as ``[("x", "f8"), ("v", "f4", 3)]``. Without it values are any
        bytes.
    key : {"u64", "i64", "text", "bytes"}
        The type of keys.
    extrema : iterable of str
        Fields (or elements, ``"v[0]"``) whose largest and smallest records `Directory.top` is to find
        quickly.
    units : mapping, optional
        Units of fields, by name.
    options : str
        More options, as ``"imd.compression=zstd"``; ``swale config`` lists them.
    comm : mpi4py.MPI.Comm, optional
        The ranks that write together; all of them call this function, `Writer.set_attributes`,
        `Writer.epoch_end` and `Writer.close`, each with the same arguments. Only its Get_rank, Get_size and
        Allgather are called, so any MPI does.

    Returns
    -------
    Writer
        Closes itself at the end of a ``with`` block.

    Raises
    ------
    AlreadyExistsError
        If the path is taken.

    Examples
    --------
    >>> import numpy as np
    >>> import swale
    >>> particle = np.dtype([("x", "f8"), ("energy", "f8")])
    >>> with swale.create("made", schema=particle, key="u64", extrema=["energy"]) as out:  # doctest: +SKIP
    ...     for step in range(10):
    ...         out.append_many(np.arange(1000, dtype="u8"), frame(step))
    ...         out.epoch_end(step, time=0.1 * step)
    """
    if key not in ("u64", "i64", "text", "bytes"):
        raise ValueError(f"key {key!r}: expected 'u64', 'i64', 'text' or 'bytes'")
    dtype = None if schema is None else _lazy.numpy().dtype(schema)
    text = "" if dtype is None else schema_text(dtype, units or {})
    parts = [f"imd.key={key}"]
    if text:
        parts.append(f"imd.schema={text}")
    if extrema:
        parts.append(f"imd.extrema={';'.join(extrema)}")
    if options:
        parts.append(options)
    return Writer(path, ",".join(parts), key, dtype, create=True, comm=comm)


class Writer:
    """A massive directory that is open for writing; made by `swale.create`.

    Records are visible and durable when `epoch_end` has returned. Several threads may append at once.
    """

    def __init__(self, path: str | os.PathLike[str], options: str, key: str, dtype: Any, *, create: bool,
                 comm: Any = None) -> None:
        self._path = os.fsdecode(os.fspath(path))
        self._key = key
        self._dtype = dtype
        job = (None, 0, 1) if comm is None else (comm.Allgather, comm.Get_rank(), comm.Get_size())
        self._writer = _native.Writer(path_bytes(path), options, key, create, create, *job)

    def append(self, key: Any, value: Any) -> None:
        """Appends a value to a key.

        Parameters
        ----------
        key : int, str or bytes
        value : bytes, or a row of the schema's dtype (a NumPy record, or a tuple)
        """
        if self._dtype is not None and not isinstance(value, (bytes, bytearray, memoryview)):
            value = _lazy.numpy().asarray(value, dtype=self._dtype).tobytes()
        self._writer.append(key, bytes(value))

    def append_many(self, keys: Any, array: Any) -> None:
        """Appends one value to each key.

        Parameters
        ----------
        keys : numpy.ndarray of integers, or iterable of str or bytes
        array : numpy.ndarray
            One row for each key, of the schema's dtype. It may be strided; it is not copied.
        """
        np = _lazy.numpy()
        array = np.asarray(array)
        if array.ndim != 1:
            raise ValueError(f"array has {array.ndim} dimensions: expected one row for each key")
        self._expect(array.dtype)
        if self._key in _KEY_DTYPES:
            self._writer.append_many(self._numbers(np, keys), array)
            return
        keys = list(keys)
        if len(keys) != len(array):
            raise ValueError(f"{len(keys)} keys and {len(array)} values: each record has one of both")
        for key, row in zip(keys, array):
            self._writer.append(key, row.tobytes())

    def append_arrow(self, table: Any) -> int:
        """Appends the rows of a table.

        Parameters
        ----------
        table : anything with ``__arrow_c_stream__``
            Of pyarrow, polars, DuckDB, pandas, or a `Table`, or a `RecordStream`. It has the column ``key``,
            and one for each field of the schema (``value`` without a schema), of the same types; ``epoch``,
            ``step`` and ``time`` are passed over.

        Returns
        -------
        int
            How many there were.

        Examples
        --------
        >>> with swale.open("run") as d:   # doctest: +SKIP
        ...     out.append_arrow(d.stream(epochs=0, where="energy > 0"))
        """
        if not hasattr(table, "__arrow_c_stream__"):
            raise TypeError(f"table: expected one with __arrow_c_stream__, as pyarrow's, got {type(table)}")
        return self._writer.append_arrow(table.__arrow_c_stream__())

    def set_attributes(self, attributes: Mapping[str, Any], *, epoch: bool = False) -> None:
        """Gives the directory a JSON document, or takes it away ({}); committed with the open epoch.

        Exports and pictures know some names: `docs/guide/python.md` lists them.

        Parameters
        ----------
        attributes : mapping
            Of what JSON can hold; NumPy's numbers and arrays become numbers and lists.
        epoch : bool
            Whether the document is of the open epoch alone. Otherwise it is of the directory, until another
            replaces it.

        Examples
        --------
        >>> out.set_attributes({"position": ["x", "y", "z"], "periodic": [True, True, False]})  # doctest:
        +SKIP >>> out.set_attributes({"box": [10.0, 10.0, 12.5]}, epoch=True)  # doctest: +SKIP
        """
        if not isinstance(attributes, Mapping):
            raise TypeError(f"attributes: expected a dict, got {type(attributes).__name__}")
        try:
            text = json.dumps(dict(attributes), allow_nan=False, default=_plain, ensure_ascii=False)
            text.encode()
        except (ValueError, TypeError) as wrong:
            kind = TypeError if isinstance(wrong, TypeError) else ValueError
            raise kind(f"attributes: JSON cannot hold them: {wrong}") from None
        self._writer.set_attributes(bool(epoch), text)

    def epoch_end(self, step: int, time: float = 0.0) -> None:
        """Ends the open epoch and commits it: when this returns, its records are durable and readers see
        them.

        Parameters
        ----------
        step : int
            The simulation's; must grow from epoch to epoch.
        time : float
            The simulation's.
        """
        self._writer.epoch_end(operator.index(step), float(time))

    def close(self) -> None:
        """Closes the directory. Raises AbortedError if records after the last `epoch_end` are dropped."""
        self._writer.close()

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._writer.closed

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()
            return
        try:
            self.close()
        except Exception:  # noqa: BLE001: the first exception is the one to report
            pass

    def __repr__(self) -> str:
        return f"<swale.Writer {self._path!r}{': closed' if self.closed else ''}>"

    def _expect(self, dtype: Any) -> None:
        if dtype.hasobject:
            raise ValueError("array holds Python objects: give numbers of the schema's dtype")
        if self._dtype is None:
            return
        if _layout(dtype) == _layout(self._dtype):
            return
        swapped = dtype.newbyteorder("<")
        if dtype != swapped and _layout(swapped) == _layout(self._dtype):
            raise ValueError("array is big-endian: append array.astype(array.dtype.newbyteorder('<'))")
        raise ValueError(f"array is of dtype {dtype}, the schema is {self._dtype}: use array.astype(schema)")

    def _numbers(self, np: Any, keys: Any) -> Any:
        array = np.asarray(keys)
        wanted = _KEY_DTYPES[self._key]
        if array.dtype == wanted:
            return array
        if array.dtype.kind not in "iu" and array.size:
            raise TypeError(f"keys of dtype {array.dtype}: this directory's keys are integers ({self._key})")
        converted = array.astype(wanted)
        if (converted.astype(object) != array.astype(object)).any():
            raise ValueError(f"keys that are no {self._key}: the least is {array.min()}, the largest "
                             f"{array.max()}")
        return converted


def _plain(thing: Any) -> Any:
    """NumPy's numbers and arrays as Python's."""
    if hasattr(thing, "tolist"):
        return thing.tolist()
    raise TypeError(f"{type(thing).__name__} is none of its types")


def _layout(dtype: Any) -> Any:
    """Names, types and offsets: what must be equal for bytes to mean the same."""
    if dtype.names is None:
        return dtype
    return [(name, dtype.fields[name][0], dtype.fields[name][1]) for name in dtype.names], dtype.itemsize
