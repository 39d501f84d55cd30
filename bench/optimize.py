#!/usr/bin/env python3
"""optimize.py PROGRAMS OUT --swale SWALE [--profile full|quick|tiny] [--only PART] [--scratch DIR]: `make
bench-optimize`.

Writes directories, asks trajectories, runs `swale optimize`, asks again, and asks compacted RocksDB the same.
Writes OUT/optimize.json, and the page of results optimize.md, .csv and .png (optimize_page.py). Exit status
as judge.py says. PROGRAMS has the programs of bench/, SWALE is the command. docs/design/clusters.md and
reader.md tell what is expected. --only measures one part, without a page, into OUT/optimize-PART.json.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import judge  # noqa: E402
import optimize_page  # noqa: E402
from figures import Lines, divided  # noqa: E402
from imd import machine  # noqa: E402
from keys import Key  # noqa: E402

PROFILES = {
    "full": dict(expected_s=1_420, keys=4_000_000, long_keys=20_000, long_epochs=1_000, pass_keys=2_000,
                 rounds=3, samples=200, opens=20, warm=10_000, frame_keys=100_000, frame_epochs=400,
                 axis_records=4_000_000, axis_epochs=(1, 4, 16, 64, 250, 1_000)),
    "quick": dict(expected_s=400, keys=400_000, long_keys=2_000, long_epochs=1_000, pass_keys=2_000,
                  rounds=1, samples=100, opens=10, warm=5_000, frame_keys=50_000, frame_epochs=200,
                  axis_records=1_000_000, axis_epochs=(1, 10, 100, 1_000)),
    "tiny": dict(expected_s=40, keys=3_000, long_keys=200, long_epochs=20, pass_keys=200, rounds=1, samples=5,
                 opens=2, warm=50, frame_keys=2_000, frame_epochs=40, axis_records=4_000, axis_epochs=(1, 20),
                 quick_calibration=1, drop_all=0),
}
KEYS = (
    Key("optimized_cold_over_rocksdb", "a trajectory of five epochs, nothing resident but indexes, over "
        "compacted RocksDB", "", 1.0, 0.85),
    Key("optimized_warm_over_rocksdb", "the same of keys that were asked before", "", 1.0, 0.6),
    Key("optimized_page_cache_over_rocksdb", "the same of keys that were not, from the page cache; RocksDB "
        "was asked before", "", None, None),
    Key("optimized_open_query_over_rocksdb", "opening and a trajectory, in a fresh process, nothing resident",
        "", 0.05, 0.035),
    Key("optimized_1000_reads", "reads of a trajectory of the long directory", "", 3, 2),
    Key("optimized_1000_depth", "its longest chain of reads that waited for one another", "", 3, 2),
    Key("optimized_1000_bytes_over_values", "bytes asked for, over bytes of values", "", 1.6, 1.35),
    Key("optimized_1000_cold_over_rocksdb", "its time, nothing resident but indexes, over that of RocksDB",
        "", 1.0, 0.7),
    Key("cached_cold_over_leveldb", "a trajectory of five epochs before the pass, nothing resident but "
        "indexes, over LevelDB", "", 0.9, 0.65),
    Key("optimized_1000_cold_over_unoptimized", "its time over that before the pass", "", 0.03, 0.015),
    Key("optimize_cpu_ns_per_record", "CPU of the pass on five epochs", "ns", 60, 40, by="cpu"),
    Key("optimize_wall_over_copy", "time of a pass with --full over O_DIRECT reads and writes of the same "
        "bytes by as many threads", "", 1.5, 1.2, by="wait"),
    Key("frame_beside_optimize", "a storage-bound frame beside --follow --rate of a tenth of the device, "
        "over alone", "", 1.15, 1.12),
    Key("frame_beside_rate", "what that pass read and wrote during the frame, over its --rate", "", None,
        None),
    Key("rocksdb_cpu_over_optimized", "CPU of RocksDB's load and compaction over writing and the pass, net "
        "of generating", "", 18, 25, less_is_better=False),
    Key("optimize_bytes_over_data", "bytes of a cluster of 16 epochs over those of keys and values", "", 0.90,
        0.86),
    Key("optimize_write_amplification", "the long directory made in passes of 16 epochs: bytes that the job "
        "and all passes wrote over those of keys and values", "", 4, 3.5),
    Key("optimize_reads", "reads of its trajectory after the last pass", "", 24, 16),
    Key("optimize_compressed_bytes_over_data", "bytes of a cluster of 16 epochs of slow particles with lz4, "
        "over those of keys and values", "", None, None),
    Key("optimize_compressed_bytes_over_epochs", "the same over the files of the epochs themselves", "", None,
        None),
    Key("optimize_compressed_zstd_bytes_over_data", "the same with zstd, over keys and values", "", None,
        None),
    Key("optimize_compressed_long_bytes_over_data", "the same with lz4, of 400 epochs", "", None, None),
    Key("optimize_compressed_cpu_ns_per_record", "CPU of the pass on 16 epochs with lz4", "ns", None, None,
        by="cpu"),
    Key("optimize_compressed_page_cache_us", "a trajectory of 16 epochs with lz4 from the page cache", "us",
        None, None, by="cpu"),
)
SHORT, DENSE, PASS, LONG = 5, 16, 16, 400  # epochs
TURNS = 5  # of a round, in which Swale and a rival are asked one after the other
FRAME_TURNS = 5  # of a round: alone and beside a pass
RECORD_BYTES = 48
GETS_MAX = 16  # epochs: beyond, a scan is a store's quickest way
PARTS = ("five_epochs", "many_epochs", "compressed", "passes", "frames")
ONCE = ("passes",)  # of counts that come out the same


class Bench(judge.Runner):
    def __init__(self, programs, swale, scratch, profile):
        super().__init__(PROFILES[profile])
        self.programs, self.swale, self.scratch = programs, swale, scratch

    def run(self, name, program, **options):
        return self.keep(name, [str(self.programs / f"bench_{program}"), *judge.words(options)])

    def first_key(self, turn=0):
        """Each turn of a round asks for other keys."""
        return self.round * 1_000_000 + turn * 100_000

    def ask(self, name, mode, path, keys, epochs, samples, turn=0):
        self.run(name, "query", mode=mode, path=path, keys=keys, epochs=epochs, samples=samples,
                 first=self.first_key(turn), **{"drop-all": self.p.get("drop_all", 1)})

    def swale_optimize(self, name, path, *flags):
        return self.keep(name, [str(self.swale), "optimize", str(path), *flags, "--json"])

    def optimize(self, name, path):
        """A pass, with its CPU and the bytes of its cluster."""
        before, began = os.times(), time.monotonic()
        line = self.swale_optimize(name, path, "--full")
        line["wall_s"] = time.monotonic() - began
        after = os.times()
        line["cpu_s"] = (after.children_user + after.children_system
                         - before.children_user - before.children_system)
        line["cpu_ns_per_record"] = line["cpu_s"] * 1e9 / line["records"]
        line["disk_bytes"] = bytes_below(path / "clusters")
        line["bytes_over_data"] = line["disk_bytes"] / line["data_bytes"]

    def five_epochs(self):
        """Both stores are there when the first is asked: a device is another one from minute to minute."""
        path, work = self.scratch / "short", dict(keys=self.p["keys"], epochs=SHORT)
        self.run("generate", "ingest", store="nothing", **work)
        self.run("swale", "ingest", store="swale", path=path, **work)
        self.ask("before.cold", "cold", path, samples=self.p["samples"], **work)
        self.before_the_pass(path, work)
        self.optimize("optimize", path)
        self.run("copy", "copy", **{"from": path, "to": self.scratch / "copy", "threads": os.cpu_count(),
                                    "write-bytes": self.lines[-1]["line"]["disk_bytes"]})
        self.ask("verify", "verify", path, samples=1, **work)
        self.ask("after.cold", "cold", path, samples=self.p["samples"], **work)
        rocksdb = self.load_rival("rocksdb", "rocksdb", **work)
        for turn in range(TURNS):
            self.ask("after.cached", "cached", path, samples=self.p["samples"], turn=turn, **work)
            self.ask("after.warm", "warm", path, samples=self.p["warm"], turn=turn, **work)
            self.ask("after.again", "again", path, samples=self.rival_warm(), turn=turn, **work)
            self.ask("after.open", "open", path, samples=self.p["opens"], turn=turn, **work)
            if rocksdb:
                self.ask_rival("rocksdb", "rocksdb", rocksdb, turn=turn, **work)
        if rocksdb:
            shutil.rmtree(rocksdb)
        shutil.rmtree(path)

    def before_the_pass(self, path, work):
        """With slices in memory; in the first round beside LevelDB, whose load takes long."""
        leveldb = self.load_rival("leveldb", "leveldb", **work) if self.round == 0 else None
        for turn in range(TURNS if leveldb else 1):
            self.ask("before.cached", "cached", path, samples=self.p["samples"], turn=turn, **work)
            if leveldb:
                self.ask_rival("leveldb", "leveldb", leveldb, turn=turn, **work)
        if leveldb:
            shutil.rmtree(leveldb)

    def rival_samples(self):
        return max(2, self.p["samples"] // 2)

    def rival_warm(self):
        """The keys that store_bench.cc asks again."""
        return 10 * self.rival_samples()

    def rival_work(self, program, path, keys, epochs):
        return dict(store="rocksdb" if program == "rocksdb" else "leveldb-4m", path=path, keys=keys,
                    epochs=epochs, **{"drop-all": self.p.get("drop_all", 1)})

    def load_rival(self, name, program, keys, epochs):
        """A store of the rival, loaded and compacted if it can be: its path. None: it is not installed."""
        if not (self.programs / f"bench_{program}").exists():
            return None
        path = self.scratch / program
        work = self.rival_work(program, path, keys, epochs)
        self.run(f"{name}.load", program, mode="load", **work)
        if program == "rocksdb":
            self.run(f"{name}.compact", program, mode="compact", **work)
        return path

    def ask_rival(self, name, program, path, keys, epochs, turn=0):
        self.run(f"{name}.query", program, mode="query", samples=self.rival_samples(),
                 first=self.first_key(turn), ways="all" if epochs <= GETS_MAX else "range",
                 **self.rival_work(program, path, keys, epochs))

    def rival(self, name, program, keys, epochs):
        if path := self.load_rival(name, program, keys, epochs):
            self.ask_rival(name, program, path, keys, epochs)
            shutil.rmtree(path)

    def many_epochs(self):
        path, work = self.scratch / "long", dict(keys=self.p["long_keys"], epochs=self.p["long_epochs"])
        self.run("long.swale", "ingest", store="swale", path=path, **work)
        self.ask("long.before", "cold", path, samples=max(2, self.p["samples"] // 10), **work)
        self.optimize("long.optimize", path)
        self.ask("long.after", "cold", path, samples=self.p["samples"], **work)
        self.ask("long.cached", "cached", path, samples=self.p["samples"], **work)
        shutil.rmtree(path)
        self.rival("long.rocksdb", "rocksdb", **work)
        path = self.scratch / "dense"
        self.run("dense.swale", "ingest", store="swale", path=path, keys=self.p["keys"] // 4, epochs=DENSE)
        self.optimize("dense.optimize", path)
        shutil.rmtree(path)

    def passes(self):
        """A job of 16 epochs, a pass, and again: what all passes write, and what a trajectory reads then."""
        path, keys, epochs = self.scratch / "passes", self.p["pass_keys"], self.p["long_epochs"]
        cluster_bytes = 0
        for first in range(0, epochs, PASS):
            self.run("passes.swale", "ingest", store="swale", path=path, keys=keys,
                     epochs=min(first + PASS, epochs), **{"first-epoch": first})
            made = self.swale_optimize("passes.optimize", path)
            cluster_bytes += bytes_below(path / "clusters" / f"{made['cluster']:04}")
        self.ask("passes.after", "cold", path, keys, epochs, self.p["samples"])
        self.ask("passes.verify", "verify", path, keys, epochs, 1)
        written = bytes_below(path) - bytes_below(path / "clusters") + cluster_bytes
        self.lines[-1]["line"]["written_over_data"] = written / (epochs * keys * RECORD_BYTES)
        shutil.rmtree(path)

    def compressed(self):
        """Particles that move slowly: series of these are columns along epochs."""
        path, dense = self.scratch / "compressed", self.p["keys"] // 16
        for name, codec, keys, epochs in (("lz4", "lz4", dense, DENSE), ("zstd", "zstd", dense, DENSE),
                                          ("long", "lz4", max(dense * DENSE // LONG, 50), LONG)):
            work = dict(path=path, keys=keys, epochs=epochs, values="trajectories")
            self.run(f"compressed.{name}.swale", "ingest", store="swale",
                     options=f"imd.memory=64M,imd.compression={codec}", **work)
            of_epochs = bytes_below(path)
            self.optimize(f"compressed.{name}.optimize", path)
            line = self.lines[-1]["line"]
            line["bytes_over_epochs"] = line["disk_bytes"] / of_epochs
            self.run(f"compressed.{name}.verify", "query", mode="verify", samples=1, **work)
            self.run(f"compressed.{name}.warm", "query", mode="warm", samples=self.p["samples"], **work)
            shutil.rmtree(path)

    def frames(self):
        """A job that writes frame after frame, alone and beside a pass that follows it."""
        path = self.scratch / "frames"
        work = dict(store="swale", path=path, keys=self.p["frame_keys"], epochs=self.p["frame_epochs"])
        for _ in range(FRAME_TURNS):
            self.frame("frames.alone", work)
            device = self.run("device", "raw", path=self.scratch / "raw",
                              bytes=work["keys"] * work["epochs"] * 12)
            self.frame("frames.beside", work, rate=max(2**20, int(device["bytes_per_s"] / 10)))
        self.frame("frames.alone", work)

    def frame(self, name, work, rate=None):
        """What was removed before is not trimmed while it runs."""
        os.sync()
        follower = Follower(self.swale, work["path"], rate) if rate else None
        line = self.run(name, "ingest", **work)
        if follower:
            line.update(rate=rate, rate_taken=follower.moved_bytes() / line["wall_s"] / rate,
                        clusters=follower.end())
        shutil.rmtree(work["path"])

    def run_all(self, only=None):
        for self.round in range(self.p["rounds"]):
            self.run("calibrate", "calibrate", path=self.scratch / "calibrate",
                     quick=self.p.get("quick_calibration", 0))
            for part in PARTS:
                if only in (None, part) and (self.round == 0 or part not in ONCE):
                    getattr(self, part)()
        if only is None:
            for epochs in self.p["axis_epochs"]:
                self.axis(epochs)
        self.progress.end()

    def axis(self, epochs):
        """One place of the page's axis: as many records, in so many epochs."""
        name, path = f"axis.{epochs}", self.scratch / "axis"
        work = dict(keys=max(self.p["axis_records"] // epochs, 2), epochs=epochs)
        samples = max(2, self.p["samples"] // 2)
        self.run(f"{name}.swale", "ingest", store="swale", path=path, **work)
        self.ask(f"{name}.before.cached", "cached", path, samples=samples, **work)
        self.ask(f"{name}.before.again", "again", path, samples=self.rival_warm(), **work)
        self.optimize(f"{name}.optimize", path)
        self.ask(f"{name}.after.cached", "cached", path, samples=samples, **work)
        self.ask(f"{name}.after.again", "again", path, samples=self.rival_warm(), **work)
        shutil.rmtree(path)
        for program in ("rocksdb", "leveldb"):
            self.rival(f"{name}.{program}", program, **work)


def bytes_below(folder):
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


class Follower:
    """`swale optimize --follow` of a directory that a job is about to make."""

    PATIENCE_S, WAIT_S = 5, 600

    def __init__(self, swale, path, rate):
        script = f'until [ -e "{path}/swale.json" ]; do sleep 0.02; done; exec "$@"'
        self.process = subprocess.Popen(
            ["sh", "-c", script, "sh", str(swale), "optimize", str(path), "--follow", "--rate", str(rate),
             "--json"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def moved_bytes(self):
        """What it has read from storage and written to it so far."""
        counts = dict(line.split(": ") for line in
                      pathlib.Path(f"/proc/{self.process.pid}/io").read_text(encoding="ascii").splitlines())
        return int(counts["read_bytes"]) + int(counts["write_bytes"])

    def end(self):
        """The job has ended: how many clusters it has made. What would take long is not waited for."""
        try:
            out, errors = self.process.communicate(timeout=self.PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.terminate()
            out, errors = self.process.communicate(timeout=self.WAIT_S)
        if self.process.returncode != 0:
            raise judge.Failed(f"swale optimize --follow: {errors.strip()}")
        return sum(json.loads(line)["cluster"] is not None for line in out.splitlines())


def of_round(dated, number):
    return [value for round_of, value in dated if round_of == number]


def judged_samples(lines, profile):
    def of_rival(rival_name, measure):
        return [(number, optimize_page.quickest(line, measure)) for number, line in lines.dated(rival_name)]

    def over(name, rivals, path=("us", "p50")):
        """Neighbours: the n-th line of a round over the rival's n-th."""
        return [(number, ours / theirs) for number in lines.rounds(name)
                for ours, theirs in zip(of_round(lines.dated(name, *path), number), of_round(rivals, number))]

    def beside():
        """Each frame beside a pass over those before and after it."""
        return [(number, frame * 2 / (before + after)) for number in lines.rounds("frames.beside")
                for alone in [of_round(lines.dated("frames.alone", "writing_s"), number)]
                for frame, before, after in zip(of_round(lines.dated("frames.beside", "writing_s"), number),
                                                alone, alone[1:])]

    rival = lines.rounds("rocksdb.query")
    cpu, over_data = ("cpu_ns_per_record",), ("bytes_over_data",)
    return {
        "optimized_cold_over_rocksdb": over("after.cached", of_rival("rocksdb.query", "cold_us")),
        "optimized_warm_over_rocksdb": over("after.again", of_rival("rocksdb.query", "warm_us")),
        "optimized_page_cache_over_rocksdb": over("after.warm", of_rival("rocksdb.query", "warm_us")),
        "optimized_1000_cold_over_rocksdb": over("long.cached", of_rival("long.rocksdb.query", "cold_us")),
        "cached_cold_over_leveldb": over("before.cached", of_rival("leveldb.query", "cold_us")),
        "optimized_open_query_over_rocksdb": over(
            "after.open", lines.dated("rocksdb.query", "open_and_query_ms", "p50"), ("ms", "p50")),
        "optimized_1000_reads": lines.dated("long.after", "reads", "p50"),
        "optimized_1000_depth": lines.dated("long.after", "depth_max"),
        "optimized_1000_bytes_over_values": [(number, asked / (40 * profile["long_epochs"]))
                                             for number, asked in lines.dated("long.after", "asked_bytes",
                                                                              "p50")],
        "optimized_1000_cold_over_unoptimized": lines.combine([("long.after", ("us", "p50")),
                                                               ("long.before", ("us", "p50"))], divided),
        "optimize_cpu_ns_per_record": lines.dated("optimize", *cpu),
        "optimize_wall_over_copy": lines.combine([("optimize", ("wall_s",)), ("copy", ("wall_s",))], divided),
        "frame_beside_optimize": beside(),
        "frame_beside_rate": lines.dated("frames.beside", "rate_taken"),
        "rocksdb_cpu_over_optimized": lines.combine(
            [("rocksdb.load", cpu), ("rocksdb.compact", cpu), ("swale", cpu), ("optimize", cpu),
             ("generate", cpu)],
            lambda load, compact, write, optimize, generate: (load + compact - generate) / (write + optimize
                                                                                            - generate))
        if rival else [],
        "optimize_bytes_over_data": lines.dated("dense.optimize", *over_data),
        "optimize_write_amplification": lines.dated("passes.verify", "written_over_data"),
        "optimize_reads": lines.dated("passes.after", "reads", "p50"),
        "optimize_compressed_bytes_over_data": lines.dated("compressed.lz4.optimize", *over_data),
        "optimize_compressed_bytes_over_epochs": lines.dated("compressed.lz4.optimize", "bytes_over_epochs"),
        "optimize_compressed_zstd_bytes_over_data": lines.dated("compressed.zstd.optimize", *over_data),
        "optimize_compressed_long_bytes_over_data": lines.dated("compressed.long.optimize", *over_data),
        "optimize_compressed_cpu_ns_per_record": lines.dated("compressed.lz4.optimize", *cpu),
        "optimize_compressed_page_cache_us": lines.dated("compressed.lz4.warm", "us", "p50"),
    }


def measure(arguments, scratch):
    bench = Bench(arguments.programs, arguments.swale, scratch, arguments.profile)
    about = machine(scratch)
    bench.run_all(arguments.only)
    lines = Lines(bench.lines)
    found = judged_samples(lines, bench.p)
    results = {key.name: judge.judged(key, found[key.name], lines.factors) for key in KEYS
               if arguments.only is None or found[key.name]}
    result = {"profile": arguments.profile, "machine": about, "parameters": bench.p, "results": results,
              "lines": bench.lines}
    if arguments.only is None:
        optimize_page.write(result, arguments.out)
    return result


def text(result):
    def shown(value):
        return "-" if value is None else f"{value:.4g}"

    return "\n".join(f"  {name:40} {shown(row['value']):>10}   must {row['must']}, aim {row['aim']}"
                     for name, row in result["results"].items())


def options(parser):
    parser.add_argument("--swale", type=pathlib.Path, required=True)
    parser.add_argument("--only", choices=PARTS, help="one part alone, in the rounds of the profile")


def main():
    return judge.main(__doc__, "optimize", PROFILES, measure, text, more=options)


if __name__ == "__main__":
    sys.exit(main())
