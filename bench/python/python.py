#!/usr/bin/env python3
"""python.py PROGRAMS OUT [--profile full|quick|tiny]: the Python package beside the C calls, DuckDB and
pyarrow.

PROGRAMS (build/release/bench/python) has bench_python_c_calls. Each round measures ours and theirs one after
the other (in every second round the other way round), so that both meet the same mood of the machine; a
figure is a ratio within a round, and the median of the rounds is judged. Conversions are counted. Writes
OUT/python.json and prints the table with its verdicts. Exit status: 0 if every "must" is met, 1 if one is
not, 2 if a program failed or an answer was wrong.
"""
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import time

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import judge  # noqa: E402

# `alone`: the environment of the first picture has nothing but wheels; else it shares this one's libraries.
PROFILES = {"full": dict(keys=4_000_000, epochs=5, gets=2_000, many=100_000, rounds=5, sql=15, mib=512,
                         alone=True),
            "quick": dict(keys=400_000, epochs=5, gets=1_000, many=50_000, rounds=3, sql=7, mib=256,
                          alone=True),
            "tiny": dict(keys=2_000, epochs=3, gets=50, many=500, rounds=2, sql=2, mib=8, alone=False)}
# Name, must, aim, whether less is better, what it is.
KEYS = [
    ("get_over_c", 1.4, 1.2, True, "d[key], warm, over swale_reader_get"),
    ("get_many_over_c", 0.9, 1.05, False, "keys a second of d.get_many over swale_reader_get_many with a "
     "callback"),
    ("scan_over_memcpy", 0.15, 0.22, False, "d.scan() of all columns, one thread, bytes a second over a "
     "copy's; batches share 24 of the 72 bytes a row"),
    ("where_over_memcpy", 0.25, 0.35, False, "the same where one record in 1,000 passes, bytes read"),
    ("where_rows_over_duckdb", 1.0, 0.6, True, "time of these rows over DuckDB's on unsorted Parquet, all "
     "cores"),
    ("where_count_over_duckdb", 3, 1.5, True, "time of counting them over DuckDB's"),
    ("sql_key_over_sorted_parquet", 0.5, 0.25, True, "WHERE key = ? on a fresh DuckDB connection, cold, over "
     "its sorted Parquet"),
    ("append_many_over_c", 1.1, 0.9, True, "CPU a record of append_many over a C loop of swale_dir_append"),
    ("export_parquet_over_pyarrow", 1.6, 1.2, True, "wall time over pyarrow writing the same table from "
     "memory"),
    ("import_over_numpy", 0.5, 0.2, True, "import swale over import numpy"),
    ("scan_memory_bytes", 256 << 20, 128 << 20, True, "peak above the baseline of a stream with two threads"),
    ("wheel_bytes", 8_000_000, 4_000_000, True, "the wheel's size"),
    ("first_picture_seconds", 60, 30, True, "a fresh environment, wheels at hand, to a PNG of the example"),
]
VALUE = np.dtype([("x", "f8"), ("y", "f8"), ("z", "f8"), ("w", "f8"), ("energy", "f8")])
OPTIONS = "imd.key=u64,imd.schema=x:f8;y:f8;z:f8;w:f8;energy:f8,imd.extrema=energy"
WHERE = "energy < 0.001"


def frame(keys, epoch):
    random = np.random.default_rng(epoch)
    rows = np.empty(keys, dtype=VALUE)
    for name in VALUE.names:
        rows[name] = random.random(keys)
    return rows


def write(path, keys, epochs):
    import swale

    names = np.arange(keys, dtype="u8")
    with swale.create(path, schema=VALUE, key="u64", extrema=["energy"]) as out:
        for epoch in range(epochs):
            out.append_many(names, frame(keys, epoch))
            out.epoch_end(epoch, float(epoch))


def files_of(path):
    path = pathlib.Path(path)
    return [each for each in path.rglob("*") if each.is_file()] if path.is_dir() else [path]


def evict(path):
    """Out of the page cache, so that the next query is cold."""
    for file in files_of(path):
        descriptor = os.open(file, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def fetch(path):
    """Into the page cache, as all other queries expect it."""
    buffer = bytearray(1 << 20)
    for file in files_of(path):
        with open(file, "rb", buffering=0) as opened:
            while opened.readinto(buffer):
                pass


def timed(body):
    began = time.perf_counter()
    answer = body()
    return time.perf_counter() - began, answer


class Bench:
    def __init__(self, programs, scratch, profile):
        self.c, self.p, self.scratch = programs / "bench_python_c_calls", profile, scratch
        self.run = scratch / "run"
        self.unsorted, self.sorted = scratch / "unsorted.parquet", scratch / "sorted.parquet"

    def c_calls(self, mode, **more):
        return judge.run(self.c, *judge.words({"mode": mode, **more}))

    def child(self, *words):
        done = subprocess.run([sys.executable, __file__, *map(str, words)], capture_output=True, text=True,
                              timeout=900)
        if done.returncode != 0:
            raise judge.Failed(f"{words}: {done.stderr.strip()}")
        return json.loads(done.stdout)

    def prepare(self):
        import duckdb
        import pyarrow.parquet

        import swale

        write(self.run, self.p["keys"], self.p["epochs"])
        self.d = swale.open(self.run)
        table = self.d.scan(columns=["epoch", "key", *VALUE.names]).to_arrow()
        pyarrow.parquet.write_table(table, self.unsorted)
        duckdb.sql(f"copy (select * from '{self.unsorted}' order by key, epoch) to '{self.sorted}' (format "
                   f"parquet)")
        self.records = len(self.d)

    def keys_of(self, seed, count):
        return np.random.default_rng(seed).integers(0, self.p["keys"], count, dtype="u8")

    # ---- One round of each: (ours, theirs) -> the ratio ----

    def get_over_c(self, number):
        keys = self.keys_of(number, self.p["gets"]).tolist()

        def ours():
            for key in keys:
                rows = self.d[key]
            return len(rows)

        def theirs():
            return self.c_calls("get", dir=self.run, seed=number, gets=self.p["gets"],
                                keys=self.p["keys"])["us"]

        ours()
        c, (took, rows) = self.in_turn(number, theirs, lambda: timed(ours))
        self.expect(rows == self.p["epochs"], "a key has a row an epoch")
        return 1e6 * took / len(keys) / c

    def get_many_over_c(self, number):
        keys = self.keys_of(number, self.p["many"])
        self.d.get_many(keys)
        c, (took, table) = self.in_turn(
            number, lambda: self.c_calls("get_many", dir=self.run, seed=number, gets=self.p["many"],
                                         keys=self.p["keys"]),
            lambda: timed(lambda: self.d.get_many(keys)))
        self.expect(len(table) == self.p["many"] * self.p["epochs"] and c["found"] == self.p["many"],
                    "every key is found")
        return len(keys) / took / c["keys_per_s"]

    def scan_over_memcpy(self, number):
        copy, (took, table) = self.in_turn(number, lambda: self.c_calls("memcpy", mib=self.p["mib"]),
                                           lambda: timed(lambda: self.d.scan(threads=1)))
        self.expect(len(table) == self.records, "a scan has all records")
        return table.nbytes / took / copy["bytes_per_s"]

    def where_over_memcpy(self, number):
        copy, (took, table) = self.in_turn(number, lambda: self.c_calls("memcpy", mib=self.p["mib"]),
                                           lambda: timed(lambda: self.d.scan(threads=1, where=WHERE)))
        self.expect(0 < len(table) < self.records / 100, "few records pass")
        return 48 * self.records / took / copy["bytes_per_s"]

    def where_rows_over_duckdb(self, number):
        import duckdb

        columns = ["epoch", "key", *VALUE.names]
        query = f"select * from '{self.unsorted}' where {WHERE}"
        (theirs, rows), (ours, table) = self.in_turn(
            number, lambda: timed(lambda: duckdb.sql(query).to_arrow_table()),
            lambda: timed(lambda: self.d.scan(where=WHERE, columns=columns).to_arrow()))
        self.expect(rows.num_rows == table.num_rows
                    and abs(sum(rows["x"].to_pylist()) - sum(table["x"].to_pylist())) < 1e-6,
                    "both find the same rows")
        return ours / theirs

    def where_count_over_duckdb(self, number):
        import duckdb

        query = f"select count(*) from '{self.unsorted}' where {WHERE}"
        (theirs, rows), (ours, count) = self.in_turn(
            number, lambda: timed(lambda: duckdb.sql(query).fetchall()[0][0]),
            lambda: timed(lambda: len(self.d.scan(where=WHERE, columns=["key"]))))
        self.expect(rows == count, "both count the same")
        return ours / theirs

    def sql_key_over_sorted_parquet(self, number):
        import duckdb

        import swale

        # A connection of its own for each query, as one may remember files; but making it, 20 ms in DuckDB 2,
        # is nobody's query.
        def theirs(key):
            evict(self.sorted)
            connection = duckdb.connect()
            return timed(lambda: connection.execute(
                f"select * from '{self.sorted}' where key = {key}").fetchall())

        def ours(key):
            evict(self.run)
            connection = duckdb.connect()

            def ask():
                with swale.open(self.run) as d:
                    connection.register("run", d.dataset())
                    return connection.execute(f"select epoch, key, x, y, z, w, energy from run where key = "
                                              f"{key}").fetchall()

            return timed(ask)

        times = [[], []]
        for key in self.keys_of(number, self.p["sql"]).tolist():
            (a, rows), (b, found) = self.in_turn(number, lambda: theirs(key), lambda: ours(key))
            self.expect(sorted(rows) == sorted(found), "both have the key's rows")
            times[0].append(a)
            times[1].append(b)
        for path in (self.sorted, self.run):
            fetch(path)
        return statistics.median(times[1]) / statistics.median(times[0])

    def append_many_over_c(self, number):
        def fresh(name):
            shutil.rmtree(self.scratch / name, ignore_errors=True)
            return self.scratch / name

        c, ours = self.in_turn(
            number,
            lambda: self.c_calls("append", dir=fresh("c"), keys=self.p["keys"], epochs=1,
                                 options=OPTIONS)["cpu_ns"],
            lambda: self.child("append", fresh("python"), self.p["keys"])["cpu_ns"])
        return ours / c

    def export_parquet_over_pyarrow(self, number):
        from pyarrow import parquet

        table = self.d.scan().to_arrow()
        theirs, ours = self.in_turn(
            number, lambda: timed(lambda: parquet.write_table(table, self.scratch / "theirs.parquet",
                                                              compression="zstd"))[0],
            lambda: timed(lambda: self.d.export(self.scratch / "ours.parquet"))[0])
        self.expect(parquet.read_metadata(self.scratch / "ours.parquet").num_rows == self.records,
                    "the file has all records")
        return ours / theirs

    def import_over_numpy(self, number):
        def start(code):
            return min(timed(lambda: subprocess.run([sys.executable, "-c", code], check=True, timeout=60))[0]
                       for _ in range(5))

        nothing = start("pass")
        theirs, ours = self.in_turn(number, lambda: start("import numpy"), lambda: start("import swale"))
        return max(0.0, ours - nothing) / (theirs - nothing)

    def scan_memory_bytes(self, number):
        found = self.child("memory", self.run)
        self.expect(found["records"] == self.records, "the stream has all records")
        return found["bytes"]

    def wheel_bytes(self, number):
        return self.wheel().stat().st_size

    def first_picture_seconds(self, number):
        fresh, picture, wheels = (self.scratch / name for name in ("fresh", "first.png", "wheels"))
        python = fresh / "bin" / "python"
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
        wants = [str(self.wheel()) + "[plots]"] if self.p["alone"] else ["--no-deps", str(self.wheel())]
        if self.p["alone"] and not wheels.exists():
            self.command(*pip, "download", "--only-binary", ":all:", "--dest", wheels, *wants)
        for path in (fresh, self.scratch / "example"):
            shutil.rmtree(path, ignore_errors=True)
        picture.unlink(missing_ok=True)

        def body():
            self.command(sys.executable, "-m", "venv", "--without-pip", fresh)
            if not self.p["alone"]:
                [packages] = fresh.glob("lib/python*/site-packages")
                (packages / "here.pth").write_text(f"{pathlib.Path(np.__file__).parents[1]}\n")
            self.command(*pip, "--python", python, "install", "--no-index", "--find-links", wheels, *wants)
            self.command(python, "-m", "swale", "example", self.scratch / "example")
            self.command(python, "-m", "swale", "plot", self.scratch / "example", "--top", "energy", "-o",
                         picture)

        took, _ = timed(body)
        self.expect(picture.read_bytes().startswith(b"\x89PNG"), "the picture is a PNG")
        return took

    # ----

    @staticmethod
    def wheel():
        found = list(pathlib.Path(os.environ.get("SWALE_WHEELS", "nowhere")).glob("*.whl"))
        if len(found) != 1:
            raise judge.Failed("SWALE_WHEELS names no folder with the wheel: scripts/build-wheel.sh makes it")
        return found[0].resolve()

    @staticmethod
    def command(*words):
        done = subprocess.run([*map(str, words)], capture_output=True, text=True, timeout=900)
        if done.returncode != 0:
            raise judge.Failed(f"{' '.join(map(str, words))}: {done.stderr.strip()}")

    @staticmethod
    def in_turn(number, theirs, ours):
        if number % 2 == 0:
            first = theirs()
            return first, ours()
        second = ours()
        return theirs(), second

    @staticmethod
    def expect(right, what):
        if not right:
            raise judge.Failed(f"a wrong answer: {what}")


def measure(arguments, scratch):
    profile = PROFILES[arguments.profile]
    bench = Bench(arguments.programs, scratch, profile)
    bench.prepare()
    found = {name: [] for name, *_ in KEYS}
    for number in range(profile["rounds"]):
        for name in found:
            print(f"round {number + 1} of {profile['rounds']}: {name}", file=sys.stderr, flush=True)
            found[name].append(getattr(bench, name)(number))
    return {"profile": arguments.profile, "records": bench.records, "results": {
        name: verdict(found[name], must, aim, less, what) for name, must, aim, less, what in KEYS}}


def verdict(samples, must, aim, less_is_better, what):
    value = statistics.median(samples)
    met = [value <= bound if less_is_better else value >= bound for bound in (must, aim)]
    return {"value": value, "samples": samples, "what": what, "must": must, "aim": aim,
            "less_is_better": less_is_better,
            "met": met[0], "aim_met": met[1]}


def text(result):
    lines = [f"{'key':30} {'value':>12} {'must':>12} {'aim':>12}  verdict"]
    for name, entry in result["results"].items():
        told = "aim" if entry["aim_met"] else "must" if entry["met"] else "MISSED"
        lines.append(f"{name:30} {entry['value']:12.4g} {entry['must']:12.4g} {entry['aim']:12.4g}  {told}")
    return "\n".join(lines)


# ---- Programs of their own: what is measured of a whole process ----


def append_child(path, keys):
    import swale

    rows, names = frame(keys, 1), np.arange(keys, dtype="u8")
    with swale.create(path, schema=VALUE, key="u64", extrema=["energy"]) as out:
        began = time.process_time()
        out.append_many(names, rows)
        out.epoch_end(0)
    return {"cpu_ns": 1e9 * (time.process_time() - began) / keys}


def memory_of_this(name):
    """VmRSS or VmHWM in bytes. (ru_maxrss is no measure here: a program inherits that of who started it.)"""
    status = pathlib.Path("/proc/self/status").read_text()
    [found] = re.findall(rf"^{name}:\s+(\d+) kB$", status, re.MULTILINE)
    return 1024 * int(found)


def memory_child(path):
    import swale

    with swale.open(path) as d:
        for batch in d.stream(epochs=0, batch_rows=16, threads=1):
            break
        before = memory_of_this("VmRSS")
        pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        records = sum(len(batch) for batch in d.stream(threads=2))
        return {"bytes": memory_of_this("VmHWM") - before, "records": records}


if __name__ == "__main__":
    if sys.argv[1:2] == ["append"]:
        print(json.dumps(append_child(sys.argv[2], int(sys.argv[3]))))
    elif sys.argv[1:2] == ["memory"]:
        print(json.dumps(memory_child(sys.argv[2])))
    else:
        sys.exit(judge.main(__doc__, "python", PROFILES, measure, text))
