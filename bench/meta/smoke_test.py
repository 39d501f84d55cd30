"""smoke_test.py PROGRAMS: bench-meta on a few entries: it runs, its answers are checked, and its verdicts can be "no".

Asserts answers and judgements, never times.
"""
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import meta  # noqa: E402

PROGRAM = pathlib.Path(sys.argv[1]) / "meta" / "bench_meta_index"
STORES = ("swale", "swale-no-runs", "swale-lz77", "leveldb-4m")


def run(**options):
    words = [word for key, value in options.items() for word in (f"--{key}", str(value))]
    return subprocess.run([PROGRAM, *words], capture_output=True, text=True, timeout=100)


class Answers(unittest.TestCase):
    def test_each_store_answers_and_a_wrong_answer_is_seen(self):
        for store in STORES:
            for pattern, clients in (("strided", 16), ("tile", 16), ("btio", 16), ("random", 16)):
                work = dict(store=store, pattern=pattern, clients=clients, entries=20_000)
                with self.subTest(**work), tempfile.TemporaryDirectory(prefix="swale-test-") as scratch:
                    path = scratch + "/store"
                    loaded = run(mode="load", path=path, **work)
                    self.assertEqual(loaded.returncode, 0, loaded.stderr)
                    for cold in (0, 1):
                        got = run(mode="get", path=path, gets=10_000, cold=cold, **work)
                        self.assertEqual(got.returncode, 0, got.stderr)
                    wrong = run(mode="get", path=path, gets=10_000, canary=1, **work)
                    self.assertEqual(wrong.returncode, 1)
                    self.assertIn("WRONG ANSWER", wrong.stderr)

    def test_what_a_killed_server_left_is_recovered(self):
        with tempfile.TemporaryDirectory(prefix="swale-test-") as scratch:
            work = dict(store="swale", pattern="random", entries=20_000, path=scratch + "/store")
            self.assertEqual(run(mode="crash", **work).returncode, 0)
            self.assertEqual(run(mode="recover", **work).returncode, 0)
            self.assertEqual(run(mode="get", gets=10_000, **work).returncode, 0)


def lines_of(ours, rival):
    lines = [{"round": 0, "name": "calibrate", "line": dict(meta.calibration.REFERENCE)}]
    for key in meta.PATTERNS:
        for store, cpu in (("swale", ours), *((store, rival) for store in meta.LEVELDB)):
            for what in ("load", "warm", "cold"):
                lines.append({"round": 0, "name": f"{what}.{store}.{key}",
                              "line": {"cpu_ns": cpu, "wall_ns": cpu, "bytes_per_entry": cpu / 1000, "operations": 1000,
                                       "about": {"index_memory_bytes": ours, "buffer_memory_bytes": 0}}})
    lines.append({"round": 0, "name": "recover.swale.random", "line": {"entries_per_second": 1e9 / ours}})
    for part, names in meta.SERVICE.items():
        lines.append({"round": 0, "name": part, "line": {name: 1e4 / ours if "speedup" in name else ours for name in names}})
    return lines


class Verdicts(unittest.TestCase):
    def test_every_verdict_can_be_yes_and_no(self):
        good, bad = meta.judge(lines_of(1, 1000), 1), meta.judge(lines_of(10_000, 1000), 1)
        for key in meta.KEYS:
            if key.must is not None:
                self.assertIs(good[key.name]["met"], True, key.name)
                self.assertIs(bad[key.name]["met"], False, key.name)

    def test_a_missing_measurement_is_no_verdict(self):
        lines = [entry for entry in lines_of(1, 1000) if entry["name"] != "warm.swale.tile"]
        with self.assertRaises(KeyError):
            meta.judge(lines, 1)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
