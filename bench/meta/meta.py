#!/usr/bin/env python3
"""meta.py PROGRAMS OUT [--profile full|quick|tiny] [--scratch DIR] [--results DIR]: `make bench-meta`: one
server's index beside rivals, then ranks, then the figures of the metakv paper (paper.py; --results takes
their page and plots).

PROGRAMS is build/*/bench. Each round runs the calibration, then for each pattern every store: load, get warm,
get cold, in an order that changes from round to round; a ratio divides figures of one round. Writes
OUT/meta.json and prints the keys with their verdicts. Exit status: 0 if every "must" is met, 1 if one is not,
2 if an answer was wrong or a program failed. docs/design/metadata-store.md tells what is measured.
"""
import json
import os
import pathlib
import shutil
import statistics
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import calibration  # noqa: E402
import judge  # noqa: E402
import paper  # noqa: E402
import report  # noqa: E402
import tables  # noqa: E402
from keys import Key  # noqa: E402

PATTERNS = {  # name in keys: pattern, clients
    "strided": ("strided", 16), "tile": ("tile", 16), "btio_e": ("btio", 400), "random": ("random", 16),
}
LEVELDB = ("leveldb-4m", "leveldb-64m")  # the better one of the round is the rival
ITERATOR = "leveldb-iterator"
MDHIM = "leveldb-mdhim"  # gets before it puts
MESSAGE = 4096  # entries of a message of bench_meta_client
CLIENTS = ("swale", *LEVELDB, ITERATOR)  # of bench_meta_client
PROFILES = {
    "full": dict(rounds=3, entries=4 << 20, btio=20_808_000, gets=1 << 20, cold=1 << 16, others=True,
                 expected_s=1330, curve=[1 << n for n in range(16, 21)], fig8=1 << 20, data_bytes=1 << 30,
                 storm_ranks=(8, 16, 32, 64), streams=4 << 20, largest=64 << 20, memory=16 << 20,
                 memory_rest_s=60),
    "quick": dict(rounds=1, entries=4 << 20, btio=20_808_000, gets=1 << 18, cold=1 << 16, others=False,
                  expected_s=560, curve=[1 << 16, 1 << 18, 1 << 20], fig8=1 << 18, data_bytes=256 << 20,
                  storm_ranks=(8, 32), streams=1 << 20, largest=8 << 20, memory=16 << 20, memory_rest_s=60),
    "tiny": dict(rounds=1, entries=1 << 17, btio=200_000, gets=1 << 16, cold=1 << 13, others=True,
                 expected_s=40, curve=[1 << 14, 1 << 15], fig8=1 << 15, data_bytes=8 << 20, storm_ranks=(4,),
                 streams=1 << 16, largest=1 << 17, memory=1 << 17, memory_rest_s=2),
}
# What else is shown: rivals that are not judged, and our techniques one by one (on `random`, and on patterns
# without runs).
OTHERS = ("append", "memory-map", "leveldb-mdhim", "rocksdb", "sqlite", "swale-no-runs", "swale-no-clusters",
          "swale-frame", "swale-zstd")
NO_GETS = ("append", "memory-map")
SERVICE = {"point": ("point_get_us_p50", "point_get_us_p99"), "sealed": ("sealed_get_ns",),
           # parts of bench_meta_service and the keys they give
           "model": ("ring_speedup_vs_plain_1024_clients",)}


def more(name, what, must, aim):
    return Key(name, what, "", must, aim, less_is_better=False)


KEYS = (
    more("put_speedup_vs_leveldb_strided", "CPU of client and server for LevelDB's puts until it rests, "
         "over ours", 20, 80),
    more("put_speedup_vs_leveldb_tile", "", 10, 50),
    more("put_speedup_vs_leveldb_btio_e", "", 10, 30),
    more("put_speedup_vs_leveldb_random", "", 3, 8),
    more("get_speedup_vs_leveldb_strided", "CPU of client and server for LevelDB's single gets over ours, "
         "warm", 25, 60),
    more("get_speedup_vs_leveldb_tile", "", 25, 70),
    more("get_speedup_vs_leveldb_btio_e", "", 12, 20),
    more("get_speedup_vs_leveldb_random", "", 5, 12),
    more("get_speedup_vs_leveldb_iterator_strided", "the same, by one iterator over all keys that wait, "
         "sorted", 6, 10),
    more("get_speedup_vs_leveldb_iterator_tile", "", 6, 10),
    more("get_speedup_vs_leveldb_iterator_btio_e", "", 3, 6),
    more("get_speedup_vs_leveldb_iterator_random", "", 1.5, 4),
    more("get_speedup_vs_leveldb_strided_cold", "CPU of the index alone for single gets over ours, nothing "
         "in memory", 10, None),
    more("get_speedup_vs_leveldb_tile_cold", "", 10, None),
    more("get_speedup_vs_leveldb_btio_e_cold", "", 8, None),
    more("get_speedup_vs_leveldb_random_cold", "", 4, None),
    Key("bytes_per_segment_strided", "on disk after drain", "B", 0.2, 0.01),
    Key("bytes_per_segment_btio_e", "", "B", 2.5, 1.4),
    Key("bytes_per_segment_random", "", "B", 5, 4),
    Key("recovery_entries_per_second", "random entries in the log of a server that was killed", "1/s", 5e6,
        20e6, less_is_better=False, by="cpu"),
    Key("memory_bytes_per_entry_random", "indexes, buffers and cache of a server, a minute after it has "
        "come to rest", "B", 1, 0.3),
    Key("point_get_us_p50", "one get of one random segment from another rank's server, shared memory", "us",
        12, 6, by="cpu"),
    Key("point_get_us_p99", "", "us", 40, 15, by="cpu"),
    Key("sealed_get_ns", "CPU of a get from a sealed regular file, without a server", "ns", 100, 10,
        by="cpu"),
    more("ring_speedup_vs_plain_1024_clients", "slowest client of a storm on the model, 64 servers", 6, 12),
    Key("put_cpu_ns_strided", "client and server", "ns", None, 20, by="cpu"),
    Key("put_cpu_ns_random", "", "ns", None, 100, by="cpu"),
    Key("get_cpu_ns_strided", "", "ns", None, 20, by="cpu"),
    Key("get_cpu_ns_random", "", "ns", None, 50, by="cpu"),
)


def scaling_costs(lines, store, entries):
    """CPU ns of a client for an entry, and of the server for an item of so many entries: the medians of the
    rounds.
    """
    measured = [entry["line"] for entry in lines if entry["name"] == f"client.{store}.strided"]
    costs = {}
    for what in ("put", "get"):
        server = [line[f"{what}_server_cpu_ns"] for line in measured]
        costs[f"{what}_client_ns"] = statistics.median(line[f"{what}_cpu_ns"]
                                                       for line in measured) - statistics.median(server)
        costs[f"{what}_server_ns"] = statistics.median(server) * entries
    return costs


class Bench(judge.Runner):
    def __init__(self, programs, scratch, profile):
        super().__init__(PROFILES[profile])
        self.programs, self.scratch = programs, scratch

    def run(self, name, program, **options):
        return self.keep(name, [str(self.programs / program), *judge.words(options)])

    def calibrate(self):
        self.run("calibrate", "bench_calibrate", path=self.scratch / "calibrate",
                 quick=1 if self.p["entries"] < 1 << 20 else 0)

    def index(self, name, store, key, mode, **options):
        pattern, clients = PATTERNS[key]
        entries = self.p["btio"] if pattern == "btio" else self.p["entries"]
        if pattern == "btio" and self.p["btio"] < 1_000_000:
            clients = 64
        return self.run(f"{name}.{store}.{key}", "meta/bench_meta_index", store=store,
                        path=self.scratch / store, pattern=pattern, clients=clients, entries=entries,
                        mode=mode, **options)

    def client(self, store, key, entries=None, rest=2):
        """Through the public calls, and rivals behind the same requests. After the puts the server is idle
        for `rest` seconds.
        """
        pattern, clients = PATTERNS[key]
        whole = self.p["btio"] if pattern == "btio" else self.p["entries"]
        if pattern == "btio" and self.p["btio"] < 1_000_000:
            clients = 64
        name = f"client.{store}.{key}" if entries is None else f"memory.{store}.{key}"
        self.run(name, "meta/bench_meta_client", store=store, dir=self.scratch / "client", pattern=pattern,
                 clients=clients, entries=entries or whole, gets=self.p["gets"], rest=rest)

    def scale(self):
        """Many servers, on the model: both sides cost what they cost in this run behind the public calls,
        strided.
        """
        costs = {name: scaling_costs(self.lines, store, per_item) for name, store, per_item in
                 (("mdhim", MDHIM, 1), ("swale", "swale", MESSAGE))}
        self.run("scaling", "bench_meta_service", part="scaling",
                 **{f"{name}-ns": ",".join(f"{value:.4f}" for value in each.values()) for name,
                    each in costs.items()})
        self.lines[-1]["line"]["costs"] = [{"store": name, **each} for name, each in costs.items()]

    def measure(self, store, key, gets=True):
        self.index("load", store, key, "load")
        if gets:
            self.index("warm", store, key, "get", gets=self.p["gets"])
            self.index("cold", store, key, "get", gets=self.p["cold"], cold=1)
        shutil.rmtree(self.scratch / store, ignore_errors=True)

    def curve(self, name, store, pattern, clients, entries):
        """Load and warm gets of one point of a curve: lines load.STORE.NAME and warm.STORE.NAME."""
        for what, mode in (("load", "load"), ("warm", "get")):
            options = {"gets": min(entries, self.p["gets"])} if mode == "get" else {}
            self.run(f"{what}.{store}.{name}", "meta/bench_meta_index", store=store,
                     path=self.scratch / store, pattern=pattern, clients=clients, entries=entries, mode=mode,
                     **options)
        shutil.rmtree(self.scratch / store)

    def run_all(self):
        for self.round in range(self.p["rounds"]):
            self.calibrate()
            for number, key in enumerate(PATTERNS):
                stores = ["swale", *LEVELDB]
                for store in stores if (self.round + number) % 2 == 0 else stores[::-1]:
                    self.measure(store, key)
                for store in CLIENTS if (self.round + number) % 2 == 0 else CLIENTS[::-1]:
                    self.client(store, key)
            self.client("swale", "random", entries=self.p["memory"], rest=self.p["memory_rest_s"])
            self.index("crash", "swale", "random", "crash")
            self.index("recover", "swale", "random", "recover")
            shutil.rmtree(self.scratch / "swale", ignore_errors=True)
            for part in SERVICE:
                storage = {} if part == "model" else {"dir": self.scratch / "service"}
                self.run(part, "bench_meta_service", part=part, **storage)
            shutil.rmtree(self.scratch / "service", ignore_errors=True)
            if self.p["others"] and self.round == 0:
                for store in OTHERS:
                    for key in ("random", "strided") if store.startswith("swale") else ("random",):
                        self.measure(store, key, gets=store not in NO_GETS)
            self.calibrate()
        self.client(MDHIM, "strided")
        self.scale()
        paper.measure(self)


def memory_bytes_per_entry(line):
    """What a server that has come to rest says of itself (src/meta/server/server_counters.cc)."""
    return sum(line["about"][f"memory.{what}"] for what in ("index", "buffers", "cache")) / line["entries"]


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
            def client(what, *stores):
                return min(by_name[(number, f"client.{store}.{key}")][-1][f"{what}_cpu_ns"]
                           for store in stores)

            for what in ("put", "get"):
                found[f"{what}_speedup_vs_leveldb_{key}"].append(
                    (number, client(what, *LEVELDB) / client(what, "swale")))
                if f"{what}_cpu_ns_{key}" in found:
                    found[f"{what}_cpu_ns_{key}"].append((number, client(what, "swale")))
            found[f"get_speedup_vs_leveldb_iterator_{key}"].append(
                (number, client("get", ITERATOR) / client("get", "swale")))
            cold = min(cpu(number, f"cold.{store}.{key}") for store in LEVELDB)
            found[f"get_speedup_vs_leveldb_{key}_cold"].append(
                (number, cold / cpu(number, f"cold.swale.{key}")))
            load = by_name[(number, f"load.swale.{key}")][-1]
            if f"bytes_per_segment_{key}" in found:
                found[f"bytes_per_segment_{key}"].append((number, load["bytes_per_entry"]))
        found["memory_bytes_per_entry_random"].append(
            (number, memory_bytes_per_entry(by_name[(number, "memory.swale.random")][-1])))
        for part, names in SERVICE.items():
            for name in names:
                found[name].append((number, by_name[(number, part)][-1][name]))
        found["recovery_entries_per_second"].append(
            (number, by_name[(number, "recover.swale.random")][-1]["entries_per_second"]))
    return found


def judge_all(lines, rounds):
    factors = [calibration.factors([e["line"] for e in lines if e["round"] == number
                                    and e["name"] == "calibrate"])
               for number in range(rounds)]
    samples = samples_of(lines, rounds)
    return {key.name: judge.judged(key, samples[key.name], factors.__getitem__) for key in KEYS}


def text(result):
    lines = [report.text(result), "",
             "Through the public calls, rivals behind the same requests: CPU ns of a put, its server's "
             "part, of a get, its server's part"]
    lines += ["  ".join(f"{cell:>20}" for cell in row) for row in tables.of_clients(result["lines"])]
    lines += ["", "The index alone: CPU / wall ns an operation: pattern, store, put with drain, get warm, "
              "get cold; bytes an entry"]
    lines += ["  ".join(f"{cell:>20}" for cell in row) for row in tables.of_index(result["lines"])]
    return "\n".join(lines)


def measure(arguments, scratch):
    bench = Bench(arguments.programs, scratch, arguments.profile)
    load = os.getloadavg()
    kept = arguments.out / "meta.lines.json"
    if arguments.judge_again:
        bench.lines, load = json.loads(kept.read_text(encoding="utf-8"))
    else:
        bench.run_all()
        # nothing that fails below loses half an hour
        kept.write_text(json.dumps([bench.lines, load]), encoding="utf-8")
    result = {"profile": arguments.profile, "parameters": bench.p, "load_average": load,
              "results": judge_all(bench.lines, bench.p["rounds"]),
              "figures": paper.figures(bench.lines, bench.p),
              "lines": bench.lines}
    if arguments.results:
        paper.write(result, arguments.results)
    return result


def options(parser):
    parser.add_argument("--results", type=pathlib.Path, help="the folder that gets the page and the plots")
    parser.add_argument("--judge-again", action="store_true", help="measure nothing: judge what the last "
                        "run here has measured")


if __name__ == "__main__":
    sys.exit(judge.main(__doc__, "meta", PROFILES, measure, text, options))
