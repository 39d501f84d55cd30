"""Swale for OVITO, which finds this reader by the package's entry point: it opens DIR/swale.json."""
from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from . import _lazy
from ._directory import Directory
from ._frames import Frame, frames

_io: Any = _lazy.load("ovito.io", "the reader of OVITO")
_NAME = "swale.json"
_BEGIN_BYTES = 4096
_I8_MAX = 2**63 - 1


class SwaleReader(_io.FileReaderInterface):  # type: ignore[misc]
    """Shows the epochs of a massive directory as frames, with particles sorted by key."""

    @staticmethod
    def detect(filename: str) -> bool:
        """Whether the file is a massive directory's manifest."""
        if os.path.basename(filename) != _NAME:
            return False
        with open(filename, "rb") as file:
            return b'"format":"swale-imd"' in file.read(_BEGIN_BYTES)

    def scan(self, filename: str, register_frame: Callable[..., None]) -> None:
        """Tells the epochs."""
        with Directory(os.path.dirname(filename) or ".") as directory:
            for epoch in directory.epochs:
                step = f"epoch {epoch.epoch}" if epoch.step is None else f"step {epoch.step}"
                register_frame(frame_info=epoch.epoch, label=step)

    def parse(self, data: Any, *, filename: str, frame_info: int | None = None, **_: Any) -> None:
        """Reads one."""
        with Directory(os.path.dirname(filename) or ".") as directory:
            number = 0 if frame_info is None else frame_info
            [frame] = frames(directory, "OVITO", number, None, None, None, None)
        _show(data, frame)


def _show(data: Any, frame: Frame) -> None:
    np = _lazy.numpy()
    described = frame.described
    particles = data.create_particles(count=len(frame))
    particles.create_property("Position", data=frame.vectors(described.position))
    if described.velocity:
        particles.create_property("Velocity", data=frame.vectors(described.velocity))
    if frame.keys.dtype.kind in "iu" and (not len(frame) or frame.keys.max() <= _I8_MAX):
        particles.create_property("Particle Identifier", data=frame.keys.astype("i8"))
    for name, array in frame.others():
        if name == described.species and array.dtype.kind in "iu":
            kinds = particles.create_property("Particle Type", data=array.astype("i4"))
            names = described.get("elements", dict, "names of kinds") or {}
            for kind in np.unique(array).tolist():
                kinds.add_type_id(kind, particles, name=str(names.get(str(kind), "")))
        else:
            particles.create_property(_plain(name), data=_numbers(array))
    if described.box is not None:
        matrix = np.array([*described.box.edges, described.box.origin]).T
        data.create_cell(matrix, pbc=described.periodic)
    data.attributes["Timestep"] = frame.step
    data.attributes["Time"] = frame.epoch.time


def _plain(name: str) -> str:
    """A property's name; a dot would mean a component."""
    return name.replace(".", "_")


def _numbers(array: Any) -> Any:
    """As OVITO has them: 32 and 64 bits with a sign, and float64, also for integers that are larger."""
    if array.dtype.kind == "f" or (array.dtype == "u8" and array.size and array.max() > _I8_MAX):
        return array.astype("f8")
    return array.astype("i4" if array.dtype.itemsize < 4 or array.dtype == "i4" else "i8")
