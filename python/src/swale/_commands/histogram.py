"""`swale histogram DIR FIELD`: draws how often a field's numbers occur."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import swale

from .. import _plots
from . import common


def work(given: Any) -> None:
    _plots.expect_ending(given.output)
    with swale.open(given.dir) as directory:
        epochs = common.parse_epochs(given.epochs, len(directory.epochs))
        figure = _plots.histogram(directory, given.field, epochs=-1 if epochs is None else epochs,
                                  bins=given.bins, where=given.where, log=given.log)
        _plots.save(figure, given.output)
        print(f"{given.output}: {given.field}")


def parser() -> common.Parser:
    made = common.Parser(
        "histogram", "draws how often the numbers of a field occur",
        "In the last epoch, or in several. Reads the epochs twice, in little memory. Needs Matplotlib.",
        [("swale histogram run energy", "the last epoch, into swale-histogram.png"),
         ("swale histogram run energy --epochs 0,30,-1 -o energy.pdf", "three epochs in one picture"),
         ("swale histogram run 'v[2]' --where 'energy > 0' --log --bins 40",
          "an element of an array, of some records")])
    made.add_argument("dir", metavar="DIR", help="a massive directory")
    made.add_argument("field", metavar="FIELD", help="a field of the schema, or an element: v[0]")
    made.add_argument("-o", "--output", default="swale-histogram.png", metavar="FILE",
                      help="the picture: .png, .pdf or .svg (default %(default)s)")
    made.add_argument("--bins", type=int, default=100, metavar="N", help="how many (default %(default)s)")
    made.add_argument("--where", metavar="CONDITION",
                      help="only records that meet it; `man swale-scan` describes it")
    made.add_argument("--log", action="store_true", help="a logarithmic axis for the counts")
    common.add_epochs(made, "the last")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    return common.run(parser(), work, arguments)


if __name__ == "__main__":
    common.exit_with(main)
