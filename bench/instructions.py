#!/usr/bin/env python3
"""instructions.py OLD NEW OUT [--builds TEXT] [--only WORK...]: the instructions that two builds take for the
same work.

OLD and NEW are the folders of two builds' benchmark programs (build/release/bench). Every work below runs in
both under valgrind's callgrind, twice: as a whole, and a small part of it, which is what starting takes. The
figure is the ratio of the differences. Waiting takes no instructions, so a busy machine changes nothing;
threads that meet in another order change the last digits.

A build from before bench/fixed_work.cc needs that file in its tree, with the includes that were right then.

Writes OUT/instructions.json and, for each run, what callgrind_annotate needs to say which functions it was:
OUT/WORK.old.callgrind and OUT/WORK.new.callgrind. Exit status: 0 if no ratio is above 1.03, 1 if one is, 2 if
a program failed.
"""
import argparse
import dataclasses
import json
import pathlib
import re
import subprocess
import sys

MUST = 1.03
COLLECTED = re.compile(r"Collected\s*:\s*(\d+)")


@dataclasses.dataclass(frozen=True)
class Work:
    """A program with its words. {count} is the amount of work; {path} a folder that is the build's own."""
    name: str
    what: str
    words: str
    count: int
    part: int = 0  # the small part; 0: starting is next to nothing
    needs: str = ""  # a work that leaves what this one reads


FIXED = "bench_fixed_work --path {path} --count {count} --work "
META = "meta/bench_meta_index --store swale --path {path} --entries {count} --pattern "
META_GET = "meta/bench_meta_index --store swale --path {path} --mode get --gets {count} --pattern "
CELL = "tier/bench_tier run W1 A {} segments=16 slots=64"
WORKS = (
    Work("imd_write", "append and two epochs' ends, one rank, a record of 48 bytes", FIXED + "imd-write",
         200_000, 2_000),
    Work("imd_shuffle", "the same by four ranks, in frames of 32 KiB", FIXED + "imd-shuffle", 200_000, 2_000),
    Work("imd_open", "a reader's opening", FIXED + "imd-open --records 200000", 100, 10, "imd_write"),
    Work("imd_get", "a key in two epochs", FIXED + "imd-get --records 200000", 3_000, 300, "imd_write"),
    Work("imd_scan", "all records", FIXED + "imd-scan --records 200000", 4, 1, "imd_write"),
    Work("rpc", "a request of 200 bytes and its answer, 32 in flight", FIXED + "rpc", 32_000, 3_200),
    Work("meta_put_strided", "entries of runs into the index, drained", META + "strided --mode load",
         1 << 20, 1 << 16),
    Work("meta_put_random", "entries without a pattern, drained", META + "random --mode load",
         1 << 19, 1 << 16),
    Work("meta_get_strided", "entries asked for, twice", META_GET + "strided --entries 1048576",
         1 << 18, 1 << 16, "meta_put_strided"),
    Work("meta_get_random", "the same without a pattern", META_GET + "random --entries 524288",
         1 << 18, 1 << 16, "meta_put_random"),
    Work("tier_ssdup", "the engine, 16 GiB of the first of the nine cells in virtual time, by SSDUP+",
         CELL.format("ssdup+"), 1),
    Work("tier_log", "the same, all on the log and flushed from there", CELL.format("ssd"), 1),
    Work("tier_swale", "the same by Swale's own policy: where it decides otherwise, the work is another",
         CELL.format("swale"), 1),
)  # fmt: skip


class Failed(Exception):
    pass


def run(words, **how):
    done = subprocess.run(words, capture_output=True, text=True, errors="replace", **how)
    if done.returncode != 0:
        raise Failed(f"{' '.join(map(str, words))}\n{done.stderr.strip()}")
    return done


class Build:
    def __init__(self, name, programs, out):
        self.name, self.programs, self.out = name, programs, out

    def words(self, work, count):
        path = self.out / f"{work.needs or work.name}.{self.name}.data"
        program, *rest = work.words.format(count=count, path=path).split()
        return [str(self.programs / program), *rest]

    def count(self, work, count):
        trace = self.out / f"{work.name}.{self.name}.callgrind"
        done = run(["valgrind", "--tool=callgrind", f"--callgrind-out-file={trace}",
                    *self.words(work, count)])
        found = COLLECTED.search(done.stderr)
        if not found:
            raise Failed(f"valgrind says no count of {work.name}: {done.stderr[-300:]}")
        return int(found[1])

    def measure(self, work):
        if work.needs:
            made = next(each for each in WORKS if each.name == work.needs)
            run(self.words(made, made.count))
        starting = self.count(work, work.part) if work.part else 0
        return (self.count(work, work.count) - starting) / (work.count - work.part)


def row(work, old, new):
    return {"key": work.name, "what": f"{work.what}: {new:,.0f} instructions for {old:,.0f}",
            "value": new / old, "must": MUST, "aim": None, "at_least": False}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("old", type=pathlib.Path)
    parser.add_argument("new", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--builds", default="new over old", help="what the two builds are, for the page")
    parser.add_argument("--only", nargs="+", choices=[work.name for work in WORKS])
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    builds = [Build(name, programs.absolute(), arguments.out.absolute())
              for name, programs in (("old", arguments.old), ("new", arguments.new))]
    rows = []
    for work in WORKS:
        if arguments.only and work.name not in arguments.only:
            continue
        try:
            old, new = (build.measure(work) for build in builds)
        except Failed as failure:
            print(f"instructions.py: {failure}", file=sys.stderr)
            return 2
        rows.append(row(work, old, new))
        print(f"{work.name}: {old:,.0f} old, {new:,.0f} new, {new / old:.4f}", flush=True)
    text = json.dumps({"profile": arguments.builds, "rows": rows}, indent=1) + "\n"
    (arguments.out / "instructions.json").write_text(text, encoding="utf-8")
    return 1 if any(each["value"] > MUST for each in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
