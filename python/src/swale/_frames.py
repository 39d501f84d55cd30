"""The records of one epoch after the other, for files that consist of frames. A frame is in memory, sorted by
key.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _lazy
from ._described import Component, Described
from ._schema import Field, Schema

if TYPE_CHECKING:
    from ._directory import Directory, Epoch, Epochs

_OWN = ("epoch", "step", "time", "key", "value")


class Frame(NamedTuple):
    """An epoch's records: their keys, ascending, and the fields of `schema`, without missing numbers."""

    epoch: Epoch
    keys: Any  # an array of integers, or of str or bytes as objects
    schema: Schema
    arrays: Mapping[str, Any]
    described: Described

    def __len__(self) -> int:
        return len(self.keys)

    def numbers(self, component: Component) -> Any:
        """The numbers of a component."""
        array = self.arrays[component.field]
        return array if component.element is None else array[:, component.element]

    def vectors(self, components: tuple[Component, ...]) -> Any:
        """As an array of shape (records, 3); 0 where there are two components."""
        np = _lazy.numpy()
        vectors = np.zeros((len(self), 3))
        for i, component in enumerate(components):
            vectors[:, i] = self.numbers(component)
        return vectors

    def others(self) -> list[tuple[str, Any]]:
        """Name and array of each field that is neither position nor velocity."""
        roles = {each.field for each in (*self.described.position, *self.described.velocity)}
        return [(name, array) for name, array in self.arrays.items() if name not in roles]

    @property
    def step(self) -> int:
        """The simulation's; the epoch's number if it is unknown."""
        return self.epoch.epoch if self.epoch.step is None else self.epoch.step


def frames(directory: Directory, kind: str, epochs: Epochs, keys: Any, columns: Iterable[str] | None,
           where: str | None, progress: Callable[[int, int], None] | None) -> Iterator[Frame]:
    """The frames that an export writes; arguments as of `Directory.export`. Positions and velocities are
    always there.
    """
    encoded = None if keys is None else directory._encode(keys)
    numbers = directory._epochs(epochs) or list(range(len(directory.epochs)))
    total = sum(directory.epochs[i].records for i in numbers)
    known = directory.epochs
    done = 0
    for number in numbers:
        described = Described(directory.schema, directory._described(number))
        if kind != "hdf5":
            expect_position(directory, kind, described)
        names = _names(directory, described, columns)
        asked = ["key", *(f"[{name}]" if name in _OWN else name for name in names)]
        with directory._stream([number], asked, where, 0, 0, encoded) as stream:
            table = stream.read_all()
        done += len(table)
        yield _frame(known[number], kind, table, names, directory.schema, described)
        if progress is not None:
            progress(done, total)


def expect_position(directory: Directory, kind: str, described: Described) -> None:
    if not described.position:
        raise ValueError(f"{kind} needs positions, and no field of {directory.path} is known to be one: the "
                         f"attribute "
                         "'position' names two or three (Writer.set_attributes), or export to parquet")


def _names(directory: Directory, described: Described, columns: Iterable[str] | None) -> list[str]:
    """The fields of a frame."""
    if columns is None:
        return list(directory.schema)
    chosen = [columns] if isinstance(columns, str) else list(columns)
    for name in chosen:
        if name not in _OWN:
            directory._expect_field(name)
    always = [each.field for each in (*described.position, *described.velocity)]
    always += [described.species] if described.species else []
    return list(dict.fromkeys([*always, *(name for name in chosen if name in directory.schema)]))


def _frame(epoch: Epoch, kind: str, table: Any, names: list[str], schema: Schema,
           described: Described) -> Frame:
    np = _lazy.numpy()
    keys = table["key"]
    if np.ma.isMaskedArray(keys):
        raise ValueError(f"{kind}: epoch {epoch.epoch} has keys that are no integers: export to parquet")
    order = np.argsort(keys, kind="stable")
    arrays: dict[str, Any] = {}
    for name in names:
        array = table[f"[{name}]" if name in _OWN else name]
        if np.ma.isMaskedArray(array):
            if schema[name].type[0] != "f":
                raise ValueError(f"{kind} cannot hold a missing number, and records of epoch {epoch.epoch} "
                                 f"lack {name!r}: "
                                 f"export those that have it (--where 'has({name})'), or to parquet")
            array = array.filled(np.nan)
        arrays[name] = array[order]
    return Frame(epoch, keys[order], schema, arrays, described)


def flat(name: str, field: Field, array: Any) -> list[tuple[str, Any]]:
    """A column for each element of an array: ``v[0]``, ``v[1]``."""
    return [(name, array)] if field.count == 1 else [(f"{name}[{i}]", array[:, i])
                                                     for i in range(field.count)]
