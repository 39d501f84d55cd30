"""smoke_test.py PROGRAMS: the benchmark on a few records: it runs, its answers are right, and it notices when
they are not.

Asserts answers and judgements, never times.
"""
import contextlib
import io
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import calibration  # noqa: E402
import figures  # noqa: E402
import imd  # noqa: E402
import judge  # noqa: E402
import report  # noqa: E402
from keys import KEYS  # noqa: E402

PROGRAMS = pathlib.Path(sys.argv[1])
RIVALS = {"leveldb": ("leveldb-4m", "leveldb-4m-uncompressed", "leveldb-64m"),
          "rocksdb": ("rocksdb", "rocksdb-uncompressed", "sst", "sst-uncompressed")}


def built(program):
    return (PROGRAMS / f"bench_{program}").exists()


ROCKSDB = built("rocksdb")


def run(program, **options):
    words = [word for key, value in options.items() for word in (f"--{key.replace('_', '-')}", str(value))]
    return subprocess.run([PROGRAMS / f"bench_{program}", *words], capture_output=True, text=True,
                          timeout=100)


class WholeBench(unittest.TestCase):
    def test_tiny_profile(self):
        with tempfile.TemporaryDirectory(prefix="swale-test-") as out:
            arguments = [str(HERE / "imd.py"), str(PROGRAMS), out, "--profile", "tiny"]
            done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=280)
            self.assertIn(done.returncode, (0, 1), done.stderr)
            with open(pathlib.Path(out) / "imd.json", encoding="utf-8") as file:
                result = json.load(file)
        missing = {name for name, entry in result["results"].items() if entry["value"] is None}
        self.assertLessEqual(missing, set(figures.CPU_RATIOS))
        self.assertEqual(done.returncode, 1 if any(e["met"] is False for e in result["results"].values())
                         else 0)
        self.assertEqual(set(result["results"]), {key.name for key in KEYS})
        tables = "\n".join(report.markdown(result))
        self.assertLess(len(json.dumps(report.kept(result))), 60_000)
        self.assertEqual(list(report.markdown(report.kept(result))), list(report.markdown(result)))
        for start in ("| **Swale** |", "| Swale, each epoch's end waited for |", "| `topk_bytes_read` |",
                      "| plain appends", *(["| RocksDB"] if ROCKSDB else [])):
            self.assertIn(start, tables)


class AnswersAreChecked(unittest.TestCase):
    WORK = dict(keys=500, epochs=3)

    def expect_wrong(self, done):
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("WRONG ANSWER", done.stderr)

    def expect_right(self, done):
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_swale(self):
        with tempfile.TemporaryDirectory(prefix="swale-test-") as scratch:
            right, wrong = scratch + "/right", scratch + "/wrong"
            self.expect_right(run("ingest", store="swale", path=right, **self.WORK))
            self.expect_right(run("ingest", store="swale", path=wrong, canary=1, **self.WORK))
            for mode, samples in (("verify", 1), ("warm", 3000), ("batch", 10), ("cold", 3000)):
                if mode != "cold":
                    self.expect_right(run("query", path=right, mode=mode, samples=samples, **self.WORK))
                self.expect_wrong(run("query", path=wrong, mode=mode, samples=samples, **self.WORK))
            more_epochs = dict(self.WORK, epochs=4)
            self.expect_wrong(run("query", path=right, mode="warm", samples=1, **more_epochs))
            self.expect_wrong(run("query", path=right, mode="verify", keys=501, epochs=3))

    def test_top(self):
        with tempfile.TemporaryDirectory(prefix="swale-test-") as scratch:
            work = dict(path=scratch + "/top", keys=2000, samples=2, loads=1)
            right = run("topk", **work)
            self.expect_right(right)
            self.assertEqual(json.loads(right.stdout)["cold"]["blocks"]["max"], 10)
            self.expect_wrong(run("topk", canary=1, **work))
            self.expect_wrong(run("topk", canary=2, **work))

    def test_scan(self):
        with tempfile.TemporaryDirectory(prefix="swale-test-") as scratch:
            self.expect_right(run("ingest", store="append", path=scratch + "/a", keys=3, epochs=3, canary=1))
            self.expect_wrong(run("scan", path=scratch + "/a", keys=3, epochs=3, samples=100))

    @unittest.skipUnless(built("leveldb"), "no LevelDB")
    def test_leveldb(self):
        self.check_rival("leveldb")

    @unittest.skipUnless(built("rocksdb"), "no RocksDB")
    def test_rocksdb(self):
        self.check_rival("rocksdb")

    def check_rival(self, program):
        for store in RIVALS[program]:
            with tempfile.TemporaryDirectory(prefix="swale-test-") as path, self.subTest(store):
                work = dict(store=store, path=path, drop_all=0, **self.WORK)
                loaded = run(program, mode="load", canary=1, **work)
                self.expect_right(loaded)
                compression = "none" if store.endswith("uncompressed") else "snappy"
                self.assertEqual(json.loads(loaded.stdout)["compression"], compression)
                self.expect_wrong(run(program, mode="query", samples=300, **work))


class FiguresAreJudged(unittest.TestCase):
    @staticmethod
    def lines(swale_ns, fetched, slower=1.0):
        def cpu(nanoseconds, **more):
            fields = ("cpu_ns_per_record", "cpu_between_ns_per_record")
            return {**dict.fromkeys(fields, nanoseconds), "wall_s": 1.0, "records": 1000, **more}

        cold = {"us": {"p50": 100, "p99": 200}, "asked_bytes": {"p50": 100},
                "fetched_bytes": {"p50": fetched, "min": fetched}, "depth_max": 2}
        reported = {
            "raw": cpu(1), "generate": cpu(4.0), "ranks_generate": cpu(4.0), "query_first": cold,
            "query_footer_resident": cold,
            "swale": cpu(swale_ns, bytes_ratio=1.0, rank_memory_bytes_max=1),
            "ranks_swale": cpu(60.0, rank_memory_bytes_max=70 << 20),
            "leveldb-4m.load": cpu(2004.0), "sst.load": cpu(204.0), "sst-uncompressed.load": cpu(144.0),
            "calibrate": {name: value * slower for name, value in calibration.REFERENCE.items()},
        }
        return figures.Lines([{"round": 0, "name": name, "line": line} for name, line in reported.items()])

    def test_met_and_missed(self):
        results = figures.judge(self.lines(24.0, 50_000), epochs=5)
        self.assertEqual(results["index_cpu_ns_per_record"]["value"], 20)
        met = {name: entry["met"] for name, entry in results.items()}
        self.assertTrue(met["index_cpu_ns_per_record"] and met["pipeline_cpu_ns_per_record"]
                        and met["query_first_us_p50"])
        self.assertEqual(results["leveldb_cpu_over_swale"]["value"], 100)
        self.assertTrue(met["leveldb_cpu_over_swale"] and results["leveldb_cpu_over_swale"]["aim_met"])
        self.assertFalse(met["rank_memory_bytes_max"], "one byte above the budget is too much")
        self.assertIs(met["slowdown_storage_bound"], False, "what was not measured is not met")
        self.assertIs(met["topk_bytes_read"], False)
        self.assertIsNone(met["query_first_us_p99"])
        self.assertTrue(met["sst_cpu_over_swale"], "7 times, by the table without compression")
        missed = figures.judge(self.lines(44.1, 50_000), epochs=5)
        self.assertFalse(missed["index_cpu_ns_per_record"]["met"])
        self.assertFalse(missed["leveldb_cpu_over_swale"]["met"])

    def test_every_bound_can_be_missed(self):
        for key in KEYS:
            worse = 2.0 if key.less_is_better else 0.5
            for bound in filter(None, (key.must, key.aim)):
                self.assertTrue(key.meets(bound, bound), key.name)
                self.assertFalse(key.meets(bound * worse, bound), key.name)

    def test_cold_queries_that_storage_did_not_see_do_not_count(self):
        results = figures.judge(self.lines(24.0, 4096), epochs=5)
        self.assertFalse(results["query_first_us_p50"]["met"])
        self.assertIn("page cache", results["query_first_us_p50"]["note"])

    def test_times_are_judged_by_the_hour_and_ratios_of_processor_times_are_not(self):
        slow = figures.judge(self.lines(64.0, 50_000, slower=1.5), epochs=5)
        index = slow["index_cpu_ns_per_record"]
        self.assertAlmostEqual(index["raw"], 60)
        self.assertAlmostEqual(index["factor"], 1.5)
        self.assertAlmostEqual(index["value"], 40)
        self.assertFalse(figures.judge(self.lines(64.0, 50_000), epochs=5)["index_cpu_ns_per_record"]["met"])
        self.assertFalse(figures.judge(self.lines(44.0, 50_000, slower=0.9),
                                       epochs=5)["index_cpu_ns_per_record"]["met"])
        self.assertAlmostEqual(slow["sst_cpu_over_swale"]["value"], 140 / 60)
        self.assertNotIn("raw", slow["sst_cpu_over_swale"])
        wall = slow["index_wall_over_raw_append"]
        # one computes and waits for others, the other does not
        self.assertEqual((wall["raw"], wall["factor"]), (1.0, 1.5))
        self.assertAlmostEqual(wall["value"], 1 / 1.5)
        rate = next(key for key in KEYS if key.name == "batch_get_keys_per_s")
        self.assertEqual(rate.normalised(400_000, {"cpu": 2.0}), 800_000)

    def test_a_round_without_calibration_is_not_judged(self):
        lines = figures.Lines([{"round": 0, "name": "query_warm", "line": {"us": {"p50": 1}}}])
        with self.assertRaises(calibration.Missing):
            figures.judge(lines, epochs=5)

    def test_progress_is_told_where_there_is_no_terminal(self):
        said = io.StringIO()
        progress = judge.Progress(830, said)
        progress.say("round 1 of 5: raw")
        progress.say("round 1 of 5: swale")  # within the interval
        self.assertEqual(said.getvalue(), "  0:00 of about 13:50: round 1 of 5: raw\n")

    def test_a_failing_program_fails_the_run(self):
        with tempfile.TemporaryDirectory(prefix="swale-test-") as out:
            stderr, argv = io.StringIO(), sys.argv
            sys.argv = ["imd.py", out, out, "--profile", "tiny"]
            (pathlib.Path(out) / "bench_calibrate").symlink_to("/bin/false")
            try:
                with contextlib.redirect_stderr(stderr):
                    self.assertEqual(imd.main(), 2)
            finally:
                sys.argv = argv
            self.assertIn("bench_calibrate", stderr.getvalue())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
