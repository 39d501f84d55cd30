"""`swale import FILE DIR`: a massive directory of a file."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import _import
from . import common


def work(given: Any) -> None:
    progress = common.Progress(f"Reading {given.file}", "records")
    try:
        made = _import.import_file(
            given.file, given.dir, key=given.key, key_type=given.key_type, schema=given.schema,
            species=given.species, resume=given.resume, progress=progress,
            extrema=given.extrema.split(",") if given.extrema else ())
    finally:
        progress.end()
    passed = f"; {made.passed_over} epochs were there already" if made.passed_over else ""
    print(f"{given.dir}: {made.records:,} records in {made.epochs} epochs{passed}")


def parser() -> common.Parser:
    made = common.Parser(
        "import", "makes a massive directory of a file",
        "Of tables (Parquet, Arrow, CSV) the columns epoch or step (in ascending order), time and key are "
        "used as such; the others become fields. Of LAMMPS dumps, H5Part, openPMD and VPIC's HDF5 each frame "
        "becomes an epoch, with its box and units. Files of `swale export` give back what they were made of, "
        "as far as their format holds it.",
        [("swale import run.parquet run2", "columns epoch, step, time, key; the rest are fields"),
         ("swale import atoms.csv run --key id --extrema energy",
          "keys in another column, and an index of the energy"),
         ("swale import atoms.csv run --schema 'x:f4:m;v:f4x3' --key-type u64",
          "types that CSV cannot tell"),
         ("swale import dump.lammpstrj run", "atoms of LAMMPS, by their id"),
         ("swale import particle_hdf5 run --species electron", "particles of VPIC, by their tag"),
         ("swale import run.parquet run2 --resume", "goes on after an interruption")])
    made.add_argument("file", metavar="FILE",
                      help="ends in .parquet, .arrow, .csv, .lammpstrj, .dump, .h5, .hdf5 or .h5part; or "
                           "VPIC's folder particle_hdf5")
    made.add_argument("dir", metavar="DIR", help="the massive directory to make")
    made.add_argument("--key", default="key", metavar="COLUMN",
                      help="the column of the keys (default %(default)s; of frames id or tag)")
    made.add_argument("--key-type", choices=("u64", "i64", "text", "bytes"), metavar="TYPE",
                      help="%(choices)s; by default as the column's type suggests")
    made.add_argument("--schema", metavar="SCHEMA",
                      help="as the option imd.schema; by default as the columns are")
    made.add_argument("--extrema", metavar="A,B",
                      help="fields whose largest and smallest records `swale top` finds quickly")
    made.add_argument("--species", metavar="NAME", help="which one of VPIC's folder, if it has several")
    made.add_argument("--resume", action="store_true", help="pass over the epochs that DIR has already")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    return common.run(parser(), work, arguments)


if __name__ == "__main__":
    common.exit_with(main)
