"""What the scripts behind `make bench-...` have in common: they run programs in rounds, judge figures, and
say what was missed.

A script's exit status: 0 if every "must" is met, 1 if one is not, 2 if an answer was wrong or a program
failed.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import host_memory

TIMEOUT_S = 900


class Failed(Exception):
    """A program failed, or an answer was wrong: there is nothing to judge."""


class Progress:
    """Says on stderr which measurement runs and how long all of them take: on a terminal in one line,
    elsewhere in a line every few seconds."""

    INTERVAL_S = 5

    def __init__(self, expected_s, stream=None):
        self.stream = stream or sys.stderr
        self.expected_s, self.began, self.said = expected_s, time.monotonic(), float("-inf")

    @staticmethod
    def clock(seconds):
        return f"{int(seconds) // 60}:{int(seconds) % 60:02}"

    def say(self, what):
        now = time.monotonic()
        line = f"  {self.clock(now - self.began)} of about {self.clock(self.expected_s)}: {what}"
        if self.stream.isatty():
            print(f"\r\033[K{line}", end="", file=self.stream, flush=True)
        elif now - self.said >= self.INTERVAL_S:
            self.said = now
            print(line, file=self.stream, flush=True)

    def end(self):
        if self.stream.isatty():
            print("\r\033[K", end="", file=self.stream, flush=True)


class Runner:
    """Runs programs that report one line of JSON each, and keeps the lines with their round."""

    def __init__(self, profile):
        self.p = profile
        self.lines, self.round, self.progress = [], 0, Progress(profile["expected_s"])

    def keep(self, name, command):
        self.progress.say(f"round {self.round + 1} of {self.p['rounds']}: {name}")
        began = time.monotonic()
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
        if done.returncode != 0:
            raise Failed(f"{' '.join(command)}\n{done.stderr.strip()}")
        line = json.loads(done.stdout)
        self.lines.append({"round": self.round, "name": name, "took_s": round(time.monotonic() - began, 2),
                           "line": line})
        return line


def run(program, *arguments):
    """What a program reports: its last line, as JSON."""
    done = subprocess.run([str(program), *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        raise Failed(f"{program.name} {' '.join(map(str, arguments))}: {done.stderr.strip()}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def rows_of(keys, found):
    """A row with its verdicts for each key; found: key's name -> [(value, its round's factors)]."""
    rows = []
    for key in keys:
        values = found[key.name]
        normalised = statistics.median(key.normalised(value, factors) for value, factors in values)
        raw = [value for value, _ in values]
        rows.append({"key": key.name, "what": key.what, "unit": key.unit, "raw": statistics.median(raw),
                     "values": raw,
                     "normalised": normalised, "must": key.must, "aim": key.aim,
                     "met": key.meets(normalised, key.must),
                     "aim_met": key.meets(normalised, key.aim)})
    return rows


def words(options):
    """{"keys": 5} -> ["--keys", "5"]"""
    return [word for key, value in options.items() for word in (f"--{key}", str(value))]


def judged(key, dated, factors_of):
    """One figure from [(round, sample)]: the median of its samples, a time normalised by its round's factors,
    and whether it is good enough. One that was not measured is not."""
    about = {"what": key.what, "unit": key.unit, "must": key.must, "aim": key.aim, "normalised_by": key.by,
             "less_is_better": key.less_is_better}
    if not dated:
        met, aim_met = (None if bound is None else False for bound in (key.must, key.aim))
        return {"value": None, "note": "not available", **about, "met": met, "aim_met": aim_met}
    samples = [key.normalised(value, factors_of(number) if key.by else None) for number, value in dated]
    entry = {"value": statistics.median(samples), "min": min(samples), "max": max(samples),
             "samples": samples, **about}
    if key.by:
        raw = [value for _, value in dated]
        entry.update(raw=statistics.median(raw), raw_min=min(raw), raw_max=max(raw),
                     factor=statistics.median(factors_of(number)[key.by] for number, _ in dated))
    return {**entry, "met": key.meets(entry["value"], key.must),
            "aim_met": key.meets(entry["value"], key.aim)}


def finish(result, target, text):
    """Writes the result, prints the text and what was missed, and answers the script's exit status."""
    target.with_suffix(".tmp").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    target.with_suffix(".tmp").rename(target)
    missed = [name for name, entry in result["results"].items() if entry["met"] is False]
    print(text)
    print(f"{target}; {len(missed)} of {len(result['results'])} "
          f"missed{': ' + ', '.join(missed) if missed else ''}")
    return 1 if missed else 0


def main(doc, name, profiles, measure, text, more=None):
    """The script NAME.py: measure(arguments, scratch) answers what goes to OUT/NAME.json, with its "results";
    text(result) is printed. more(parser) adds arguments."""
    parser = argparse.ArgumentParser(description=doc.split("\n\n")[0])
    parser.add_argument("programs", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--profile", choices=profiles, default="full")
    parser.add_argument("--scratch", type=pathlib.Path, help="a folder on the storage that is to be measured")
    if more:
        more(parser)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.profile != "tiny":
        host_memory.touch()
    try:
        with tempfile.TemporaryDirectory(prefix="scratch-", dir=arguments.scratch
                                         or arguments.out) as scratch:
            result = measure(arguments, pathlib.Path(scratch))
    except (Failed, subprocess.TimeoutExpired) as failure:
        print(f"\n{name}.py: {failure}", file=sys.stderr)
        return 2
    result["memory_goes_back"] = host_memory.goes_back()
    part = f"-{arguments.only}" if getattr(arguments, "only", None) else ""
    return finish(result, arguments.out / f"{name}{part}.json", text(result))
