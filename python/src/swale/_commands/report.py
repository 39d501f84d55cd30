"""`swale report DIR`: one HTML file about a run."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import swale

from . import common


def work(given: Any) -> None:
    with swale.open(given.dir) as directory:
        keys = common.chosen_keys(given, directory) or None
        progress = common.Progress("reading what epochs cost", "epochs")
        try:
            size = directory.report(given.output, keys=keys, progress=progress,
                                    fields=given.fields.split(",") if given.fields else None)
        except KeyError as missing:
            raise common.KeyMissing(f"key {missing.args[0]!r}: not found in any epoch") from None
        finally:
            progress.end()
        print(f"{given.output}: {max(1, round(size / 1000)):,} kB")


def parser() -> common.Parser:
    made = common.Parser(
        "report", "writes one HTML file about a run",
        "It works without a network: what the job wrote epoch by epoch, time and waits of each stage, the "
        "balance over ranks, what a look-up in the index costs, and trajectories to choose among.",
        [("swale report run", "into swale-report.html, with trajectories of some random keys"),
         ("swale report run 17 4711 -o a.html", "with those of two keys"),
         ("swale report run --top energy -k 50 --fields x,y,energy", "of the fifty with the most energy")])
    made.add_argument("dir", metavar="DIR", help="a massive directory")
    made.add_argument("-o", "--output", default="swale-report.html", metavar="FILE",
                      help="the page (default %(default)s)")
    made.add_argument("-f", "--fields", metavar="A,B", help="fields, or elements (v[0]), of the trajectories")
    common.add_keys(made)
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    return common.run(parser(), work, arguments)


if __name__ == "__main__":
    common.exit_with(main)
