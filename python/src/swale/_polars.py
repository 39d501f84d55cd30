"""A directory as a polars LazyFrame, which reads what a query needs.

polars hands its predicate over as an expression; the only way into one is its JSON (`Expr.meta.serialize`),
whose form may change with polars. What is not understood is not pushed down. The predicate is applied to
every batch in any case, as polars does not do it again.
"""
from __future__ import annotations

import io
import json
import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from . import _lazy
from ._condition import MIRRORED, UNKNOWN, All, Any_, Compare, Condition, OneOf, flat, plan

if TYPE_CHECKING:
    from ._directory import Directory, Epochs

_OPERATORS = {"Eq": "==", "NotEq": "!=", "Lt": "<", "LtEq": "<=", "Gt": ">", "GtEq": ">="}
_NUMBERS = {"Int8", "Int16", "Int32", "Int64", "Int128", "UInt8", "UInt16", "UInt32", "UInt64", "Float64"}
_BETWEEN = {"Both": (">=", "<="), "Left": (">=", "<"), "Right": (">", "<="), "None": (">", "<")}


def scan(directory: Directory, epochs: Epochs, where: str | None) -> Any:
    """A LazyFrame of the records; `Directory.scan_polars` describes the arguments."""
    polars = _lazy.load("polars", "scan_polars()")
    plugins = _lazy.load("polars.io.plugins", "scan_polars()")
    directory._epochs(epochs)  # a mistake is told now, not when the frame is collected
    schema = polars.DataFrame(directory._empty(None, where)).schema

    def source(columns: list[str] | None, predicate: Any, n_rows: int | None,
               batch_size: int | None) -> Iterator[Any]:
        return _frames(directory, epochs, where, list(schema) if columns is None else columns, predicate,
                       n_rows, batch_size)

    return plugins.register_io_source(source, schema=schema)


def _frames(directory: Directory, epochs: Epochs, where: str | None, columns: list[str], predicate: Any,
            n_rows: int | None, batch_size: int | None) -> Iterator[Any]:
    polars = _lazy.load("polars", "scan_polars()")
    tree, predicate = _readable(polars, predicate)
    # n_rows counts rows before the predicate, so then none may be left out.
    condition = UNKNOWN if tree is None or n_rows is not None else condition_of(tree)
    chosen = directory._epochs(epochs)
    asked = plan(directory, condition, list(range(len(directory.epochs))) if chosen is None else chosen,
                 where)
    needed = list(dict.fromkeys([*columns, *(predicate.meta.root_names() if predicate is not None
                                             else [])])) or ["epoch"]
    yield polars.DataFrame(directory._empty(needed, where)).select(columns)
    if asked.nothing:
        return
    with directory._planned(asked, needed, batch_size or 0) as stream:
        left = n_rows
        for batch in stream:
            frame = polars.DataFrame(batch)
            if left is not None:
                frame = frame.head(left)
                left -= frame.height
            if predicate is not None:
                frame = frame.filter(predicate)
            yield frame.select(columns)
            if left == 0:
                return


def _readable(polars: Any, predicate: Any) -> tuple[Any, Any]:
    """The predicate's JSON (None: unknown), and the predicate to apply.

    A slice above a scan makes polars add a hint to the predicate that cannot be applied ("dynamic_pred"); it
    is dropped.
    """
    if predicate is None:
        return None, None
    try:
        tree = json.loads(predicate.meta.serialize(format="json"))
    except Exception:  # noqa: BLE001: polars raises its own and Rust's
        return None, predicate
    if "dynamic_pred" not in json.dumps(tree):
        return tree, predicate
    kept = _without_hints(tree)
    if kept is None:
        return None, None
    return kept, polars.Expr.deserialize(io.BytesIO(json.dumps(kept).encode()), format="json")


def _without_hints(tree: Any) -> Any:
    if isinstance(tree, dict) and "Display" in tree:
        return None
    binary = tree.get("BinaryExpr") if isinstance(tree, dict) else None
    if binary is not None and binary.get("op") == "And":
        left, right = _without_hints(binary["left"]), _without_hints(binary["right"])
        if left is None or right is None:
            return right if left is None else left
        return {"BinaryExpr": {**binary, "left": left, "right": right}}
    return tree


# ---- The tree of an expression ----


def condition_of(tree: Any) -> Condition:
    """What the tree means, as far as it is understood."""
    try:
        return _condition(tree)
    except (KeyError, TypeError, ValueError, AttributeError, struct.error, RecursionError):
        return UNKNOWN


def _condition(tree: Any) -> Condition:
    if "BinaryExpr" in tree:
        binary = tree["BinaryExpr"]
        if binary["op"] in ("And", "LogicalAnd"):
            return flat(All, [condition_of(binary["left"]), condition_of(binary["right"])])
        if binary["op"] in ("Or", "LogicalOr"):
            return flat(Any_, [condition_of(binary["left"]), condition_of(binary["right"])])
        operator = _OPERATORS[binary["op"]]
        left, right = binary["left"], binary["right"]
        if "Column" in left:
            return _compare(left["Column"], operator, _literal(right))
        return _compare(right["Column"], MIRRORED[operator], _literal(left))
    function = tree["Function"]
    kind = function["function"]["Boolean"]
    column = function["input"][0]["Column"]
    if "IsBetween" in kind:
        low, high = _BETWEEN[kind["IsBetween"]["closed"]]
        return All((_compare(column, low, _literal(function["input"][1])),
                    _compare(column, high, _literal(function["input"][2]))))
    if "IsIn" in kind:
        return OneOf(column, _literals(function["input"][1]))
    return UNKNOWN


def _compare(column: str, operator: str, value: int | float | str | bytes) -> Condition:
    """NaN is the largest number in polars, and equals itself."""
    if isinstance(value, float) and value != value:
        return UNKNOWN
    return Compare(column, operator, value, nan=operator in (">", ">=", "!="))


def _literal(tree: Any) -> int | float | str | bytes:
    literal = tree["Literal"]
    ((kind, value),) = (literal.get("Scalar") or literal["Dyn"]).items()
    if kind == "Float32":
        rounded: float = struct.unpack("f", struct.pack("f", value))[0]
        return rounded
    if kind in _NUMBERS and isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value) if kind == "Float64" else value
    if kind in ("String", "Str") and isinstance(value, str):
        return value
    if kind == "Binary":
        return bytes(value)
    raise ValueError(kind)


def _literals(tree: Any) -> tuple[int | float | str | bytes, ...]:
    """The values of a list, which JSON has as the bytes of an Arrow IPC stream; none of them is null or NaN.
    """
    polars = _lazy.load("polars", "scan_polars()")
    while "Alias" in tree:
        tree = tree["Alias"][0]
    series = polars.read_ipc_stream(io.BytesIO(bytes(tree["Literal"]["Scalar"]["List"]))).to_series()
    if series.dtype == polars.List:
        series = series.explode()
    if not (series.dtype.is_numeric() or series.dtype in (polars.String, polars.Binary)):
        raise ValueError(series.dtype)
    values = [value for value in series.to_list() if value is not None]
    if any(value != value for value in values):
        raise ValueError("NaN")
    return tuple(values)
