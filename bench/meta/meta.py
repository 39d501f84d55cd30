#!/usr/bin/env python3
"""meta.py PROGRAMS OUT [--profile full|quick|tiny] [--scratch DIR]: `make bench-meta`: one server's index beside rivals, then ranks.

PROGRAMS is build/*/bench. Each round runs the calibration, then for each pattern every store: load, get warm, get cold, in an
order that changes from round to round; a ratio divides figures of one round. Writes OUT/meta.json and prints the keys with
their verdicts. Exit status: 0 if every "must" is met, 1 if one is not, 2 if an answer was wrong or a program failed.
docs/design/meta-shard.md tells what is measured.
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import calibration  # noqa: E402
from keys import Key  # noqa: E402

PATTERNS = {  # name in keys: pattern, clients
    "strided": ("strided", 16), "tile": ("tile", 16), "btio_e": ("btio", 400), "random": ("random", 16),
}
LEVELDB = ("leveldb-4m", "leveldb-64m")  # the better one of the round is the rival
PROFILES = {
    "full": dict(rounds=3, entries=4 << 20, btio=20_808_000, gets=1 << 20, cold=1 << 16, others=True, expected_s=1500),
    "quick": dict(rounds=1, entries=4 << 20, btio=20_808_000, gets=1 << 18, cold=1 << 16, others=False, expected_s=400),
    "tiny": dict(rounds=1, entries=1 << 17, btio=200_000, gets=1 << 16, cold=1 << 13, others=True, expected_s=20),
}
# What else is shown: rivals that are not judged, and our techniques one by one (on `random`, and on patterns without runs).
OTHERS = ("append", "memory-map", "leveldb-mdhim", "rocksdb", "sqlite", "swale-no-runs", "swale-no-clusters",
          "swale-frame", "swale-dod", "swale-lz4", "swale-zstd", "swale-lz77")
NO_GETS = ("append", "memory-map")
SERVICE = {"point": ("point_get_us_p50", "point_get_us_p99"), "sealed": ("sealed_get_ns",),
           "model": ("ring_speedup_vs_plain_1024_clients",)}  # parts of bench_meta_service and the keys they give
TIMEOUT_S = 900


def more(name, what, must, aim):
    return Key(name, what, "", must, aim, less_is_better=False)


KEYS = (
    more("put_speedup_vs_leveldb_strided", "CPU of LevelDB for the same puts, drain included, over ours", 20, 80),
    more("put_speedup_vs_leveldb_tile", "", 10, 50),
    more("put_speedup_vs_leveldb_btio_e", "", 10, 30),
    more("put_speedup_vs_leveldb_random", "", 3, 8),
    more("get_speedup_vs_leveldb_strided", "CPU of LevelDB for the same gets over ours, warm", 20, 100),
    more("get_speedup_vs_leveldb_tile", "", 20, 80),
    more("get_speedup_vs_leveldb_btio_e", "", 15, 50),
    more("get_speedup_vs_leveldb_random", "", 6, 10),
    more("get_speedup_vs_leveldb_strided_cold", "the same, nothing in memory", 10, None),
    more("get_speedup_vs_leveldb_tile_cold", "", 10, None),
    more("get_speedup_vs_leveldb_btio_e_cold", "", 8, None),
    more("get_speedup_vs_leveldb_random_cold", "", 4, None),
    Key("bytes_per_segment_strided", "on disk after drain", "B", 0.2, 0.01),
    Key("bytes_per_segment_btio_e", "", "B", 2.5, 1.4),
    Key("bytes_per_segment_random", "", "B", 5, 4),
    Key("recovery_entries_per_second", "random entries in the log of a server that was killed", "1/s", 5e6, 20e6,
        less_is_better=False, by="cpu"),
    Key("memory_bytes_per_entry_random", "flushed: indexes of blocks, runs, files", "B", 1, 0.3),
    Key("point_get_us_p50", "one get of one segment from another rank's server, shared memory", "us", 15, 9, by="cpu"),
    Key("point_get_us_p99", "", "us", 60, 40, by="cpu"),
    Key("sealed_get_ns", "CPU of a get from a sealed regular file, without a server", "ns", 100, 10, by="cpu"),
    more("ring_speedup_vs_plain_1024_clients", "slowest client of a storm on the model, 64 servers", 6, 12),
    Key("put_cpu_ns_strided", "client and server", "ns", None, 20, by="cpu"),
    Key("put_cpu_ns_random", "", "ns", None, 100, by="cpu"),
    Key("get_cpu_ns_strided", "", "ns", None, 20, by="cpu"),
    Key("get_cpu_ns_random", "", "ns", None, 50, by="cpu"),
)


class Failed(Exception):
    pass


class Bench:
    def __init__(self, programs, scratch, profile):
        self.programs, self.scratch, self.p = programs, scratch, PROFILES[profile]
        self.lines, self.round, self.began = [], 0, time.monotonic()

    def run(self, name, program, **options):
        command = [str(self.programs / program), *(w for k, v in options.items() for w in (f"--{k}", str(v)))]
        spent = time.monotonic() - self.began
        print(f"  {spent:.0f} s of about {self.p['expected_s']}: round {self.round + 1}: {name}", file=sys.stderr,
              flush=True)
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
        if done.returncode != 0:
            raise Failed(f"{' '.join(command)}\n{done.stderr.strip()}")
        line = json.loads(done.stdout)
        self.lines.append({"round": self.round, "name": name, "line": line})
        return line

    def calibrate(self):
        self.run("calibrate", "bench_calibrate", path=self.scratch / "calibrate",
                 quick=1 if self.p["entries"] < 1 << 20 else 0)

    def index(self, name, store, key, mode, **options):
        pattern, clients = PATTERNS[key]
        entries = self.p["btio"] if pattern == "btio" else self.p["entries"]
        if pattern == "btio" and self.p["btio"] < 1_000_000:
            clients = 64
        return self.run(f"{name}.{store}.{key}", "meta/bench_meta_index", store=store, path=self.scratch / store,
                        pattern=pattern, clients=clients, entries=entries, mode=mode, **options)

    def measure(self, store, key, gets=True):
        self.index("load", store, key, "load")
        if gets:
            self.index("warm", store, key, "get", gets=self.p["gets"])
            self.index("cold", store, key, "get", gets=self.p["cold"], cold=1)
        shutil.rmtree(self.scratch / store, ignore_errors=True)

    def run_all(self):
        for self.round in range(self.p["rounds"]):
            self.calibrate()
            for number, key in enumerate(PATTERNS):
                stores = ["swale", *LEVELDB]
                for store in stores if (self.round + number) % 2 == 0 else stores[::-1]:
                    self.measure(store, key)
            self.index("crash", "swale", "random", "crash")
            self.index("recover", "swale", "random", "recover")
            shutil.rmtree(self.scratch / "swale", ignore_errors=True)
            for part in SERVICE:
                self.run(part, "bench_meta_service", part=part, dir=self.scratch / "service")
            shutil.rmtree(self.scratch / "service", ignore_errors=True)
            if self.p["others"] and self.round == 0:
                for store in OTHERS:
                    for key in ("random", "strided") if store.startswith("swale") else ("random",):
                        self.measure(store, key, gets=store not in NO_GETS)
            self.calibrate()


def samples_of(lines, rounds):
    """{key: [(round, value)]} of all keys."""
    by_name = {}
    for entry in lines:
        by_name.setdefault((entry["round"], entry["name"]), []).append(entry["line"])

    def cpu(number, name):
        return by_name[(number, name)][-1]["cpu_ns"]

    found = {key.name: [] for key in KEYS}
    for number in range(rounds):
        for key in PATTERNS:
            rival = {what: min(cpu(number, f"{what}.{store}.{key}") for store in LEVELDB)
                     for what in ("load", "warm", "cold")}
            for what, name in (("load", "put"), ("warm", "get"), ("cold", "get")):
                suffix = "_cold" if what == "cold" else ""
                found[f"{name}_speedup_vs_leveldb_{key}{suffix}"].append(
                    (number, rival[what] / cpu(number, f"{what}.swale.{key}")))
            load = by_name[(number, f"load.swale.{key}")][-1]
            if f"bytes_per_segment_{key}" in found:
                found[f"bytes_per_segment_{key}"].append((number, load["bytes_per_entry"]))
            for what, name in (("load", "put"), ("warm", "get")):
                if f"{name}_cpu_ns_{key}" in found:
                    found[f"{name}_cpu_ns_{key}"].append((number, cpu(number, f"{what}.swale.{key}")))
        about = by_name[(number, "load.swale.random")][-1]
        memory = about["about"]["index_memory_bytes"] + about["about"]["buffer_memory_bytes"]
        found["memory_bytes_per_entry_random"].append((number, memory / about["operations"]))
        for part, names in SERVICE.items():
            for name in names:
                found[name].append((number, by_name[(number, part)][-1][name]))
        found["recovery_entries_per_second"].append(
            (number, by_name[(number, "recover.swale.random")][-1]["entries_per_second"]))
    return found


def judge(lines, rounds):
    factors = {}
    for number in range(rounds):
        factors[number] = calibration.factors([e["line"] for e in lines
                                               if e["round"] == number and e["name"] == "calibrate"])
    samples = samples_of(lines, rounds)
    results = {}
    for key in KEYS:
        raw = [value for _, value in samples[key.name]]
        if not raw:
            raise Failed(f"{key.name} was not measured")
        values = [key.normalised(value, factors[number]) for number, value in samples[key.name]]
        value = statistics.median(values)
        results[key.name] = {"value": value, "raw": statistics.median(raw), "min": min(values), "max": max(values),
                             "samples": values, "unit": key.unit, "must": key.must, "aim": key.aim,
                             "less_is_better": key.less_is_better, "met": key.meets(value, key.must),
                             "aim_met": key.meets(value, key.aim)}
    return results


def table(lines):
    """Every store that was measured: CPU and wall nanoseconds an operation, bytes an entry."""
    rows = {}
    for entry in lines:
        parts = entry["name"].split(".")
        if len(parts) == 3:
            what, store, key = parts
            row = rows.setdefault((key, store), {})
            row.setdefault(what, []).append((entry["line"]["cpu_ns"], entry["line"]["wall_ns"]))
            if "bytes_per_entry" in entry["line"]:
                row.setdefault("bytes", []).append((entry["line"]["bytes_per_entry"], 0))
    out = []
    for (key, store), row in sorted(rows.items()):
        cells = []
        for what in ("load", "warm", "cold"):
            pairs = row.get(what)
            cells.append("" if not pairs else "%.1f / %.1f" % tuple(statistics.median(p[i] for p in pairs)
                                                                     for i in (0, 1)))
        bytes_ = row.get("bytes")
        cells.append("" if not bytes_ else "%.4g" % statistics.median(b for b, _ in bytes_))
        out.append([key, store, *cells])
    return out


def text(results, rows):
    lines = []
    for name, entry in results.items():
        verdict = "" if entry["met"] is None else ("met" if entry["met"] else "MISSED")
        if entry["aim_met"]:
            verdict = "aim met"
        lines.append(f"{name:44} {entry['value']:14.5g} {entry['unit']:4} must {entry['must']}  aim {entry['aim']}  "
                     f"({entry['min']:.4g} to {entry['max']:.4g}, raw {entry['raw']:.5g})  {verdict}")
    lines.append("")
    lines.append("CPU / wall ns an operation: pattern, store, put with drain, get warm, get cold; bytes an entry")
    lines += ["  ".join(f"{cell:>20}" for cell in row) for row in rows]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--profile", choices=PROFILES, default="full")
    parser.add_argument("--scratch", type=pathlib.Path, help="a folder on the storage that is to be measured")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix="scratch-", dir=arguments.scratch or arguments.out) as scratch:
            bench = Bench(arguments.programs, pathlib.Path(scratch), arguments.profile)
            bench.run_all()
        results = judge(bench.lines, bench.p["rounds"])
    except (Failed, subprocess.TimeoutExpired) as failure:
        print(f"\nmeta.py: {failure}", file=sys.stderr)
        return 2
    result = {"profile": arguments.profile, "parameters": bench.p, "load_average": os.getloadavg(), "results": results,
              "lines": bench.lines}
    target = arguments.out / "meta.json"
    target.with_suffix(".tmp").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    target.with_suffix(".tmp").rename(target)
    print(text(results, table(bench.lines)))
    missed = [name for name, entry in results.items() if entry["met"] is False]
    print(f"{target}; {len(missed)} of {len(results)} missed{': ' + ', '.join(missed) if missed else ''}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
