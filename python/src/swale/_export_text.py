"""Frames as text: extended XYZ (ASE, OVITO) and LAMMPS dumps (LAMMPS, OVITO, MDAnalysis)."""
from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, TextIO

from . import _lazy
from ._described import Box
from ._frames import Frame, flat

_FORMATS = {"f4": "%.9g", "f8": "%.17g"}  # what comes back as the same number


def write_extxyz(path: str, frames: Iterable[Frame]) -> int:
    """Extended XYZ: `id` is the key; fields have their names, with _ in place of what is no letter, digit or
    _.
    """
    rows = 0
    with open(path, "w", encoding="utf-8") as file:
        for frame in frames:
            columns = [_species(frame)]
            position = frame.vectors(frame.described.position)
            properties = ["species:S:1", "pos:R:3"]
            columns += [("%.17g", position[:, i]) for i in range(3)]
            if frame.described.velocity:
                velocity = frame.vectors(frame.described.velocity)
                properties.append("velo:R:3")
                columns += [("%.17g", velocity[:, i]) for i in range(3)]
            kind, keys = _keys("extxyz", frame)
            properties.append(f"id:{_xyz_kind(frame.keys) if kind == 'I' else kind}:1")
            columns.append(("%s", keys))
            names = {"species", "pos", "velo", "id"}
            for name, array in frame.others():
                field = frame.schema[name]
                shown = re.sub(r"\W", "_", name, flags=re.ASCII)
                while shown in names:
                    shown += "_"
                names.add(shown)
                properties.append(f"{shown}:{_xyz_kind(array)}:{field.count}")
                columns += [_column(field.type, part) for _, part in flat(name, field, array)]
            file.write(f"{len(frame)}\n{_comment(frame, properties)}\n")
            _write_rows(file, columns)
            rows += len(frame)
    return rows


def _xyz_kind(array: Any) -> str:
    """R, I or S. ASE takes an I for 32 bits, so larger integers are reals, if these hold them, or text."""
    if array.dtype.kind == "f":
        return "R"
    largest = max(abs(int(array.min())), abs(int(array.max()))) if array.size else 0
    return "I" if largest < 2 ** 31 else "R" if largest <= 2 ** 53 else "S"


def _comment(frame: Frame, properties: list[str]) -> str:
    box = frame.described.box
    parts = []
    if box is not None:
        parts.append('Lattice="' + " ".join(f"{x!r}" for edge in box.edges for x in edge) + '"')
        parts.append('Origin="' + " ".join(f"{x!r}" for x in box.origin) + '"')
    parts.append("Properties=" + ":".join(properties))
    periodic = frame.described.periodic if box is not None else (False, False, False)
    parts.append('pbc="' + " ".join("T" if each else "F" for each in periodic) + '"')
    parts.append(f"Step={frame.step} Time={frame.epoch.time!r} Epoch={frame.epoch.epoch}")
    return " ".join(parts)


def _species(frame: Frame) -> tuple[str, Any]:
    name = frame.described.species
    if name is None or name not in frame.arrays:
        return "%s", ["X"] * len(frame)
    kinds = frame.arrays[name].tolist()
    names = {kind: frame.described.element(int(kind)) for kind in set(kinds)}
    for wrong in names.values():
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", wrong):
            raise ValueError(f"attribute 'elements': {wrong!r:.60} is no name of an element")
    return "%s", [names[kind] for kind in kinds]


def write_lammpstrj(path: str, frames: Iterable[Frame]) -> int:
    """A LAMMPS dump: id is the key, type the species."""
    rows = 0
    with open(path, "w", encoding="utf-8") as file:
        for frame in frames:
            kind, keys = _keys("lammpstrj", frame)
            if kind != "I":
                raise ValueError("lammpstrj holds atoms with integers as ids, and the keys are text: take "
                                 "extxyz")
            names: list[str] = ["id", "type"]
            columns: list[tuple[str, Any]] = [("%s", keys)]
            species = frame.described.species
            kinds = frame.arrays.get(species) if species is not None else None
            columns.append(("%d", [1] * len(frame) if kinds is None else kinds))
            for prefix, components in (("", frame.described.position), ("v", frame.described.velocity)):
                vectors = frame.vectors(components)
                for i, axis in enumerate("xyz" if components else ""):
                    names.append(prefix + axis)
                    columns.append(("%.17g", vectors[:, i]))
            for name, array in frame.others():
                if kinds is not None and name == species:
                    continue
                for shown, part in flat(name, frame.schema[name], array):
                    shown = re.sub(r"\s", "_", shown)
                    names.append(shown if shown not in names else f"f_{shown}")
                    columns.append(_column(frame.schema[name].type, part))
            file.write(f"ITEM: TIMESTEP\n{frame.step}\nITEM: NUMBER OF ATOMS\n{len(frame)}\n{_bounds(frame)}"
                       f"ITEM: ATOMS {' '.join(names)}\n")
            _write_rows(file, columns)
            rows += len(frame)
    return rows


def _bounds(frame: Frame) -> str:
    """The box; one around the positions if there is none."""
    np = _lazy.numpy()
    box = frame.described.box
    periodic = frame.described.periodic
    if box is None:
        position = frame.vectors(frame.described.position)
        finite = position[np.isfinite(position).all(axis=1)]
        low, high = (finite.min(axis=0), finite.max(axis=0)) if len(finite) else (np.zeros(3), np.zeros(3))
        box = Box(tuple(low.tolist()), tuple(tuple(row) for row in np.diag(high - low).tolist()))
        periodic = (False, False, False)
    letters = " ".join("pp" if each else "ff" for each in periodic)
    (lx, xy0, xz0), (xy, ly, yz0), (xz, yz, lz) = box.edges
    if xy0 or xz0 or yz0:
        raise ValueError("lammpstrj holds boxes whose first edge is along x and whose second one is in the "
                         "plane of x and y")
    x, y, z = box.origin
    if box.orthogonal:
        return (f"ITEM: BOX BOUNDS {letters}\n{x!r} {x + lx!r}\n{y!r} {y + ly!r}\n{z!r} {z + lz!r}\n")
    return (f"ITEM: BOX BOUNDS xy xz yz {letters}\n{x + min(0, xy, xz, xy + xz)!r} "
            f"{x + lx + max(0, xy, xz, xy + xz)!r} {xy!r}\n"
            f"{y + min(0, yz)!r} {y + ly + max(0, yz)!r} {xz!r}\n{z!r} {z + lz!r} {yz!r}\n")


def _keys(kind: str, frame: Frame) -> tuple[str, list[str]]:
    """I or S, and the keys as text."""
    keys = frame.keys.tolist()
    if frame.keys.dtype.kind in "iu":
        if keys and max(keys) >= 2 ** 63:
            raise ValueError(f"{kind} holds ids below 2**63, and epoch {frame.epoch.epoch} has key "
                             f"{max(keys)}: export to parquet")
        return "I", list(map(str, keys))
    for key in keys:
        if isinstance(key, bytes) or not key or not key.isprintable() or " " in key or '"' in key:
            raise ValueError(f"{kind} holds keys without blanks, and epoch {frame.epoch.epoch} has "
                             f"{key!r:.60}: export to parquet")
    return "S", keys


def _column(kind: str, array: Any) -> tuple[str, Any]:
    return _FORMATS.get(kind, "%d"), array


def _write_rows(file: TextIO, columns: list[tuple[str, Any]]) -> None:
    line = " ".join(form for form, _ in columns) + "\n"
    file.writelines(line % row for row in zip(*(part if isinstance(part, list) else part.tolist() for _,
                                                part in columns)))
