"""A small run with a story: a star passes a disc of bodies that orbit another star.

Most bodies stay; those of the outer disc are flung out, or leave with the visitor. Which ones, and where did
they start? The bodies have no mass, so each moves by itself in the field of the two stars, and the visitor's
parabola has a closed form (Barker's equation). The origin is the first star, which falls towards the visitor,
too: hence the third term of `_acceleration`. Leapfrog steps of 0.4 years are a hundredth of the innermost
orbit. Both stars are soft (Plummer spheres), in the energy, too.
"""
from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

from . import _lazy
from ._writer import create

BODIES = 3000
FRAMES = 121
SCHEMA = [("x", "f4"), ("y", "f4"), ("z", "f4"), ("vx", "f4"), ("vy", "f4"), ("vz", "f4"), ("energy", "f4")]
_AU, _YEAR = 1.495978707e11, 31_557_600.0  # in metres and seconds
_SPEED = {"si": _AU / _YEAR, "dimension": [1, 0, -1, 0, 0, 0, 0]}
ATTRIBUTES: dict[str, Any] = {
    "title": "A star passes a disc of bodies around another star", "time": {"unit": "yr", "si": _YEAR},
    "position": ["x", "y", "z"], "velocity": ["vx", "vy", "vz"], "periodic": False,
    "fields": {**{name: {"si": _AU, "dimension": [1, 0, 0, 0, 0, 0, 0]} for name in ("x", "y", "z")},
               **dict.fromkeys(("vx", "vy", "vz"), _SPEED),
               "energy": {"si": (_AU / _YEAR) ** 2, "dimension": [2, 0, -2, 0, 0, 0, 0]}}}
UNITS = {"x": "au", "y": "au", "z": "au", "vx": "au/yr", "vy": "au/yr", "vz": "au/yr", "energy": "au^2/yr^2"}

_GM = 39.478  # of the sun, in au³/yr²
_VISITOR = 0.8  # suns
_NEAREST = 100.0  # au between the stars at the closest
_BEGIN, _END = -240.0, 480.0  # years; 0 is the closest approach
_STEP = 0.4
_SOFTENING = 9.0  # au²: stars of 3 au, so that no body comes so near to one that a step is too long


class Written(NamedTuple):
    """What the example consists of."""

    bodies: int
    frames: int
    records: int


def write(path: str | os.PathLike[str], *, bodies: int = BODIES, frames: int = FRAMES,
          progress: Callable[[int, int], None] | None = None) -> Written:
    """Writes the example as a massive directory: key u64, extrema of the energy."""
    np = _lazy.numpy()
    position, velocity = _disc(np, bodies)
    steps = round((_END - _BEGIN) / _STEP)
    with create(path, schema=np.dtype(SCHEMA), key="u64", units=UNITS, extrema=["energy"]) as out:
        out.set_attributes(ATTRIBUTES)
        step = 0
        pull = _acceleration(np, position, _BEGIN)
        for frame in range(frames):
            last = steps * frame // max(1, frames - 1)
            while step < last:
                velocity += 0.5 * _STEP * pull
                position += _STEP * velocity
                step += 1
                pull = _acceleration(np, position, _BEGIN + step * _STEP)
                velocity += 0.5 * _STEP * pull
            out.append_many(np.arange(bodies, dtype="u8"), _rows(np, position, velocity))
            out.epoch_end(step, _BEGIN + step * _STEP)
            if progress is not None:
                progress(frame + 1, frames)
    return Written(bodies, frames, bodies * frames)


def _disc(np: Any, bodies: int) -> tuple[Any, Any]:
    """Circular orbits between 12 and 55 au, as many bodies at each radius; 1 degree thick."""
    random = np.random.default_rng(20201)
    radius = np.linspace(12.0, 55.0, bodies)
    angle = random.uniform(0, 2 * np.pi, bodies)
    tilt = random.normal(0, 0.0175, bodies)
    speed = radius * np.sqrt(_GM) * (radius ** 2 + _SOFTENING) ** -0.75
    position = np.stack([radius * np.cos(angle), radius * np.sin(angle), np.zeros(bodies)], axis=1)
    velocity = np.stack([-speed * np.sin(angle) * np.cos(tilt), speed * np.cos(angle) * np.cos(tilt),
                         speed * np.sin(tilt)], axis=1)
    return position, velocity


def _visitor(np: Any, time: float) -> Any:
    """Where the visiting star is: on a parabola that is tilted by 20 degrees against the disc."""
    mean = 1.5 * time * (_GM * (1 + _VISITOR) / (2 * _NEAREST ** 3)) ** 0.5
    root = np.cbrt(mean + np.sqrt(mean * mean + 1))
    tangent = root - 1 / root  # of half the true anomaly
    x, y = _NEAREST * (1 - tangent * tangent), 2 * _NEAREST * tangent
    return np.array([x * 0.94, y, x * 0.342])


def _acceleration(np: Any, position: Any, time: float) -> Any:
    visitor = _visitor(np, time)
    apart = position - visitor
    to_star = (np.einsum("ij,ij->i", position, position) + _SOFTENING) ** -1.5
    to_visitor = (np.einsum("ij,ij->i", apart, apart) + _SOFTENING) ** -1.5
    pull = position * (-_GM * to_star)[:, None] - apart * (_GM * _VISITOR * to_visitor)[:, None]
    return pull - visitor * (_GM * _VISITOR * float(visitor @ visitor) ** -1.5)


def _rows(np: Any, position: Any, velocity: Any) -> Any:
    rows = np.zeros(len(position), dtype=SCHEMA)
    for i, axis in enumerate("xyz"):
        rows[axis], rows["v" + axis] = position[:, i], velocity[:, i]
    rows["energy"] = 0.5 * (velocity ** 2).sum(axis=1) - _GM / np.sqrt(
        (position ** 2).sum(axis=1) + _SOFTENING)
    return rows
