"""ablation_smoke_test.py PROGRAMS: the ablations on a few records: they run, their answers are checked, the
page is made, and each of these notices when something is wrong.

Asserts answers, columns and claims, never times. LevelDB is left out where it is not built, plots where there
is no matplotlib.
"""
import contextlib
import io
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import ablation  # noqa: E402
import ablation_claims  # noqa: E402
import ablation_page  # noqa: E402
import ablation_parts  # noqa: E402
from ablation_table import Refused, Table  # noqa: E402

PROGRAMS = pathlib.Path(sys.argv[1])
LEVELDB = (PROGRAMS / "bench_shuffled_leveldb").exists()


def has_matplotlib(python):
    return subprocess.run([python, "-c", "import matplotlib"], capture_output=True).returncode == 0


# Debian's matplotlib belongs to Debian's interpreter, which need not be the one that runs this.
PLOTTER = next((python for python in (sys.executable, "/usr/bin/python3") if has_matplotlib(python)), None)


def run(program, **options):
    words = [word for key, value in options.items() for word in (f"--{key.replace('_', '-')}", str(value))]
    return subprocess.run([PROGRAMS / f"bench_{program}", *words], capture_output=True, text=True,
                          timeout=100)


def call_main(*words):
    """ablation.py's exit status, and what it prints on stderr."""
    stderr, argv = io.StringIO(), sys.argv
    sys.argv = ["ablation.py", *map(str, words)]
    try:
        with contextlib.redirect_stderr(stderr), contextlib.redirect_stdout(io.StringIO()):
            return ablation.main(), stderr.getvalue()
    finally:
        sys.argv = argv


class WholeAblation(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="swale-test-")
        cls.results = pathlib.Path(cls.folder.name) / "results"
        cls.status, cls.stderr = call_main(PROGRAMS, cls.results, "--profile", "tiny", "--no-plots")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_every_part_has_rows_and_claims(self):
        self.assertEqual(self.status, 0, self.stderr)
        for part in ablation_parts.PARTS:
            table = Table(self.results / f"{part}.csv")
            claims = list(ablation_claims.CLAIMS[part](table))
            self.assertTrue(claims or not LEVELDB, part)
            for claim in claims:
                self.assertTrue(claim.place and claim.paper and claim.ours and claim.why, claim)
        self.assertEqual({row["part"] for row in ablation.read_csv(self.results / "machine.csv")},
                         set(ablation_parts.PARTS))

    def test_bytes_are_those_of_the_data_and_little_more(self):
        # What does not depend on time: the directory is never smaller than the data.
        for ratio in Table(self.results / "frame.csv").samples("bytes_ratio"):
            self.assertTrue(1 < ratio < 2, ratio)
        waited = Table(self.results / "delivery.csv").samples("progress_waited_share", delivery="queue")
        self.assertEqual(set(waited), {0})
        reads = Table(self.results / "reads.csv")
        # a footer, 2 x (slice, block)
        self.assertEqual(reads.samples("reads", store="swale", filters="sketch", epochs=2), [5, 5])

    def test_what_compresses_is_smaller(self):
        table = Table(self.results / "compression.csv")

        def ratio(values, codec):
            return table.median("bytes_ratio", store="swale", values=values, codec=codec)

        for values in ablation_parts.VALUES:
            self.assertGreater(ratio(values, "none"), 1)
            self.assertLess(ratio(values, "lz4"), ratio(values, "none"))
        self.assertLess(ratio("particles", "zstd"), ratio("particles", "lz4"))

    # What tells cases apart; everything else in a CSV was measured.
    CASES = {"mb", "epochs", "round", "ranks", "keys_per_rank", "mb_s", "first_mb_s", "in_flight",
             "frame_mb", "all_caches_dropped"}

    def distorted(self, table, rng):
        """The table with other figures in some cases: all of a column near one value, or anything, or shares
        by lot.
        """
        other = Table.__new__(Table)
        other.name, other.rows, touched, base = table.name, [], {}, {}
        spread = rng.choice((1.02, 1.5, 30, 300))
        for row in table.rows:
            case = tuple(value for value in row.values() if isinstance(value, str))
            new = dict(row)
            for column, value in row.items():
                if column in self.CASES or isinstance(value, str):
                    continue
                if column not in base:
                    base[column] = value * 10 ** rng.uniform(-2, 2)
                if touched.setdefault((case, column), rng.random() < 0.6):
                    new[column] = rng.random() if "share" in column else base[column] * spread ** rng.uniform(
                        -1, 1)
            other.rows.append(new)
        return other

    def test_every_verdict_can_be_yes_and_no(self):
        rng = random.Random(7)
        for part in ablation_parts.PARTS:
            table, seen = Table(self.results / f"{part}.csv"), {}
            # What was measured decides how rare the rarest verdict is: seen in 29 of 2,000 draws.
            for draw in range(20_000):
                if draw >= 1000 and all(len(verdicts) == 2 for verdicts in seen.values()):
                    break
                for claim in ablation_claims.CLAIMS[part](self.distorted(table, rng)):
                    seen.setdefault((claim.place, claim.paper), set()).add(bool(claim.agrees))
            for claim, verdicts in seen.items():
                self.assertEqual(verdicts, {True, False}, (part, claim))

    @unittest.skipUnless(PLOTTER, "no matplotlib")
    def test_page_and_plots_come_from_the_csvs_alone(self):
        done = subprocess.run([PLOTTER, HERE / "ablation.py", "/nowhere", self.results, "--plots"],
                              capture_output=True, text=True, timeout=200)
        self.assertEqual(done.returncode, 0, done.stderr)
        page = (self.results / "README.md").read_text(encoding="utf-8")
        for part in ablation_parts.PARTS:
            self.assertIn(f"({part}.png)", page)
            self.assertLess((self.results / f"{part}.png").stat().st_size, 200_000)

    def test_one_part_again_leaves_the_others_alone(self):
        before = (self.results / "size.csv").read_bytes()
        status, stderr = call_main(PROGRAMS, self.results, "--profile", "tiny", "--no-plots", "--only",
                                   "ways")
        self.assertEqual(status, 0, stderr)
        self.assertEqual((self.results / "size.csv").read_bytes(), before)


class KeptPage(unittest.TestCase):
    KEPT = HERE.parent / "docs" / "results"

    def test_it_is_what_the_kept_csvs_make(self):
        self.assertEqual((self.KEPT / "README.md").read_text(encoding="utf-8"),
                         ablation_page.text(self.KEPT), "run bench/ablation.py PROGRAMS docs/results --plots")

    def changed(self, name, change):
        """The page of the kept CSVs, with other rows in one of them."""
        with tempfile.TemporaryDirectory(prefix="swale-test-") as out:
            results = pathlib.Path(out)
            for path in self.KEPT.glob("*.csv"):
                (results / path.name).write_bytes(path.read_bytes())
            rows = ablation.read_csv(results / name)
            change(rows)
            ablation.write_csv(results / name, rows)
            return ablation_page.text(results)

    def test_another_number_makes_another_page(self):
        page = self.changed("size.csv", lambda rows: rows[0].update(query_us="1"))
        self.assertNotEqual(page, self.changed("size.csv", lambda rows: None))

    def test_rows_of_older_definitions_are_told(self):
        def define(number):
            def change(rows):
                next(row for row in rows if row["part"] == "frame")["definitions"] = str(number)
            return self.changed("machine.csv", change)

        old, new = define(ablation_parts.DEFINITIONS - 1), define(ablation_parts.DEFINITIONS)
        self.assertIn(ablation_page.OLDER["frame"], old)
        self.assertNotIn(ablation_page.OLDER["frame"], new)


class ItCanFail(unittest.TestCase):
    def expect_wrong(self, done):
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("WRONG ANSWER", done.stderr)

    def test_a_wrong_value_of_the_pipeline_is_found(self):
        for options in (dict(), dict(turns=1), dict(delivery="wait", ranks=2)):
            with tempfile.TemporaryDirectory(prefix="swale-test-") as path, self.subTest(options):
                work = dict(path=path + "/d", keys=500, epochs=2)
                self.assertEqual(run("pipeline", canary=1, **options, **work).returncode, 0)
                self.expect_wrong(run("query", mode="verify", **work))

    def test_values_of_another_kind_or_one_that_is_wrong_are_found(self):
        with tempfile.TemporaryDirectory(prefix="swale-test-") as path:
            work = dict(path=path + "/d", keys=500, epochs=2)
            for kind in ablation_parts.VALUES:
                with self.subTest(kind):
                    self.assertEqual(run("ingest", store="swale", values=kind, **work).returncode, 0)
                    for mode in ("verify", "scan", "warm"):
                        done = run("query", mode=mode, samples=2, values=kind, **work)
                        self.assertEqual(done.returncode, 0, done.stderr)
                    other = "floats" if kind != "floats" else "words"
                    self.expect_wrong(run("query", mode="verify", values=other, **work))
                    self.expect_wrong(run("query", mode="warm", samples=2, values=other, **work))
                    self.assertEqual(run("ingest", store="swale", values=kind, canary=1, **work).returncode,
                                     0)
                    self.expect_wrong(run("query", mode="verify", values=kind, **work))
            self.assertIn("choose from words", run("ingest", store="swale", values="text", **work).stderr)

    @unittest.skipUnless(LEVELDB, "no LevelDB")
    def test_a_wrong_value_in_leveldb_is_found(self):
        for compaction in ("on", "off"):
            with tempfile.TemporaryDirectory(prefix="swale-test-") as path, self.subTest(compaction):
                work = dict(path=path + "/d", ranks=2, keys=20, epochs=2, samples=200, compaction=compaction)
                right = run("shuffled_leveldb", **work)
                self.assertEqual(right.returncode, 0, right.stderr)
                self.assertEqual([query["epochs"] for query in json.loads(right.stdout)["queries"]], [1, 2])
                self.expect_wrong(run("shuffled_leveldb", canary=1, **work))

    def test_a_failing_program_keeps_the_old_csv(self):
        with tempfile.TemporaryDirectory(prefix="swale-test-") as out:
            results, programs = pathlib.Path(out) / "results", pathlib.Path(out) / "programs"
            results.mkdir()
            programs.mkdir()
            (programs / "bench_pipeline").symlink_to("/bin/false")
            (results / "ways.csv").write_text("old", encoding="utf-8")
            status, stderr = call_main(programs, results, "--profile", "tiny", "--no-plots", "--only", "ways")
            self.assertEqual(status, 2)
            self.assertIn("bench_pipeline", stderr)
            self.assertEqual((results / "ways.csv").read_text(encoding="utf-8"), "old")

    def test_a_busy_neighbour_is_noticed(self):
        # A child that has not been waited for counts as somebody else's process.
        neighbours = ablation.Neighbours()
        with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
            try:
                for _ in range(1000):
                    time.sleep(0.1)
                    if neighbours.share() > 0.1:
                        return
            finally:
                busy.kill()
        self.fail(f"a busy loop for a minute was {neighbours.share()} of the machine")

    def test_a_csv_without_a_column_or_a_case_is_refused(self):
        rows = [dict(mb_s=100, ways=ways, round=0, written_mb_s=90, cpu_ns=30)
                for ways in ("turns", "1 way", "2 ways", "4 ways")]
        rows += [dict(row, mb_s=0) for row in rows]
        with tempfile.TemporaryDirectory(prefix="swale-test-") as out:
            path = pathlib.Path(out) / "ways.csv"
            for wrong in (rows[1:], [{k: v for k, v in row.items() if k != "written_mb_s"} for row in rows]):
                ablation.write_csv(path, wrong)
                with self.assertRaisesRegex(Refused, "ways.csv: no"):
                    list(ablation_claims.ways(Table(path)))
            ablation.write_csv(path, rows)
            self.assertEqual([claim.agrees for claim in ablation_claims.ways(Table(path))], [False] * 3)

    def test_claims_follow_the_numbers(self):
        def agrees(turns):
            rows = [dict(mb_s=mb_s, ways=ways, round=0,
                         written_mb_s=mb_s * (turns if ways == "turns" else 0.98) or 1500)
                    for mb_s in (100, 0) for ways in ("turns", "1 way", "2 ways", "4 ways")]
            with tempfile.TemporaryDirectory(prefix="swale-test-") as out:
                path = pathlib.Path(out) / "ways.csv"
                ablation.write_csv(path, rows)
                return next(ablation_claims.ways(Table(path))).agrees

        self.assertTrue(agrees(0.8))
        self.assertFalse(agrees(0.97))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
