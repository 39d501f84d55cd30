#!/usr/bin/env python3
"""imd.py PROGRAMS OUT [--profile full|quick|tiny] [--scratch DIR]: `make bench-imd`.

Runs the programs of bench/ that are in the folder PROGRAMS, each as a process of its own, in rounds, so that
Swale, the raw device and the rivals meet the same moods of the machine; writes OUT/imd.json and prints what
was measured beside what must be. Exit status: 0 if every "must" is met, 1 if one is not, 2 if an answer was
wrong or a program failed. Progress goes to stderr. docs/design/benchmarks.md tells what is measured and how.
"""
import datetime
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import figures  # noqa: E402
import judge  # noqa: E402
import report  # noqa: E402

PROFILES = {
    # how long it takes on 2 quiet cores; keys in each epoch; the rivals' keys; rounds that measure rivals,
    # and the slow ones without compression too; samples of queries in each round; pairs of loads with and
    # without an indexed field
    "full": dict(expected_s=1000, keys=4_000_000, epochs=5, rounds=5, rival_keys=4_000_000,
                 rival_rounds=(1, 3), uncompressed_rounds=(1,), samples=300, opens=25, warm=10_000,
                 batches=3, top_loads=3, slow_keys=32_000_000, slow_rounds=5, slow_limit=100_000_000),
    "quick": dict(expected_s=330, keys=4_000_000, epochs=5, rounds=5, rival_keys=400_000,
                  rival_rounds=(1, 3), uncompressed_rounds=(1, 3), samples=200, opens=10, warm=5_000,
                  batches=2, top_loads=2, slow_keys=32_000_000, slow_rounds=2, slow_limit=100_000_000),
    "tiny": dict(expected_s=20, keys=3_000, epochs=3, rounds=1, rival_keys=1_000, rival_rounds=(0,),
                 uncompressed_rounds=(0,), samples=5, opens=2, warm=50, batches=1, top_loads=1,
                 slow_keys=8_000, slow_rounds=1, slow_limit=100_000_000,
                 quick_calibration=1, drop_all=0),  # the caches of the machine are not a test's to drop
}
RANKS = 4


class Bench(judge.Runner):
    def __init__(self, programs, scratch, shared_memory, profile):
        super().__init__(PROFILES[profile])
        self.programs, self.scratch, self.shared_memory = programs, scratch, shared_memory

    def has(self, program):
        return (self.programs / f"bench_{program}").exists()

    def run(self, name, program, **options):
        """Runs bench_PROGRAM and keeps the line that it reports under `name`."""
        return self.keep(name, [str(self.programs / f"bench_{program}"), *judge.words(options)])

    def work(self, **more):
        return dict(keys=self.p["keys"], epochs=self.p["epochs"], **more)

    def calibrate(self):
        """Several times a round: what this machine is worth at this moment."""
        self.run("calibrate", "calibrate", path=self.scratch / "calibrate",
                 quick=self.p.get("quick_calibration", 0))

    def write_alone(self):
        raw = dict(path=self.scratch / "raw", bytes=self.p["keys"] * self.p["epochs"] * 48)
        self.run("raw", "raw", **raw)
        self.run("generate", "ingest", store="nothing", **self.work())
        self.run("swale", "ingest", store="swale", path=self.scratch / "swale", **self.work())
        self.run("generate", "ingest", store="nothing", **self.work())
        self.run("raw", "raw", **raw)
        path = self.scratch / "swale_plain_ends"
        self.run("swale_plain_ends", "ingest", store="swale", path=path, overlap=0, **self.work())
        shutil.rmtree(path)
        self.run("raw_sync_each_epoch", "raw", parts=self.p["epochs"], **raw)
        self.run("append", "ingest", store="append", path=self.scratch / "append", **self.work())
        if self.round in (0, 1):
            self.run("raw_buffered", "raw", cache="buffered", **raw)

    def write_together(self):
        self.run("ranks_generate", "ingest", store="nothing", ranks=RANKS, **self.work())
        path = self.scratch / "ranks"
        self.run("ranks_swale", "ingest", store="swale", ranks=RANKS, path=path, **self.work())
        if self.round == 0:
            self.run("ranks_verify", "query", mode="verify", path=path, **self.work())
        shutil.rmtree(path)

    def slow_down(self):
        """Who begins changes from round to round, and from frame to frame."""
        if self.round >= self.p["slow_rounds"]:
            return
        slow = dict(ranks=RANKS, keys=self.p["slow_keys"], first=("plain", "swale")[self.round % 2])
        self.run("slowdown_storage", "slowdown", path=self.scratch / "slow", frames=1,
                 limit=self.p["slow_limit"], **slow)
        shutil.rmtree(self.scratch / "slow")
        frames = 2
        needs = self.p["slow_keys"] * 48 * (frames + 2)
        if shutil.disk_usage(self.shared_memory).free < 1.1 * needs:
            return
        path = self.shared_memory / "slow"
        self.run("slowdown_memory", "slowdown", path=path, frames=frames, plain="write", touch=1, **slow)
        shutil.rmtree(path)

    def query(self):
        path = self.scratch / "swale"
        first = self.round * 1_000_000
        ask = self.work(path=path, first=first, **{"drop-all": self.p.get("drop_all", 1)})
        if self.round == 0:
            self.run("query_verify", "query", mode="verify", **ask)
        self.run("query_footer_resident", "query", mode="cold", samples=self.p["samples"], **ask)
        self.run("query_first", "query", mode="first", samples=self.p["samples"], **ask)
        self.run("query_open", "query", mode="open", samples=self.p["opens"], **ask)
        self.run("query_warm", "query", mode="warm", samples=self.p["warm"], **ask)
        self.run("query_warm_mapped", "query", mode="warm", samples=self.p["warm"], options="imd.map=auto",
                 **ask)
        self.run("query_miss", "query", mode="miss", samples=self.p["warm"], **ask)
        self.run("query_batch", "query", mode="batch", samples=self.p["batches"], **ask)
        top = self.scratch / "topk"
        self.run("topk", "topk", path=top, keys=self.p["keys"], samples=max(5, self.p["samples"] // 5),
                 loads=self.p["top_loads"])
        shutil.rmtree(top)

    def rival(self, program, store, compact=False):
        if not self.has(program):
            return
        path = self.scratch / store
        work = self.rival_work(store)
        samples = max(2, self.p["samples"] // 2)
        load = self.run(store + ".load", program, mode="load", **work)
        self.run(store + ".query", program, mode="query", samples=samples, first=self.round * 1_000_000,
                 **work)
        if compact:
            more = self.run(store + ".compact", program, mode="compact", **work)
            both = {key: load[key] + more[key] for key in ("wall_s", "cpu_user_s", "cpu_system_s",
                                                           "cpu_ns_per_record")}
            self.lines.append({"round": self.round, "name": store + "-compacted.load",
                               "line": {**more, **both}})
            self.run(store + "-compacted.query", program, mode="query", samples=samples,
                     first=self.round * 1_000_000, **work)
        shutil.rmtree(path)

    def rival_work(self, store):
        return {"store": store, "path": self.scratch / store, "keys": self.p["rival_keys"],
                "epochs": self.p["epochs"],
                "drop-all": self.p.get("drop_all", 1)}

    def rival_uncompressed(self, program, store):
        """Its load only: compression is measured by what it costs to write."""
        if self.has(program) and (store.startswith("sst") or self.round in self.p["uncompressed_rounds"]):
            self.run(store + ".load", program, mode="load", **self.rival_work(store))
            shutil.rmtree(self.scratch / store)

    def rivals(self):
        if self.round not in self.p["rival_rounds"]:
            return
        self.rival("leveldb", "leveldb-4m")
        self.rival_uncompressed("leveldb", "leveldb-4m-uncompressed")
        self.rival("rocksdb", "sst")
        self.rival_uncompressed("rocksdb", "sst-uncompressed")
        self.rival("rocksdb", "rocksdb", compact=True)
        self.rival_uncompressed("rocksdb", "rocksdb-uncompressed")
        self.rival("leveldb", "leveldb-64m")
        self.run("scan", "scan", path=self.scratch / "append", samples=3, **self.work())
        if self.python_has_duckdb():
            self.keep("duckdb", [sys.executable, str(HERE / "duckdb_parquet.py"),
                                 str(self.scratch / "append"), str(self.scratch / "parquet"),
                                 str(self.p["keys"]), str(self.p["epochs"])])

    @staticmethod
    def python_has_duckdb():
        return subprocess.run([sys.executable, "-c", "import duckdb, numpy"],
                              capture_output=True).returncode == 0

    def run_all(self):
        for self.round in range(self.p["rounds"]):
            self.calibrate()
            self.write_alone()
            self.write_together()
            self.calibrate()
            self.query()
            self.calibrate()
            self.slow_down()
            self.rivals()
        self.progress.end()


def machine(scratch):
    def first_line(path, prefix):
        try:
            with open(path, encoding="utf-8") as file:
                return next((line.split(":", 1)[1].strip() for line in file if line.startswith(prefix)), "")
        except OSError:
            return ""

    stat = subprocess.run(["stat", "-f", "-c", "%T", str(scratch)], capture_output=True, text=True)
    return {
        "cpu": first_line("/proc/cpuinfo", "model name"),
        "cores": os.cpu_count(),
        "memory": first_line("/proc/meminfo", "MemTotal"),
        "kernel": platform.release(),
        "file_system": stat.stdout.strip(),
        "load_average": os.getloadavg(),
        "root": os.geteuid() == 0,
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    }


def measure(arguments, scratch):
    """Returns what is written to imd.json."""
    began = time.monotonic()
    shared = pathlib.Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else arguments.out
    with tempfile.TemporaryDirectory(prefix="swale-bench-", dir=shared) as shared_memory:
        needs = 16 * PROFILES[arguments.profile]["keys"] * 5 * 48 if arguments.profile != "tiny" else 0
        if shutil.disk_usage(scratch).free < needs:
            raise judge.Failed(f"{scratch}: needs {needs >> 30} GiB of free space")
        bench = Bench(arguments.programs, scratch, pathlib.Path(shared_memory), arguments.profile)
        about = machine(scratch)
        bench.run_all()
    lines = figures.Lines(bench.lines)
    return {
        "machine": about,
        "profile": arguments.profile,
        "parameters": {**bench.p, "key_bytes": 8, "value_bytes": 40, "ranks": RANKS,
                       "memory_budget_bytes": 64 << 20},
        "results": figures.judge(lines, bench.p["epochs"]),
        "stores": figures.stores(lines),
        "took_s": round(time.monotonic() - began, 1),
        "lines": bench.lines,
    }


def main():
    return judge.main(__doc__, "imd", PROFILES, measure, report.text)


if __name__ == "__main__":
    sys.exit(main())
