"""What an engine asks for, as far as the directory can choose by it: epochs, keys, and a condition of the
library.

Engines (polars, pyarrow, DuckDB) hand over the filter of a query. `_polars.py` and `_dataset.py` translate
theirs into the tree of this module, and `plan` makes of it what `Directory.stream` takes. The engine applies
its filter again to the rows that it gets, so the plan only has to keep every row that the filter keeps: a
part that is not understood becomes `UNKNOWN`, which keeps all. What differs between the engines and us:

- NaN is larger than all numbers in polars and DuckDB, and compares with nothing here. Where it may pass,
`greater` is
  asked as "not less or equal", which NaN meets.
- A float32 field may be compared with a number that float32 cannot hold, and engines round either side. So
the condition
  is asked with the number and its rounding, whichever keeps more.
"""
from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._directory import Directory
    from ._schema import Field

Value = int | float | str | bytes
_NEGATED = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}
MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
_OF_EPOCH = ("epoch", "step", "time")
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PARTS_MAX = 100  # of a condition; the library allows about three times as many
_DEPTH_MAX = 20


@dataclass(frozen=True)
class Unknown:
    """A condition that any record may meet."""


@dataclass(frozen=True)
class Compare:
    """A column compared with a value; `nan` says whether the engine lets NaN pass."""

    column: str
    operator: str
    value: Value
    nan: bool = False


@dataclass(frozen=True)
class OneOf:
    """A column that is one of some values."""

    column: str
    values: tuple[Value, ...]


@dataclass(frozen=True)
class All:
    """Conditions that hold together."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True)
class Any_:
    """Conditions of which one holds."""

    parts: tuple[Condition, ...]


Condition = Unknown | Compare | OneOf | All | Any_
UNKNOWN = Unknown()


@dataclass(frozen=True)
class Plan:
    """What to ask of the directory. An empty list of epochs or keys: nothing can meet the condition."""

    epochs: list[int]
    keys: list[Any] | None
    where: str | None

    @property
    def nothing(self) -> bool:
        """Whether no record can meet the condition."""
        return not self.epochs or self.keys == []


def plan(directory: Directory, condition: Condition, epochs: list[int], where: str | None = None) -> Plan:
    """The plan for a condition on some epochs; `where` is the caller's own condition, which all records meet.
    """
    rows = directory.epochs
    chosen = [number for number in epochs if _epoch_may(condition, rows[number], 0)]
    keys = _keys(condition, 0)
    if keys is not None:
        keys = _possible_keys(directory, keys)
        records = sum(rows[number].records for number in chosen)
        # A look-up costs as much as a scan of some hundred records, in each epoch.
        if len(keys) > 100 and len(keys) * len(chosen) * 200 > records:
            keys = None
    text = _where(directory, condition, 0)
    if text is not None and text.count(" ") > 6 * _PARTS_MAX:
        text = None
    both = [f"({part})" for part in (where, text) if part is not None]
    return Plan(chosen, keys, " and ".join(both) if both else None)


# ---- Epochs ----


def _epoch_may(condition: Condition, epoch: Any, depth: int) -> bool:
    """Whether a record of the epoch may meet the condition."""
    if depth > _DEPTH_MAX:
        return True
    if isinstance(condition, All):
        return all(_epoch_may(part, epoch, depth + 1) for part in condition.parts)
    if isinstance(condition, Any_):
        return any(_epoch_may(part, epoch, depth + 1) for part in condition.parts)
    if isinstance(condition, Unknown) or condition.column not in _OF_EPOCH:
        return True
    number = getattr(epoch, condition.column)
    if number is None or number != number:
        return True
    values = condition.values if isinstance(condition, OneOf) else (condition.value,)
    if any(isinstance(value, (str, bytes)) for value in values):
        return True
    if isinstance(condition, OneOf):
        return number in condition.values
    return _holds(number, condition.operator, condition.value)


def _holds(a: Any, operator: str, b: Any) -> bool:
    return bool({"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b, "==": a == b, "!=": a != b}[operator])


# ---- Keys ----


def _keys(condition: Condition, depth: int) -> list[Value] | None:
    """The keys that records which meet the condition may have; None: any."""
    if depth > _DEPTH_MAX:
        return None
    if isinstance(condition, Compare) and condition.column == "key" and condition.operator == "==":
        return [condition.value]
    if isinstance(condition, OneOf) and condition.column == "key":
        return list(dict.fromkeys(condition.values))
    if isinstance(condition, All):
        known = [keys for keys in (_keys(part, depth + 1) for part in condition.parts) if keys is not None]
        if not known:
            return None
        return [key for key in known[0] if all(key in other for other in map(set, known[1:]))]
    if isinstance(condition, Any_):
        found: dict[Value, None] = {}
        for part in condition.parts:
            keys = _keys(part, depth + 1)
            if keys is None:
                return None
            found.update(dict.fromkeys(keys))
        return list(found)
    return None


def _possible_keys(directory: Directory, keys: Iterable[Value]) -> list[Any]:
    """Those that a key of this directory can be, as it takes them."""
    kind = directory.key_type
    if kind in ("u64", "i64"):
        low, high = (0, 2**64) if kind == "u64" else (-2**63, 2**63)
        whole = [int(key) for key in keys if isinstance(key, (int, float)) and key == key
                 and abs(key) != math.inf
                 and key == int(key)]
        return [key for key in dict.fromkeys(whole) if low <= key < high]
    wanted = str if kind == "text" else bytes
    return [key for key in keys if isinstance(key, wanted)
            and 1 <= len(key.encode("utf-8", "surrogatepass") if isinstance(key, str) else key) <= 255]


# ---- Conditions of the library ----


def _where(directory: Directory, condition: Condition, depth: int) -> str | None:
    """Text that every record meets which meets the condition; None: any record may."""
    if depth > _DEPTH_MAX or isinstance(condition, Unknown):
        return None
    if isinstance(condition, All):
        texts = [text for text in (_where(directory, part, depth + 1) for part in condition.parts)
                 if text is not None]
        return _joined(texts, "and") if texts else None
    if isinstance(condition, Any_):
        found = [_where(directory, part, depth + 1) for part in condition.parts]
        known = [text for text in found if text is not None]
        return _joined(known, "or") if len(known) == len(found) and known else None
    if isinstance(condition, OneOf):
        if len(condition.values) > _PARTS_MAX or not condition.values:
            return None
        return _where(directory,
                      Any_(tuple(Compare(condition.column, "==", value) for value in condition.values)),
                      depth)
    return _compare(directory, condition)


def _joined(texts: list[str], word: str) -> str:
    return texts[0] if len(texts) == 1 else "(" + f" {word} ".join(texts) + ")"


def _compare(directory: Directory, condition: Compare) -> str | None:
    value = condition.value
    if isinstance(value, (str, bytes)) or isinstance(value, bool) or not math.isfinite(value):
        return None
    name, kind = _named(directory, condition.column)
    if name is None:
        return None
    if kind.startswith("f"):
        return _compare_float(name, kind, condition, value)
    if value != int(value) or (isinstance(value, float) and abs(value) > 2**53):
        return None
    number = str(int(value))
    return f"!({name} == {number})" if condition.operator == "!=" else f"{name} {condition.operator} {number}"


def _compare_float(name: str, kind: str, condition: Compare, value: int | float) -> str | None:
    try:
        number = float(value)
        rounded = struct.unpack("f", struct.pack("f", number))[0] if kind == "f4" else number
    except OverflowError:
        return None
    if number != value or not math.isfinite(rounded):
        return None
    low, high = min(number, rounded), max(number, rounded)
    operator = condition.operator
    if low != high:
        if operator == "!=":
            return None
        if operator == "==":
            return f"({name} >= {low!r} and {name} <= {high!r})"
        operator = operator[0] + "="  # the rounding may equal the number
    if operator in ("==", "!="):
        text = f"{name} == {low!r}"
        return f"!({text})" if operator == "!=" else text
    bound = high if operator[0] == "<" else low
    if condition.nan:
        return f"!({name} {_NEGATED[operator]} {bound!r})"
    return f"{name} {operator} {bound!r}"


def _named(directory: Directory, column: str) -> tuple[str | None, str]:
    """How conditions call a column, and its type; None: they cannot, or it is no number."""
    if column in (*_OF_EPOCH, "key") and column in directory.schema:
        return None, ""  # in conditions the name means the field
    if column in _OF_EPOCH:
        return column, "f8" if column == "time" else "i8"
    if column == "key":
        return ("key", "i8") if directory.key_type in ("u64", "i64") else (None, "")
    name = column[1:-1] if column.startswith("[") and column.endswith("]") else column
    field: Field | None = directory.schema.get(name)
    if field is None or field.count != 1 or "]" in name or "[" in name:
        return None, ""
    return (name if _PLAIN.fullmatch(name) and name == column and name not in _WORDS
            else f"[{name}]"), field.type


# Names that mean something else in a condition.
_WORDS = {"and", "or", "not", "epoch", "step", "time", "key", "value", "bytes", "u64", "u32", "i64", "i32",
          "abs", "sqrt", "has"}


def flat(kind: Callable[[tuple[Condition, ...]], Condition], parts: Iterable[Condition]) -> Condition:
    """All or Any_ of the parts, with parts of the same kind taken apart: chains of an engine are nested."""
    found: list[Condition] = []
    for part in parts:
        if type(part) is kind and isinstance(part, (All, Any_)):
            found += part.parts
        else:
            found.append(part)
    return found[0] if len(found) == 1 else kind(tuple(found))
