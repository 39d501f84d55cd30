"""What attributes say of an epoch's records: positions, velocities, the box, units. docs/guide/python.md
lists the names.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ._schema import Schema

POSITIONS = (("x", "y", "z"), "position", "positions", "pos", "r", ("xu", "yu", "zu"), ("dX", "dY", "dZ"),
             ("x", "y"))
VELOCITIES = (("vx", "vy", "vz"), "velocity", "velocities", "vel", "v", ("ux", "uy", "uz"), ("vx", "vy"))
# Of LAMMPS: units of length and time, and what they are in metres and seconds. For lj that depends on the
# run.
SYSTEMS: dict[str, tuple[str, str, float | None, float | None]] = {
    "lj": ("σ", "τ", None, None), "real": ("Å", "fs", 1e-10, 1e-15), "metal": ("Å", "ps", 1e-10, 1e-12),
    "si": ("m", "s", 1.0, 1.0), "cgs": ("cm", "s", 1e-2, 1.0),
    "electron": ("bohr", "fs", 5.29177210903e-11, 1e-15),
    "micro": ("µm", "µs", 1e-6, 1e-6), "nano": ("nm", "ns", 1e-9, 1e-9)}
LENGTH, TIME, VELOCITY = (1, 0, 0, 0, 0, 0, 0), (0, 0, 1, 0, 0, 0, 0), (1, 0, -1, 0, 0, 0, 0)


class Component(NamedTuple):
    """A number of a record: a field, or (`element` not None) an element of one."""

    field: str
    element: int | None

    def __str__(self) -> str:
        return self.field if self.element is None else f"{self.field}[{self.element}]"


class Box(NamedTuple):
    """A parallelepiped: its corner and its three edges."""

    origin: tuple[float, float, float]
    edges: tuple[tuple[float, float, float], ...]

    @property
    def orthogonal(self) -> bool:
        return all(self.edges[i][j] == 0 for i in range(3) for j in range(3) if i != j)


class SI(NamedTuple):
    """What a number has to be multiplied by, and the powers of m, kg, s, A, K, mol, cd."""

    factor: float
    dimension: tuple[float, ...]


class Described:
    """The attributes of an epoch (those of the directory, and its own), with what the schema lets guess.

    Raises ValueError for an attribute with a known name that is not what it should be, when it is asked for.
    """

    def __init__(self, schema: Schema, document: Mapping[str, Any]) -> None:
        self.schema = schema
        self.document = document

    def get(self, name: str, kind: type, what: str) -> Any:
        """An attribute of the type, or None."""
        found = self.document.get(name)
        if found is not None and (not isinstance(found, kind)
                                  or (kind is not bool and isinstance(found, bool))):
            raise ValueError(f"attribute {name!r} is {found!r:.60}: expected {what}")
        return found

    # ---- Roles of fields ----

    @property
    def position(self) -> tuple[Component, ...]:
        """Two or three components; empty if nothing is known to be the position."""
        return self._role("position", POSITIONS)

    @property
    def velocity(self) -> tuple[Component, ...]:
        """As `position`."""
        return self._role("velocity", VELOCITIES)

    def _role(self, name: str, usual: Iterable[str | tuple[str, ...]]) -> tuple[Component, ...]:
        told = self.document.get(name)
        if told is None:
            return next((found for each in usual if (found := self._components(each))), ())
        if isinstance(told, list) and all(isinstance(each, str) for each in told):
            told = tuple(told)
        found = self._components(told) if isinstance(told, (str, tuple)) else ()
        if not found:
            raise ValueError(f"attribute {name!r} is {self.document[name]!r:.60}: expected two or three "
                             f"fields, or an array of "
                             f"two or three; the fields are {', '.join(self.schema)}")
        return found

    def _components(self, names: str | tuple[str, ...]) -> tuple[Component, ...]:
        if isinstance(names, str):
            field = self.schema.get(names)
            return tuple(Component(names, i)
                         for i in range(field.count)) if field and 2 <= field.count <= 3 else ()
        found = tuple(self.component(name) for name in names)
        return tuple(each for each in found if each) if 2 <= len(found) <= 3 and all(found) else ()

    def component(self, text: str) -> Component | None:
        """A number by its name, as ``x`` or ``v[0]``; None if there is no such."""
        name, bracket, rest = text.partition("[")
        field = self.schema.get(name)
        if field is None or bool(bracket) == (field.count == 1):
            return None
        if not bracket:
            return Component(name, None)
        element = rest[:-1]
        return Component(name, int(element)) if element.isdigit() and int(element) < field.count else None

    @property
    def species(self) -> str | None:
        """The field with the kinds of particles."""
        name: str | None = self.get("species", str, "a field")
        if name is not None and (name not in self.schema or self.schema[name].count != 1):
            raise ValueError(f"attribute 'species' is {name!r}: expected a field; the fields are "
                             f"{', '.join(self.schema)}")
        return name if name is not None or "type" not in self.schema or self.schema[
            "type"].count != 1 else "type"

    def element(self, kind: int) -> str:
        """The name of a kind of particles; X if nobody said."""
        names = self.get("elements", dict, "names of kinds, as {\"1\": \"Cu\"}") or {}
        return str(names.get(str(kind), "X"))

    # ---- Box ----

    @property
    def box(self) -> Box | None:
        """The box; None if nobody said."""
        told = self.get("box", list, "three lengths, or three edges")
        if told is None:
            return None
        edges = [[told[0], 0, 0], [0, told[1], 0], [0, 0, told[2]]] if _numbers(told, 3) else told
        origin = self.get("origin", list, "three numbers") or [0.0, 0.0, 0.0]
        if not _numbers(origin, 3):
            raise ValueError(f"attribute 'origin' is {origin!r:.60}: expected three numbers")
        if len(edges) != 3 or not all(_numbers(edge, 3) for edge in edges):
            raise ValueError(f"attribute 'box' is {told!r:.60}: expected three lengths, or three edges of "
                             f"three numbers")
        corner = tuple(map(float, origin))
        return Box((corner[0], corner[1], corner[2]), tuple((float(x), float(y), float(z)) for x, y,
                                                            z in edges))

    @property
    def periodic(self) -> tuple[bool, bool, bool]:
        """In which directions the box repeats; in none if nobody said."""
        told = self.document.get("periodic", False)
        if isinstance(told, bool):
            return (told, told, told)
        if not isinstance(told, list) or len(told) != 3 or not all(isinstance(each, bool) for each in told):
            raise ValueError(f"attribute 'periodic' is {told!r:.60}: expected true, false, or three of them")
        return (told[0], told[1], told[2])

    # ---- Units ----

    @property
    def system(self) -> str | None:
        """The system of units, as LAMMPS calls it."""
        name: str | None = self.get("units", str, "a system of units")
        return name

    def unit(self, name: str) -> str:
        """The unit of a field, or ``time``; empty if nobody said."""
        told = self._of_field(name).get("unit", "")
        if not isinstance(told, str):
            raise ValueError(f"attribute 'fields': the unit of {name!r} is {told!r:.60}: expected text")
        if name != "time" and name in self.schema and self.schema[name].unit:
            return self.schema[name].unit
        length, time, _, _ = SYSTEMS.get(self.system or "", ("", "", None, None))
        if told or not length:
            return told
        units: dict[tuple[float, ...], str] = {LENGTH: length, TIME: time, VELOCITY: f"{length}/{time}"}
        return units.get(self._dimension(name) or (), "")

    def si(self, name: str) -> SI | None:
        """The field (or ``time``) in SI units; None if nobody said."""
        told = self._of_field(name)
        dimension = told.get("dimension")
        factor = told.get("si")
        if (factor is not None and not _numbers([factor], 1)) or (dimension is not None
                                                                  and not _numbers(dimension, 7)):
            raise ValueError(f"attributes of {name!r}: 'si' is a number, 'dimension' seven powers of m, kg, "
                             f"s, A, K, mol, cd")
        dimension = dimension or self._dimension(name)
        if factor is not None:
            return SI(float(factor), tuple(map(float, dimension or (0,) * 7)))
        _, _, metre, second = SYSTEMS.get(self.system or "", ("", "", None, None))
        if metre is None or second is None or not dimension or tuple(dimension) not in (
            LENGTH, TIME, VELOCITY):
            return None
        return SI(metre ** dimension[0] * second ** dimension[2], tuple(map(float, dimension)))

    def _dimension(self, name: str) -> tuple[float, ...] | None:
        if name == "time":
            return TIME
        if any(each.field == name for each in self.position):
            return LENGTH
        return VELOCITY if any(each.field == name for each in self.velocity) else None

    def _of_field(self, name: str) -> Mapping[str, Any]:
        if name == "time":
            return self.get("time", dict, "an object with 'unit' and 'si'") or {}
        told = (self.get("fields", dict, "an object with a member for each field") or {}).get(name, {})
        if not isinstance(told, dict):
            raise ValueError(f"attribute 'fields': {name!r} is {told!r:.60}: expected an object")
        return told


def _numbers(told: Any, count: int) -> bool:
    return isinstance(told, list) and len(told) == count and all(isinstance(each, (int, float))
                                                                 and not isinstance(each, bool)
                                                                 for each in told)
