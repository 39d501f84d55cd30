"""`swale plot DIR KEY...`: draws trajectories."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import swale

from .. import _plots
from . import common


def work(given: Any) -> None:
    _plots.expect_ending(given.output)
    with swale.open(given.dir) as directory:
        keys = common.chosen_keys(given, directory)
        if not keys:
            raise ValueError("no key: name some, or choose them with --top FIELD or --sample N")
        epochs = common.parse_epochs(given.epochs, len(directory.epochs))
        path = None if given.path == "none" else given.path
        try:
            figure = _plots.trajectories(directory, keys, fields=given.fields.split(",") if given.fields
                                         else None, path=path, epochs=epochs,
                                         background=not given.no_background)
        except KeyError as missing:
            where = f"epochs {given.epochs}" if given.epochs else "any epoch"
            raise common.KeyMissing(f"key {missing.args[0]!r}: not found in {where}") from None
        _plots.save(figure, given.output)
        print(f"{given.output}: {len(dict.fromkeys(keys))} trajectories")


def parser() -> common.Parser:
    made = common.Parser(
        "plot", "draws the trajectories of keys",
        "Their path in a plane (x and y, if the schema has them) and fields against time. Units are those "
        "of the schema. Needs Matplotlib.",
        [("swale plot run 17 4711", "two trajectories, into swale-plot.png"),
         ("swale plot run --top energy -k 5 -o best.pdf",
          "of the five with the most energy in the last epoch"),
         ("swale plot run 17 --fields energy,vz --path x,z", "other fields, and another plane"),
         ("swale plot run --sample 100 --path none --fields x -o x.svg",
          "a hundred random ones, without a plane")])
    made.add_argument("dir", metavar="DIR", help="a massive directory")
    made.add_argument("-o", "--output", default="swale-plot.png", metavar="FILE",
                      help="the picture: .png, .pdf or .svg (default %(default)s)")
    made.add_argument("-f", "--fields", metavar="A,B",
                      help="fields, or elements (v[0]), to draw against time")
    made.add_argument("--path", default="auto", metavar="X,Y",
                      help="the two fields of the plane; none: no plane (default: x,y if there are such)")
    made.add_argument("--no-background", action="store_true",
                      help="no grey dots for other keys in the plane")
    common.add_keys(made)
    common.add_epochs(made, "all")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    return common.run(parser(), work, arguments)


if __name__ == "__main__":
    common.exit_with(main)
