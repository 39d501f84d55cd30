"""Swale: massive directories of records, from Python.

A massive directory holds what a parallel job wrote, frame by frame: a value for each key in each epoch. Open
one, and ask:

>>> import swale
>>> with swale.open("run") as d:
...     d[4711]                                     # the trajectory of a key: a NumPy array
...     d.top("energy", 3)                          # the three largest of the last epoch
...     d.scan(where="energy > 0.4", epochs=-1)     # a table, for NumPy, pandas, polars, DuckDB, pyarrow

Nothing but the standard library is imported before it is needed.
"""
from __future__ import annotations

from ._directory import Directory, Epoch, open  # noqa: A004: as the builtin for files
from ._errors import (
    AbortedError,
    AlreadyExistsError,
    BusyError,
    CorruptionError,
    DeadlineExceededError,
    InternalError,
    InvalidArgumentError,
    NoSpaceError,
    NotFoundError,
    ResourceExhaustedError,
    StorageError,
    SwaleError,
    UnavailableError,
    UnsupportedError,
)
from ._import import Imported, import_file
from ._native import version as _version
from ._schema import Field, Schema
from ._table import Column, RecordStream, Table
from ._writer import Writer, create

__version__: str = _version()

__all__ = [
    "AbortedError",
    "AlreadyExistsError",
    "BusyError",
    "Column",
    "CorruptionError",
    "DeadlineExceededError",
    "Directory",
    "Epoch",
    "Field",
    "Imported",
    "InternalError",
    "InvalidArgumentError",
    "NoSpaceError",
    "NotFoundError",
    "RecordStream",
    "ResourceExhaustedError",
    "Schema",
    "StorageError",
    "SwaleError",
    "Table",
    "UnavailableError",
    "UnsupportedError",
    "Writer",
    "__version__",
    "create",
    "import_file",
    "open",
]

# What users see is in this module, wherever it is defined.
for _name in __all__:
    if isinstance(globals()[_name], type):
        globals()[_name].__module__ = __name__
