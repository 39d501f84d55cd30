"""`swale example DIR`: writes a small run with a story."""
from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Sequence
from typing import Any

import swale

from .. import _example
from . import common

STORY = """\
The story: a disc of {bodies:,} bodies orbits a star, and another star passes by. Most bodies stay,
some are flung out. Which ones, and where did they start? Try:

  swale info {dir}
  swale top {dir} energy -k 5 --trajectories --plot flung.png
  swale histogram {dir} energy --epochs 0,{last} -o energy.png
  swale plot {dir} {some} -o some.png
  {python} -c {code}
"""
CODE = "import swale; print(swale.open({path!r}).scan(where=\"energy > 0\", epochs=-1))"


def work(given: Any) -> None:
    if given.bodies < 2 or given.frames < 2:
        raise ValueError("expected at least 2 bodies and 2 frames")
    progress = common.Progress("Writing", "frames")
    began = time.monotonic()
    try:
        written = _example.write(given.dir, bodies=given.bodies, frames=given.frames, progress=progress)
    finally:
        progress.end()
    took = time.monotonic() - began
    with swale.open(given.dir) as directory:
        best = directory.top("energy", 2)["key"].tolist()
    print(f"{given.dir}: {written.frames:,} frames of {written.bodies:,} bodies, {written.records:,} "
          f"records, written in {took:.1f} s\n")
    print(STORY.format(bodies=written.bodies, dir=shlex.quote(given.dir), last=written.frames - 1,
                       some=" ".join(map(str, best)), python=shlex.quote(sys.executable or "python3"),
                       code=shlex.quote(CODE.format(path=given.dir))), end="")


def parser() -> common.Parser:
    made = common.Parser(
        "example", "writes a small run with a story",
        "A star passes a disc of bodies that orbit another star. DIR must not exist. Nothing but the "
        "package and NumPy is needed.",
        [("swale example run", "121 frames of 3,000 bodies, 13 MB, in some seconds"),
         ("swale example run --bodies 100000", "a larger one")])
    made.add_argument("dir", metavar="DIR", help="the massive directory to make")
    made.add_argument("--bodies", type=int, default=_example.BODIES, metavar="N",
                      help="how many (default %(default)s)")
    made.add_argument("--frames", type=int, default=_example.FRAMES, metavar="N",
                      help="how many (default %(default)s)")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    return common.run(parser(), work, arguments)


if __name__ == "__main__":
    common.exit_with(main)
