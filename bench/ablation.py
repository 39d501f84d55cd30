#!/usr/bin/env python3
"""ablation.py PROGRAMS RESULTS [--profile full|quick|tiny] [--only PART ...] [--plots] [--scratch DIR]:
`make bench-imd-ablation`.

Runs the experiments of the papers that one machine can carry, each part with a technique on and off, with the
programs of bench/ in the folder PROGRAMS. Each part writes RESULTS/PART.csv as soon as it is done; then plots
and README.md are made from all CSVs that are there (--plots: nothing but that). Exit status: 0, or 2 if an
answer was wrong or a program failed. docs/design/benchmarks.md tells what is measured and why.
"""
import argparse
import csv
import datetime
import json
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import ablation_parts  # noqa: E402
import ablation_table  # noqa: E402
from imd import machine  # noqa: E402

TIMEOUT_S = 600


class Failed(Exception):
    pass


class Run:
    """What the parts measure with: programs, a scratch folder, sizes, rows for the CSV."""

    def __init__(self, programs, scratch, memory_scratch, profile):
        self.programs, self.scratch, self.memory_scratch = programs, scratch, memory_scratch
        self.p = ablation_parts.PROFILES[profile]
        self.part, self.rows, self.began = "", [], time.monotonic()

    def has(self, program):
        return (self.programs / f"bench_{program}").exists()

    def command(self, program, **options):
        words = [word for key, value in options.items() for word in (f"--{key.replace('_', '-')}",
                                                                     str(value))]
        return [str(self.programs / f"bench_{program}"), *words]

    def measure(self, program, **options):
        """What bench_PROGRAM reports."""
        command = self.command(program, **options)
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
        if done.returncode != 0:
            raise Failed(f"{' '.join(command)}\n{done.stderr.strip()}")
        return json.loads(done.stdout)

    def accepts(self, program, **options):
        """Whether the program ends well with these options."""
        done = subprocess.run(self.command(program, **options), capture_output=True, timeout=TIMEOUT_S)
        return done.returncode == 0

    def row(self, **cells):
        self.rows.append(cells)
        shown = ", ".join(f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}"
                          for name, value in list(cells.items())[:6])
        print(f"  {self.part:9}{time.monotonic() - self.began:6.0f} s  {shown}", flush=True)

    def clear(self, path):
        shutil.rmtree(path, ignore_errors=True)

    def do(self, part):
        """The part's rows."""
        self.part, self.rows = part, []
        ablation_parts.PARTS[part](self)
        return self.rows


def write_csv(path, rows):
    columns = list(dict.fromkeys(name for row in rows for name in row))
    with open(path.with_suffix(".tmp"), "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({key: f"{value:.6g}" if isinstance(value, float) else value for key,
                             value in row.items()})
    path.with_suffix(".tmp").rename(path)


def read_csv(path):
    if not path.exists():
        return []
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


class Neighbours:
    """How much of the machine others use: of all cores' time since it was made, what was not ours."""

    def __init__(self):
        self.began, self.busy_before, self.ours_before = time.monotonic(), self.busy_s(), self.ours_s()

    @staticmethod
    def busy_s():
        with open("/proc/stat", encoding="ascii") as file:
            user, nice, system, _, _, irq, softirq, *_ = map(int, file.readline().split()[1:])
        return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")

    @staticmethod
    def ours_s():
        of = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(each.ru_utime + each.ru_stime for each in of)

    def share(self):
        others = self.busy_s() - self.busy_before - (self.ours_s() - self.ours_before)
        return max(0.0, others) / (time.monotonic() - self.began) / os.cpu_count()


def note_machine(results, part, about, profile, took_s, others):
    """One row a part in machine.csv: where and when its numbers come from, and who else was there."""
    rows = [row for row in read_csv(results / "machine.csv") if row["part"] != part]
    rows.append({"part": part,
                 "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M"),
                 "profile": profile, "took_s": str(round(took_s)), "cores": str(about["cores"]),
                 "cpu": about["cpu"],
                 "kernel": about["kernel"], "file_system": about["file_system"],
                 "others": f"{others:.3f}", "definitions": str(ablation_parts.DEFINITIONS)})
    order = list(ablation_parts.PARTS)
    write_csv(results / "machine.csv", sorted(rows, key=lambda row: order.index(row["part"])))


def measure_all(arguments):
    arguments.results.mkdir(parents=True, exist_ok=True)
    shared = pathlib.Path("/dev/shm")
    shared = shared if shared.is_dir() else arguments.scratch
    with tempfile.TemporaryDirectory(prefix="scratch-", dir=arguments.scratch) as scratch, \
            tempfile.TemporaryDirectory(prefix="swale-ablation-", dir=shared) as memory_scratch:
        run = Run(arguments.programs, pathlib.Path(scratch), pathlib.Path(memory_scratch), arguments.profile)
        for part in arguments.only or ablation_parts.PARTS:
            began, about, neighbours = time.monotonic(), machine(scratch), Neighbours()
            rows = run.do(part)
            write_csv(arguments.results / f"{part}.csv", rows)
            note_machine(arguments.results, part, about, arguments.profile, time.monotonic() - began,
                         neighbours.share())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("programs", type=pathlib.Path)
    parser.add_argument("results", type=pathlib.Path)
    parser.add_argument("--profile", choices=ablation_parts.PROFILES, default="full")
    parser.add_argument("--only", nargs="+", choices=ablation_parts.PARTS, metavar="PART",
                        help=", ".join(ablation_parts.PARTS))
    parser.add_argument("--plots", action="store_true", help="measure nothing: plots and page from the CSVs")
    parser.add_argument("--no-plots", action="store_true", help="measure only")
    parser.add_argument("--scratch", type=pathlib.Path, help="a folder on the storage that is to be measured",
                        default=pathlib.Path(tempfile.gettempdir()))
    arguments = parser.parse_args()
    try:
        if not arguments.plots:
            measure_all(arguments)
        if not arguments.no_plots:
            import ablation_report
            ablation_report.make(arguments.results)
    except (Failed, ablation_table.Refused, subprocess.TimeoutExpired) as failure:
        print(f"\nablation.py: {failure}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
