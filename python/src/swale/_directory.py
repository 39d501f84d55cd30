"""A massive directory, open for reading."""
from __future__ import annotations

import difflib
import html
import json
import operator
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, SupportsIndex

from . import _lazy, _native
from ._condition import Plan
from ._paths import path_bytes
from ._schema import Schema, row_dtype
from ._table import RecordStream, Table

Epochs = int | slice | range | Iterable[int] | None
"""Which epochs: a number (-1 is the last one), a slice, a range, several numbers, or None for all."""


class _Epoch(NamedTuple):
    epoch: int
    step: int | None
    time: float
    records: int


class Epoch(_Epoch):
    """What one collective commit made visible: usually a frame of the simulation.

    Attributes
    ----------
    epoch : int
        Its number, from 0.
    step : int or None
        The simulation's; None: unknown (`swale repair` found the epoch).
    time : float
        The simulation's.
    records : int
        Over all ranks.
    """

    _read: Callable[[int], dict[str, Any]] | None = None

    @property
    def attributes(self) -> dict[str, Any]:
        """The JSON document that the epoch was given (`Writer.set_attributes`); read when it is asked for."""
        return {} if self._read is None else self._read(self.epoch)

    def __reduce__(self) -> tuple[Any, ...]:
        return Epoch, tuple(self)


# noqa: A001: as the builtin for files
def open(path: str | os.PathLike[str], *, options: str = "") -> Directory:  # noqa: A001
    """Opens the massive directory at `path` for reading. A job may be writing to it.

    Parameters
    ----------
    path : str or path-like
        The directory.
    options : str
        As ``"imd.map=auto"``; ``swale config`` lists them.

    Returns
    -------
    Directory
        Closes itself at the end of a ``with`` block.

    Raises
    ------
    NotFoundError
        If there is no such directory. It is also a FileNotFoundError.
    UnsupportedError
        If a newer Swale wrote it.

    Examples
    --------
    >>> import swale
    >>> with swale.open("run") as d:
    ...     path = d[4711]          # a NumPy array, one row for each epoch
    ...     hot = d.scan(where="energy > 0.4", epochs=-1)
    """
    return Directory(path, options=options)


class Directory:
    """A massive directory, open for reading as of its last committed epoch; made by `swale.open`.

    ``d[key]`` is the trajectory of a key: a NumPy structured array with the fields epoch, step and time, and
    those of the schema, one row for each value, ordered by epoch. ``key in d`` asks whether the key has a
    value. ``len(d)`` is the number of records in all epochs; it reads nothing.

    Several threads may use a directory at once. It can be pickled: the copy opens the directory anew.
    """

    def __init__(self, path: str | os.PathLike[str], *, options: str = "") -> None:
        self._path = os.fsdecode(os.fspath(path))
        self._options = options
        self._reader = _native.Reader(path_bytes(path), options)
        self._schema = Schema(self._reader.schema())
        self._key_type = self._reader.key_type()
        self._dtype: Any = None

    # ---- What there is ----

    @property
    def path(self) -> str:
        """The path that the directory was opened with."""
        return self._path

    @property
    def schema(self) -> Schema:
        """The fields of the values."""
        return self._schema

    @property
    def key_type(self) -> str:
        """``"u64"``, ``"i64"``, ``"text"`` or ``"bytes"``; empty if the directory does not say."""
        return self._key_type

    @property
    def epochs(self) -> tuple[Epoch, ...]:
        """The committed epochs, as of the opening or the last `refresh`."""
        epochs = tuple(Epoch(*self._reader.epoch(i)) for i in range(self._reader.epoch_count()))
        for epoch in epochs:
            epoch._read = self._attributes_of
        return epochs

    @property
    def attributes(self) -> dict[str, Any]:
        """The JSON document that the directory was given (`Writer.set_attributes`), as of the last epoch."""
        return dict(json.loads(self._reader.attributes(False, -1)))

    def _attributes_of(self, epoch: int) -> dict[str, Any]:
        return dict(json.loads(self._reader.attributes(True, epoch)))

    def _described(self, epoch: int) -> dict[str, Any]:
        """What is known of an epoch: the directory's attributes as of it, and its own, which count more."""
        return {**json.loads(self._reader.attributes(False, epoch)), **self._attributes_of(epoch)}

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._reader.closed

    def __len__(self) -> int:
        return sum(epoch.records for epoch in self.epochs)

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        if self.closed:
            return f"<swale.Directory {self._path!r}: closed>"
        epochs = self.epochs
        return (f"<swale.Directory {self._path!r}: {len(epochs)} epochs, {len(self):,} records, keys "
                f"{self._key_type or 'of no declared type'}, schema {str(self._schema) or 'none'!r}>")

    def _repr_html_(self) -> str:
        fields = "".join(
            f"<tr><td>{html.escape(field.name)}</td>"
            f"<td>{field.type}{f' × {field.count}' if field.count != 1 else ''}</td>"
            f"<td>{html.escape(field.unit)}</td></tr>" for field in self._schema.values())
        return (f"<p><b>{html.escape(self._path)}</b>: "
                f"{'closed' if self.closed else html.escape(repr(self)[1:-1])}</p>"
                "<table><thead><tr><th>field</th><th>type</th><th>unit</th></tr></thead>"
                f"<tbody>{fields}</tbody></table>")

    # ---- One key ----

    def __getitem__(self, key: Any) -> Any:
        return self.get(key)

    def get(self, key: Any, *, epoch: int | None = None) -> Any:
        """The trajectory of a key, or its values in one epoch.

        Parameters
        ----------
        key : int, str or bytes
            As the directory's keys are (`key_type`).
        epoch : int, optional
            Only this one; -1 is the last.

        Returns
        -------
        numpy.ndarray
            Structured: epoch, step, time, then the fields of the schema, or ``value`` without one. An unknown
            step is -2**63.

        Raises
        ------
        KeyError
            If the key has no value.
        """
        number = -1 if epoch is None else self._epoch(epoch)
        if self._schema:
            rows = self._reader.rows(key, number, self._schema.nbytes)
            if rows is None:
                raise KeyError(key)
            if self._dtype is None:
                self._dtype = row_dtype(self._schema)
            return _lazy.numpy().frombuffer(rows, dtype=self._dtype)
        values = self._reader.values(key, number)
        if values is None:
            raise KeyError(key)
        dtype = [("epoch", "<i8"), ("step", "<i8"), ("time", "<f8"), ("value", "O")]
        return _lazy.numpy().array(values, dtype=dtype)

    def __contains__(self, key: object) -> bool:
        return self._reader.contains(key)

    # ---- Many records ----

    def get_many(self, keys: Any, *, epochs: Epochs = None, columns: Iterable[str] | None = None,
                 where: str | None = None, threads: int = 0) -> Table:
        """The records of many keys, as one long table in the order of the keys, and for each by epoch.

        Parameters
        ----------
        keys : iterable or numpy.ndarray
            Keys without a value have no row.
        epochs, columns, where, threads
            As in `scan`.
        """
        return self._stream(epochs, columns, where, threads, 0, self._encode(keys)).read_all()

    def scan(self, *, epochs: Epochs = None, columns: Iterable[str] | None = None, where: str | None = None,
             threads: int = 0) -> Table:
        """The records of some epochs, in storage order, as a table in memory.

        Parameters
        ----------
        epochs : int, slice, range or iterable of int, optional
            -1 is the last; all if not given.
        columns : iterable of str, optional
            ``epoch``, ``step``, ``time``, ``key``, fields of the schema, ``value``; all but ``value`` if not
            given.
        where : str, optional
            Only records that meet this condition, as ``"energy > 1.5 and key < 100"``. ``man swale-scan``
            describes conditions. A comparison with NaN, or with a field that the value lacks, is false.
        threads : int
            0: one for each processor that this process may use.

        Raises
        ------
        InvalidArgumentError
            For an unknown column or a wrong condition; the text says what was meant.
        CorruptionError
            If a file is damaged; it says where.

        Examples
        --------
        >>> import swale
        >>> d = swale.open("run")
        >>> hot = d.scan(epochs=-1, columns=["key", "energy"], where="energy > 0.4")
        >>> hot["energy"].mean()  # doctest: +SKIP
        """
        return self._stream(epochs, columns, where, threads, 0, None).read_all()

    def stream(self, *, epochs: Epochs = None, columns: Iterable[str] | None = None, where: str | None = None,
               threads: int = 0, batch_rows: int = 0, part: int = 0, parts: int = 1) -> RecordStream:
        """As `scan`, but the records come batch by batch, so that they need not fit into memory.

        Parameters
        ----------
        batch_rows : int
            At most so many rows in a batch; 0: 65,536.
        part, parts : int
            Part `part` (from 0) of `parts`: each record is in one of them, so that processes may share a
            query.
        """
        return self._stream(epochs, columns, where, threads, batch_rows, None, part, parts)

    def top(self, field: str, k: int = 10, *, epoch: int = -1, smallest: bool = False) -> Table:
        """The `k` records of one epoch with the largest (or smallest) numbers in a field, the best first.

        Reads a few blocks if the directory was made with extrema of the field, else the epoch.

        Parameters
        ----------
        field : str
            A field of the schema, or an element of an array: ``"velocity[0]"``.
        """
        number = self._epoch(epoch)
        self._expect_field(_text(field, "field: expected a field's name"))
        best = _count(k, "k")
        return RecordStream(lambda: self._reader.top(field, number, best, smallest)).read_all()

    def keys(self, *, epoch: int = -1) -> Any:
        """The distinct keys of one epoch, in storage order: a NumPy array of integers, or a list of str or
        bytes.
        """
        return self._keys(self._reader.keys(self._epoch(epoch)))

    def sample(self, n: int, *, epoch: int = -1, seed: int = 1) -> Any:
        """`n` distinct keys of one epoch, drawn at random: all are equally likely, and the same seed draws
        the same.
        """
        return self._keys(self._reader.sample(self._epoch(epoch), _count(n, "n"), operator.index(seed)
                                              % 2**64))

    # ---- Other engines ----

    def scan_polars(self, *, epochs: Epochs = None, where: str | None = None) -> Any:
        """As a `polars.LazyFrame`, which reads the columns, epochs, keys and records that its query needs.

        ``key == ...`` and ``key.is_in(...)`` become look-ups in the index, comparisons of ``epoch``, ``step``
        and ``time`` choose epochs, and comparisons of fields conditions. polars gets only records that may
        pass, and filters again.

        Parameters
        ----------
        epochs, where
            As in `scan`; together with what the query asks for.

        Examples
        --------
        >>> import polars as pl
        >>> import swale
        >>> d = swale.open("run")
        >>> d.scan_polars().filter(pl.col("key") == 4711, pl.col("step") > 100).collect()  # doctest: +SKIP
        """
        from . import _polars

        return _polars.scan(self, epochs, where)

    def to_dask(self, *, epochs: Epochs = None, columns: Iterable[str] | None = None,
                where: str | None = None) -> Any:
        """As a `dask.dataframe.DataFrame` with a partition for each epoch, read when it is needed.

        Parameters
        ----------
        epochs, columns, where
            As in `scan`.
        """
        frame = _lazy.load("dask.dataframe", "to_dask()")
        chosen = self._epochs(epochs)
        names = None if columns is None else [columns] if isinstance(columns, str) else list(columns)
        meta = self._empty(names, where).to_pandas()
        numbers = list(range(self._reader.epoch_count())) if chosen is None else chosen
        if not numbers:
            return frame.from_pandas(meta, npartitions=1)
        return frame.from_map(_EpochFrame(self, names, where), numbers, meta=meta)

    def dataset(self, *, epochs: Epochs = None, where: str | None = None) -> Any:
        """As a `pyarrow.dataset.Dataset`, which pyarrow and DuckDB ask for the columns and records that a
        query needs.

        ``key = ...`` and ``key IN (...)`` become look-ups in the index, comparisons of ``epoch``, ``step``
        and ``time`` choose epochs, and comparisons of fields conditions. DuckDB hands over ``<``, ``<=`` and
        ``=`` on floats but not ``>``, since NaN is its largest number: write such a condition into `where`.

        Parameters
        ----------
        epochs, where
            As in `scan`; together with what the query asks for.

        Examples
        --------
        >>> import duckdb
        >>> import swale
        >>> run = swale.open("run").dataset()
        >>> duckdb.sql("select step, energy from run where key = 4711")  # doctest: +SKIP
        """
        from . import _dataset

        return _dataset.make(self, epochs, where)

    def export(self, path: str | os.PathLike[str], *, format: str | None = None, epochs: Epochs = None,
               keys: Any = None, columns: Iterable[str] | None = None, where: str | None = None,
               progress: Callable[[int, int], None] | None = None) -> int:
        """Writes records into a file, batch by batch. The file appears under its name when it is finished.

        Parameters
        ----------
        path : str or path-like
            Ends in .parquet, .arrow, .csv, .npy, .extxyz, .lammpstrj, .h5md, .hdf5 or .vtkhdf.
        format : str, optional
            ``"parquet"``, ``"arrow"``, ``"csv"`` or ``"npy"``; or, with a frame for each epoch, sorted by
            key, ``"extxyz"``, ``"lammpstrj"``, ``"h5md"``, ``"hdf5"`` (H5Part's layout), ``"openpmd"`` or
            ``"vtkhdf"``. Frames take positions, box and units from the attributes, and one frame is in
            memory. Whatever the ending is.
        keys : iterable or numpy.ndarray, optional
            Only records of these keys, in their order.
        epochs, columns, where
            As in `scan`.
        progress : callable, optional
            Called with the records written, and those that there are.

        Returns
        -------
        int
            How many records were written.

        Raises
        ------
        ValueError
            If the format cannot hold what is asked for: the text says what, and what to do.
        """
        from . import _export

        return _export.export(self, path, format=format, epochs=epochs, keys=keys, columns=columns,
                              where=where, progress=progress)

    # ---- Pictures ----

    def report(self, path: str | os.PathLike[str], *, keys: Any = None, fields: Iterable[str] | None = None,
               progress: Callable[[int, int], None] | None = None) -> int:
        """Writes a report on the run: one HTML file that needs nothing else.

        It shows what the job wrote epoch by epoch, where the time went, the balance over ranks, what a
        look-up in the index costs, and trajectories, which people choose among in the page.

        Parameters
        ----------
        keys : iterable or numpy.ndarray, optional
            Whose trajectories, up to 1,000; of some at random if not given.
        fields : iterable of str, optional
            The numbers that these have, up to 12: fields, or elements of arrays (``"v[0]"``).
        progress : callable, optional
            Called with the epochs that were read, and those that there are.

        Returns
        -------
        int
            The bytes of the file, at most 2 MB.

        Raises
        ------
        KeyError
            If a key has no value in any epoch that is shown.
        """
        from . import _report

        return _report.write(self, path, keys=keys, fields=fields, progress=progress)

    def plot(self, keys: Any, *, fields: Iterable[str] | None = None, path: Sequence[str] | str
             | None = "auto", epochs: Epochs = None, background: bool = True) -> Any:
        """Draws the trajectories of keys: their path in a plane, and fields against time.

        Parameters
        ----------
        keys : iterable or numpy.ndarray
            More than twelve are coloured in their order, without a legend.
        fields : iterable of str, optional
            Fields, or elements of arrays (``"v[0]"``), to draw against time; those that say most if not
            given.
        path : pair of str, optional
            The two fields of the plane; ``x`` and ``y``, or the first two elements of ``position``, if not
            given and there are such. None: no plane.
        epochs
            As in `scan`.
        background : bool
            Whether grey dots show where other keys were in the first of the epochs.

        Returns
        -------
        matplotlib.figure.Figure
            ``savefig`` writes it.

        Raises
        ------
        KeyError
            If a key has no value.

        Examples
        --------
        >>> import swale
        >>> d = swale.open("run")
        >>> d.plot(d.top("energy", 3)["key"]).savefig("best.png")  # doctest: +SKIP
        """
        from . import _plots

        return _plots.trajectories(self, keys, fields=fields, path=path, epochs=epochs, background=background)

    def histogram(self, field: str, *, epochs: Epochs = -1, bins: int = 100, where: str | None = None,
                  log: bool = False) -> Any:
        """Draws how often the numbers of a field occur, in one epoch or, one line each, in up to eight.

        Reads the epochs twice, batch by batch. NaN, infinities and missing fields are left out, and the title
        says how many.

        Parameters
        ----------
        field : str
            A field of the schema, or an element of an array: ``"velocity[0]"``.
        bins : int
            Between the least and the largest number of all epochs; fewer if there are fewer integers.
        where
            As in `scan`.
        log : bool
            Whether the axis of counts is logarithmic.

        Returns
        -------
        matplotlib.figure.Figure
        """
        from . import _plots

        return _plots.histogram(self, field, epochs=epochs, bins=bins, where=where, log=log)

    # ---- The rest ----

    def stats(self) -> dict[str, int]:
        """The requests to storage since the directory was opened."""
        return self._reader.stats()

    def epoch_stats(self, epoch: int = -1) -> dict[str, dict[str, Any]]:
        """What an epoch cost its writers, by the counter's name: its unit, the sum over ranks, the least and
        the most of a rank, and which rank that was (``min_rank``, ``max_rank``)."""
        return dict(json.loads(self._reader.epoch_stats(self._epoch(epoch)))["stats"])

    def warm(self, epochs: Epochs = None) -> int:
        """Reads the index of some epochs (all if not given) into the cache of this process, the first ones
        first, until no more fits (option ``imd.cache``): looking up a key then reads no more than its
        records. Returns how many bytes of the cache they take.
        """
        return self._reader.warm([-1] if (chosen := self._epochs(epochs)) is None else chosen)

    def refresh(self) -> bool:
        """Makes epochs visible that were committed since. Whether anything has changed."""
        return self._reader.refresh() != 0

    def close(self) -> None:
        """Closes the directory. Tables, arrays and streams of it stay valid."""
        self._reader.close()

    def __enter__(self) -> Directory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (self._path, self._options)

    # ---- Arguments ----

    def _stream(self, epochs: Epochs, columns: Iterable[str] | None, where: str | None, threads: int,
                batch_rows: int, keys: tuple[bytes, list[int]] | None, part: int = 0,
                parts: int = 1) -> RecordStream:
        if isinstance(columns, str):
            columns = [columns]
        names = None if columns is None else [_text(name, "columns: expected names of columns")
                                              for name in columns]
        if where is not None:
            _text(where, "where: expected a condition as text, like 'x > 1'")
        chosen = self._epochs(epochs)
        rows, workers = _count(batch_rows, "batch_rows"), _count(threads, "threads")
        which, of = _count(part, "part"), _count(parts, "parts")
        if which >= of:
            raise ValueError(f"part {which} of {of}: expected 1 part or more, numbered from 0")
        return RecordStream(lambda: self._reader.stream(chosen, keys, names, where, rows, workers, which, of))

    def _planned(self, plan: Plan, columns: list[str], batch_rows: int) -> RecordStream:
        """The records that a plan asks for."""
        keys = None if plan.keys is None else self._encode(plan.keys)
        return self._stream(plan.epochs, columns, plan.where, 0, batch_rows, keys)

    def _empty(self, columns: list[str] | None, where: str | None) -> Table:
        """No record, with the columns; a wrong condition or column is told."""
        stream = self._stream(None, columns, where, 0, 0, None)
        return Table(stream._stream.schema(), list(stream.columns), [])

    def _epoch(self, epoch: SupportsIndex) -> int:
        count = self._reader.epoch_count()
        number = operator.index(epoch)
        if not -count <= number < count:
            raise IndexError(f"no epoch {number}: {self._path} has {count} committed epochs" +
                             (f", from 0 to {count - 1}; -1 is the last" if count else ""))
        return number % count

    def _epochs(self, epochs: Epochs) -> list[int] | None:
        if epochs is None:
            return None
        if isinstance(epochs, slice):
            chosen = list(range(self._reader.epoch_count())[epochs])
        elif isinstance(epochs, Iterable):
            chosen = [self._epoch(epoch) for epoch in epochs]
        else:
            chosen = [self._epoch(epochs)]
        if not chosen:
            raise ValueError(f"epochs {epochs!r} selects none of the {self._reader.epoch_count()} epochs")
        return chosen

    def _expect_field(self, field: str) -> None:
        if not self._schema:
            raise ValueError(f"{self._path} was made without a schema, so no field can be asked for")
        name = field.partition("[")[0]
        if name not in self._schema:
            meant = difflib.get_close_matches(name, self._schema, 1, 0)
            raise ValueError(f"no field {name!r}; did you mean {meant[0]!r}? The fields are "
                             f"{', '.join(self._schema)}")

    def _encode(self, keys: Any) -> tuple[bytes, list[int]]:
        if isinstance(keys, (str, bytes)) or not hasattr(keys, "__iter__"):
            raise TypeError("keys: expected several keys, got one; write [key]")
        if self._key_type in ("u64", "i64") and hasattr(keys, "dtype") and getattr(keys, "ndim", 0) == 1:
            kind = "<u8" if self._key_type == "u64" else "<i8"
            if keys.dtype.kind not in "iu":
                raise TypeError(f"keys of dtype {keys.dtype}: this directory's keys are integers "
                                f"({self._key_type})")
            if len(keys) and self._key_type == "u64" and keys.dtype.kind == "i" and keys.min() < 0:
                raise ValueError(f"key {keys.min()}: this directory's keys are integers from 0 to 2**64-1")
            if len(keys) and self._key_type == "i64" and keys.dtype == "u8" and keys.max() >= 2**63:
                raise ValueError(f"key {keys.max()}: this directory's keys are integers from -2**63 to "
                                 f"2**63-1")
            return keys.astype(kind).tobytes(), []
        return self._reader.encode(keys)

    def _keys(self, found: bytearray | list[Any]) -> Any:
        if isinstance(found, list):
            return found
        return _lazy.numpy().frombuffer(found, dtype="<u8" if self._key_type == "u64" else "<i8")


class _EpochFrame:
    """Reads an epoch as a `pandas.DataFrame`: a task of Dask, which may run in another process."""

    def __init__(self, directory: Directory, columns: list[str] | None, where: str | None) -> None:
        self._directory, self._columns, self._where = directory, columns, where

    def __call__(self, epoch: int) -> Any:
        return self._directory.scan(epochs=epoch, columns=self._columns, where=self._where,
                                    threads=1).to_pandas()


def _text(given: object, expected: str) -> str:
    if not isinstance(given, str):
        raise TypeError(f"{expected}, got {given!r}")
    return given


def _count(given: SupportsIndex, name: str) -> int:
    number = operator.index(given)
    if not 0 <= number < 2**31:
        raise ValueError(f"{name} is {number}: expected 0 (the default) or more")
    return number


def _reopen(path: str, options: str) -> Directory:
    return Directory(path, options=options)
