"""`swale export DIR FILE`: records as files of other tools."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import swale

from .. import _export
from . import common


def work(given: Any) -> None:
    kind = _export.format_of(given.file, given.format)
    with swale.open(given.dir) as directory:
        epochs = common.parse_epochs(given.epochs, len(directory.epochs))
        keys = None
        if given.key or given.keys:
            texts = list(given.key or [])
            if given.keys:
                with open(given.keys, encoding="utf-8", errors="surrogateescape") as lines:
                    texts += [line.rstrip("\r\n") for line in lines if line.strip()]
            keys = [common.parse_key(text, directory.key_type) for text in texts]
        progress = common.Progress(f"Writing {given.file}", "records")
        try:
            rows = _export.export(directory, given.file, format=kind, epochs=epochs, keys=keys,
                                  where=given.where, columns=given.columns.split(",") if given.columns
                                  else None, progress=progress)
        finally:
            progress.end()
        print(f"{given.file}: {rows:,} records")
        if directory.schema.any_length:
            common.complain("swale export", "values of this directory may be longer than their fields: the "
                            "rest is not in the file (column value has it)")


def parser() -> common.Parser:
    made = common.Parser(
        "export", "writes records into a file that other tools open",
        "It is written batch by batch, and appears under its name when it is finished. Parquet and Arrow "
        "files tell `swale import` the schema; CSV has a column for each element of an array; NPY is a "
        "structured array. extxyz (ASE, OVITO), lammpstrj (OVITO, MDAnalysis), h5md (MDAnalysis), hdf5 "
        "(H5Part's layout), openpmd and vtkhdf (ParaView) have a frame for each epoch, sorted by key; "
        "positions, box and units are those of the directory's attributes.",
        [("swale export run run.parquet", "everything"),
         ("swale export run last.csv --epoch -1 --columns key,x,y --where 'energy > 0'", "some records"),
         ("swale export run two.npy --key 17 --key 4711", "two trajectories, for numpy.load"),
         ("swale export run run.extxyz --epochs 0:20", "frames for ASE and OVITO")])
    made.add_argument("dir", metavar="DIR", help="a massive directory")
    made.add_argument("file", metavar="FILE",
                      help="its ending names the format: .parquet, .arrow, .csv, .npy, .extxyz, .lammpstrj, "
                           ".h5md, .hdf5, .vtkhdf")
    made.add_argument("--format", choices=_export.FORMATS, metavar="FORMAT",
                      help="the format, whatever the ending is: %(choices)s")
    made.add_argument("--columns", metavar="A,B",
                      help="epoch, step, time, key, fields, value; by default all but value")
    made.add_argument("--where", metavar="CONDITION",
                      help="only records that meet it; `man swale-scan` describes it")
    made.add_argument("--key", metavar="KEY", action="append",
                      help="only records of this key; may be repeated")
    made.add_argument("--keys", metavar="FILE", help="also the keys of this file, one in a line")
    common.add_epochs(made, "all")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    return common.run(parser(), work, arguments)


if __name__ == "__main__":
    common.exit_with(main)
