"""A directory as a pyarrow Dataset, which DuckDB and pyarrow ask with the filter of a query.

`Dataset` is a C++ class that Python can subclass only through one of its kinds: a bare subclass ends the
process. So ours is a FileSystemDataset of one fragment whose file does not exist. `scanner` is what DuckDB
and pyarrow's own methods call; whoever goes past it meets the missing file, an error and not wrong rows.

A filter is an `Expression`, which can only be looked into by what pickle makes of it: a record batch whose
metadata are the tree in prefix order, and whose columns are its literals. (Substrait has no fixed-size lists
and no unsigned integers.)
"""
from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from . import _lazy
from ._condition import MIRRORED, UNKNOWN, All, Any_, Compare, Condition, OneOf, flat, plan

if TYPE_CHECKING:
    from ._directory import Directory, Epochs

_OPERATORS = {"equal": "==", "not_equal": "!=", "less": "<", "less_equal": "<=", "greater": ">",
              "greater_equal": ">="}
_NO_FILE = "/ask the scanner of this dataset: a Swale directory has no files that pyarrow reads"


def make(directory: Directory, epochs: Epochs, where: str | None) -> Any:
    """A Dataset of the records; `Directory.dataset` describes the arguments."""
    directory._epochs(epochs)
    return _class()(directory, epochs, where, None)


@functools.cache
def _class() -> Any:
    """The class, made when pyarrow is there."""
    pyarrow = _lazy.load("pyarrow", "dataset()")
    datasets = _lazy.load("pyarrow.dataset", "dataset()")
    filesystems = _lazy.load("pyarrow.fs", "dataset()")

    class SwaleDataset(datasets.FileSystemDataset):  # type: ignore[misc, name-defined]
        """The records of a massive directory, for pyarrow and DuckDB. `Directory.dataset` makes it."""

        def __init__(self, directory: Directory, epochs: Epochs, where: str | None, filter: Any) -> None:
            files = datasets.IpcFileFormat()
            nowhere = filesystems.LocalFileSystem()
            fragment = files.make_fragment(_NO_FILE, filesystem=nowhere)
            schema = pyarrow.schema(directory._empty(None, where))
            super().__init__([fragment], schema, files, nowhere)
            self._asked = directory, epochs, where
            self._filter = filter

        def scanner(self, columns: Any = None, filter: Any = None, batch_size: int = 65_536,
                    **options: Any) -> Any:
            """A scan that reads what the columns and the filter need. It can be read once."""
            both = self._filter if filter is None else filter
            if self._filter is not None and filter is not None:
                both = self._filter & filter
            reader = _reader(*self._asked, columns, both, min(batch_size, 1 << 20))
            return datasets.Scanner.from_batches(
                reader, columns=self.schema.names if columns is None else columns, filter=both,
                batch_size=batch_size, use_threads=options.get("use_threads", True),
                memory_pool=options.get("memory_pool"))

        def filter(self, expression: Any) -> Any:
            """A dataset of the records that meet the expression, too."""
            both = expression if self._filter is None else self._filter & expression
            return SwaleDataset(*self._asked, both)

        def __reduce__(self) -> Any:
            return _again, (*self._asked, self._filter)

    return SwaleDataset


def _again(directory: Directory, epochs: Epochs, where: str | None, filter: Any) -> Any:
    return _class()(directory, epochs, where, filter)


def _reader(directory: Directory, epochs: Epochs, where: str | None, columns: Any, filter: Any,
            batch_rows: int) -> Any:
    """The records that may meet the filter, with the columns that it and the projection name."""
    pyarrow = _lazy.load("pyarrow", "dataset()")
    known = {column.name for column in directory._empty(None, where).columns}
    condition: Condition = UNKNOWN
    expressions = list(columns.values()) if isinstance(columns, dict) else []
    names: set[str] | None = known if columns is None else set() if isinstance(columns, dict) else set(
        columns)
    if filter is not None:
        tree = _tree(filter)
        condition = condition_of(tree)
        names = None if tree is None else names and names | _fields(tree) if names else _fields(tree)
    for expression in expressions:
        tree = _tree(expression)
        names = None if tree is None or names is None else names | _fields(tree)
    needed = sorted(known if names is None else names & known) or ["epoch"]
    chosen = directory._epochs(epochs)
    asked = plan(directory, condition, list(range(len(directory.epochs))) if chosen is None else chosen,
                 where)
    if asked.nothing:
        return pyarrow.RecordBatchReader.from_stream(directory._empty(needed, where))
    return pyarrow.RecordBatchReader.from_stream(directory._planned(asked, needed, batch_rows))


# ---- The tree of an expression ----

Tree = tuple[Any, ...]  # ("field", name), ("literal", value), ("call", function, parts, options)


def _tree(expression: Any) -> Tree | None:
    """None: the expression is not understood."""
    pyarrow = _lazy.load("pyarrow", "dataset()")
    try:
        batch = pyarrow.ipc.open_file(expression.__reduce__()[1][0]).get_batch(0)
        words = iter(_metadata(batch.schema))
        tree = _part(next(words), words, batch)
        return tree if next(words, None) is None else None
    except Exception:  # noqa: BLE001: nothing of it is documented; what is wrong is not pushed down
        return None


def _metadata(schema: Any) -> Iterator[tuple[str, str]]:
    """The pairs of the schema's metadata in order: pyarrow's dict of them has each name once."""
    capsule = schema.__arrow_c_schema__()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    # struct ArrowSchema: format, name, metadata, ...
    at = ctypes.cast(pointer(capsule, b"arrow_schema"), ctypes.POINTER(ctypes.c_void_p))[2]
    if not at:
        return
    count = struct.unpack("=i", ctypes.string_at(at, 4))[0]
    at += 4
    texts = []
    for _ in range(2 * count):
        length = struct.unpack("=i", ctypes.string_at(at, 4))[0]
        texts.append(ctypes.string_at(at + 4, length).decode())
        at += 4 + length
    yield from zip(texts[::2], texts[1::2])


def _part(word: tuple[str, str], words: Iterator[tuple[str, str]], batch: Any) -> Tree:
    kind, text = word
    if kind == "field_ref":
        return "field", text
    if kind == "literal":
        return "literal", batch.column(int(text))[0].as_py()
    if kind != "call":
        raise ValueError(kind)
    parts: list[Tree] = []
    options = None
    for word in words:
        if word == ("end", text):
            return "call", text, parts, options
        if word[0] == "options":
            options = batch.column(int(word[1]))[0].as_py()
        else:
            parts.append(_part(word, words, batch))
    raise ValueError("no end")


def _fields(tree: Tree) -> set[str]:
    if tree[0] == "field":
        return {tree[1]}
    return set().union(*map(_fields, tree[2])) if tree[0] == "call" else set()


def condition_of(tree: Tree | None) -> Condition:
    """What the tree means, as far as it is understood. Comparisons with NaN are false in pyarrow, but for !=.
    """
    if tree is None or tree[0] != "call":
        return UNKNOWN
    _, name, parts, options = tree
    if name in ("and", "and_kleene"):
        return flat(All, map(condition_of, parts))
    if name in ("or", "or_kleene"):
        return flat(Any_, map(condition_of, parts))
    if name in _OPERATORS and len(parts) == 2:
        a, b = parts
        operator = _OPERATORS[name]
        if a[0] == "literal":
            a, b, operator = b, a, MIRRORED[operator]
        if a[0] == "field" and b[0] == "literal" and _is_value(b[1]):
            return Compare(a[1], operator, b[1], nan=operator == "!=")
    if name == "is_in" and parts[0][0] == "field" and all(map(_is_value, options["value_set"])):
        return OneOf(parts[0][1], tuple(options["value_set"]))
    # DuckDB's IN: if_else(is_valid(column), is_in(column, values), null).
    if name == "if_else" and parts[0][:2] == ("call", "is_valid") and parts[2] == ("literal", None):
        return condition_of(parts[1])
    return UNKNOWN


def _is_value(value: Any) -> bool:
    """Whether it is a number or text; NaN, null and dates are not."""
    return isinstance(value, (int, float, str, bytes)) and not isinstance(value, bool) and value == value
