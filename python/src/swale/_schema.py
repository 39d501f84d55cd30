"""What the values of a directory consist of."""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import _lazy

_TYPES = ("f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")
_PADDING = "_"


@dataclass(frozen=True)
class Field:
    """A number, or an array of numbers, in each value.

    Attributes
    ----------
    name : str
    type : str
        ``"f8"``, ``"u4"``, ...: as in NumPy.
    count : int
        How many; 1 is a number, more are an array.
    unit : str
        As the directory was made with; may be empty.
    offset : int
        Of its first byte in the value.
    """

    name: str
    type: str
    count: int
    unit: str
    offset: int


class Schema(Mapping[str, Field]):
    """The fields of a directory's values, by name. Empty if the directory was made without a schema.

    Examples
    --------
    >>> import swale
    >>> d = swale.open("run")
    >>> list(d.schema)
    ['x', 'y', 'energy']
    >>> d.schema["energy"].unit
    'J'
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._fields: dict[str, Field] = {}
        self._bytes = 0
        self._any_length = False
        for part in filter(None, text.split(";")):
            self._add(*(part.split(":", 2) + [""])[:3])

    def _add(self, name: str, kind: str, unit: str) -> None:
        if name == _PADDING and kind == "*":
            self._any_length = True
            return
        if name == _PADDING and kind.isdigit():
            kind = f"u1x{kind}"
        base, _, count = kind.partition("x")
        field = Field(name, base, int(count or 1), unit, self._bytes)
        self._bytes += int(base[1:]) * field.count
        if name != _PADDING:
            self._fields[name] = field

    def __getitem__(self, name: str) -> Field:
        return self._fields[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"swale.Schema({self._text!r})"

    @property
    def nbytes(self) -> int:
        """The length of a value that has all fields."""
        return self._bytes

    @property
    def any_length(self) -> bool:
        """Whether values may be shorter (then they lack fields) or longer."""
        return self._any_length

    @property
    def dtype(self) -> Any:
        """The NumPy dtype of a value."""
        return _dtype(list(self._fields.values()), 0, self._bytes)


def _dtype(fields: list[Field], offset: int, nbytes: int, head: Sequence[tuple[str, str]] = ()) -> Any:
    np = _lazy.numpy()
    names = [name for name, _ in head]
    formats: list[Any] = [kind for _, kind in head]
    offsets = [8 * i for i in range(len(head))]
    for field in fields:
        names.append(f"[{field.name}]" if field.name in names else field.name)
        formats.append(f"<{field.type}" if field.count == 1 else (f"<{field.type}", (field.count,)))
        offsets.append(offset + field.offset)
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": offset + nbytes})


def row_dtype(schema: Schema) -> Any:
    """The dtype of a trajectory's rows: epoch, step and time, then the value."""
    head = [("epoch", "<i8"), ("step", "<i8"), ("time", "<f8")]
    return _dtype(list(schema.values()), 24, schema.nbytes, head)


def schema_text(dtype: Any, units: Mapping[str, str]) -> str:
    """The schema of values of this dtype, which must be structured, as the option imd.schema.

    Raises
    ------
    ValueError
        For a dtype that a schema cannot describe; the text says what to change.
    """
    np = _lazy.numpy()
    dtype = np.dtype(dtype)
    if dtype.names is None:
        raise ValueError(f"dtype {dtype} has no fields: give a structured one, as [('x', 'f8'), ('id', "
                         f"'u4')]")
    unknown = sorted(set(units) - set(dtype.names))
    if unknown:
        raise ValueError(f"units names {unknown[0]!r}, but the fields are {', '.join(dtype.names)}")
    parts: list[str] = []
    end = 0
    for name, offset in sorted(((name, dtype.fields[name][1]) for name in dtype.names),
                               key=lambda pair: pair[1]):
        if offset < end:
            raise ValueError(f"field {name!r} overlaps the one before it: fields must follow one another")
        if offset > end:
            parts.append(f"{_PADDING}:{offset - end}")
        kind, count = _field_type(name, dtype.fields[name][0])
        text = f"{name}:{kind}" + (f"x{count}" if count != 1 else "")
        parts.append(text + (f":{units[name]}" if units.get(name) else ""))
        end = offset + dtype.fields[name][0].itemsize
    if dtype.itemsize > end:
        parts.append(f"{_PADDING}:{dtype.itemsize - end}")
    return ";".join(parts)


def _field_type(name: str, dtype: Any) -> tuple[str, int]:
    base, shape = dtype.subdtype if dtype.subdtype is not None else (dtype, ())
    if base.hasobject:
        raise ValueError(f"field {name!r} holds Python objects: use numbers ({', '.join(_TYPES)})")
    if base.names is not None:
        raise ValueError(f"field {name!r} has fields of its own: use numbers and arrays of numbers side by "
                         f"side")
    if base.byteorder == ">":
        raise ValueError(f"field {name!r} is big-endian: use dtype.newbyteorder('<') and array.astype() of "
                         f"that")
    kind = f"{base.kind}{base.itemsize}"
    if kind not in _TYPES:
        raise ValueError(f"field {name!r} is {base}: use one of {', '.join(_TYPES)}")
    if len(shape) > 1:
        raise ValueError(f"field {name!r} has {len(shape)} dimensions: use one, "
                         f"({dtype.itemsize // base.itemsize},)")
    return kind, shape[0] if shape else 1
