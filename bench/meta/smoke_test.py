"""smoke_test.py PROGRAMS: bench-meta on a few entries: it runs, its answers are checked, and its verdicts can
be "no".

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
import meta  # noqa: E402
from meta import judge  # noqa: E402

PROGRAM = pathlib.Path(sys.argv[1]) / "meta" / "bench_meta_index"
CLIENT = pathlib.Path(sys.argv[1]) / "meta" / "bench_meta_client"
STORES = ("swale", "swale-no-runs", "swale-zstd", "leveldb-4m")


def run(program=PROGRAM, **options):
    words = [word for key, value in options.items() for word in (f"--{key}", str(value))]
    return subprocess.run([program, *words], capture_output=True, text=True, timeout=100)


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

    def test_a_whole_buffer_answers_and_a_wrong_answer_is_seen(self):
        for pattern in ("strided", "random"):
            work = dict(mode="buffer", store="-", path="-", pattern=pattern, entries=1 << 16)
            done = run(**work)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(run(canary=1, **work).returncode, 1)

    def test_each_store_behind_requests_answers_and_a_wrong_answer_is_seen(self):
        for store in ("swale", "leveldb-4m", "leveldb-iterator"):
            for pattern in ("strided", "tile", "btio", "random"):
                with self.subTest(store=store,
                                  pattern=pattern), tempfile.TemporaryDirectory(
                                      prefix="swale-test-") as scratch:
                    work = dict(program=CLIENT, store=store, pattern=pattern, clients=16, entries=20_000,
                                gets=20_000, ranks=2, dir=scratch + "/store", rest=0)
                    done = run(**work)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    line = json.loads(done.stdout)
                    self.assertGreater(line["gets"], 0)
                    if store == "swale":
                        self.assertGreater(meta.memory_bytes_per_entry(line), 0)
                    wrong = run(canary=1, **work)
                    self.assertNotEqual(wrong.returncode, 0)
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
                              "line": {"cpu_ns": cpu, "wall_ns": cpu, "bytes_per_entry": cpu / 1000}})
        for store in meta.CLIENTS:
            lines.append({"round": 0, "name": f"client.{store}.{key}",
                          "line": {f"{what}{of}_cpu_ns": ours if store == "swale" else rival
                                   for what in ("put", "get") for of in ("", "_server")}})
    lines.append({"round": 0, "name": "memory.swale.random",
                  "line": {"entries": 1000, "about": {"memory.index": ours, "memory.buffers": 0,
                                                      "memory.cache": 0}}})
    lines.append({"round": 0, "name": "recover.swale.random",
                  "line": {"entries_per_second": 1e9 / ours, "cpu_ns": ours, "wall_ns": ours}})
    for part, names in meta.SERVICE.items():
        lines.append({"round": 0, "name": part, "line": {name: 1e4 / ours if "speedup" in name else ours
                                                         for name in names}})
    return lines


class Figures(unittest.TestCase):
    """The page and the plot's rows from lines that were made up."""

    P = dict(curve=[1 << 14, 1 << 15], fig8=1 << 14, streams=1 << 14, largest=1 << 15, storm_ranks=(32,))

    def lines(self, ours):
        lines = [{"name": "data", "line": {"bytes": 1 << 20, "write_s": 0.001, "read_s": 0.001}}]

        def add(name, cost):
            lines.append({"name": name, "line": {"wall_ns": cost, "before_drain": {"wall_ns": cost},
                                                 "overlap": 3,
                                                 "written_bytes_per_entry": cost}})

        for what in ("load", "warm"):
            for store in ("swale", *meta.paper.RIVALS, *meta.paper.FIG8, *meta.paper.SHAPE_STORES):
                cost = ours if store.startswith("swale") else 1000
                for name in (*(f"{p}.{n}" for p in ("strided", "tile") for n in self.P["curve"]),
                             "fig8.strided", "fig8.random", "btio.C", "btio.D",
                             *(meta.paper.shape_name(*shape) for shape in meta.paper.shapes(self.P))):
                    add(f"{what}.{store}.{name}", cost)
                add(f"{what}.{store}.btio_e", cost)
        model = {"fig12_us": [{"servers_per_node": 1, "servers": 64, "paper_plain": 570, "paper_direct": 1,
                               "paper_ring": 100,
                               "direct": 1, "ring": ours}],
                 "storm_scaling_us": [dict.fromkeys(("servers", "clients", "paper_plain", "paper_ring",
                                                     "ring"), 1)]}
        lines.append({"name": "model", "line": model})
        lines.append({"name": "scaling", "line": {
            "fig9_strong": [dict.fromkeys(meta.paper.SCALING, 1)],
            "fig10_weak": [dict.fromkeys(meta.paper.SCALING, 1)],
            "costs": [{"store": "mdhim", "put_client_ns": 1}]}})
        for ring in ("plain", "direct", "ring"):
            lines.append({"name": f"storm.{ring}.32",
                          "line": {"slowest_us": {"p50": ours if ring == "ring" else 1000, "p99": 2}}})
        for pattern in ("strided", "random"):
            lines.append({"name": f"buffer.{pattern}", "line": dict.fromkeys(
                ("entries", "block_bytes_per_entry", "whole_bytes_per_entry", "block_put_ns", "whole_put_ns",
                 "block_get_ns", "whole_get_ns", "whole_merge_bytes",
                 *(f"{codec}_{column}" for codec in meta.paper.CODECS
   for column in ("bytes_per_entry", "put_ns", "get_ns"))), 1)})
        for store, reads in (("swale", 3), ("swale-no-clusters", 77)):
            lines.append({"name": f"cold.{store}.random", "line": {"operations": 1, "wall_ns": 1,
                                                                   "about": dict.fromkeys(
                ("reads", "read_bytes", "blocks_wanted", "blocks_read"), reads)}})
        lines.append({"name": "clusters",
                      "line": {"rows": [{**dict.fromkeys(("cases", "cases_with_the_fewest", "blocks_wanted",
                                                        "blocks_read", "us_per_case"), 1),
                                       "method": "k_means", "regions": 12345}]}})
        return lines

    def test_the_page_has_each_figure_and_says_who_wins(self):
        for ours, ratio in ((100, "| 9 | IOR, strided, put, average | 1.83 | 10 | 10 |"),
                            (10_000, "| 9 | IOR, strided, put, average | 1.83 | 0.1 | 0.1 |")):
            rows = meta.paper.figures(self.lines(ours), self.P)
            with tempfile.TemporaryDirectory(prefix="swale-test-") as out:
                meta.paper.write_csv(rows, pathlib.Path(out) / "x.csv")
                again = meta.paper.read_csv(pathlib.Path(out) / "x.csv")
            self.assertEqual({name: len(all_rows) for name, all_rows in again.items()},
                             {name: len(all_rows) for name, all_rows in rows.items()})
            page = meta.paper.page({"figures": rows, "profile": "test", "load_average": [0], "results": {},
                                    "lines": lines_of(ours, 1000)})
            self.assertIn(f"| strided | swale | {ours:.1f} / {ours:.1f} |", page)
            self.assertIn(f"| strided | leveldb-iterator | {1000:.1f} |", page)
            self.assertIn(ratio, page)
            self.assertIn("the ring was faster than plain with 32" if ours < 1000 else "With 32 of them "
                          "plain was faster", page)
            self.assertIn(f"| strided | {(1 << 14) * 16:,} | Swale | {meta.paper.show(ours)} | "
                          f"{meta.paper.show(ours / 44)} | 3 |", page)
            self.assertIn("| Swale, clusters off | 1 | 77 |", page)
            self.assertIn("| k_means | 1 | 12,345 |", page)
            for figure in ("Fig. 3", "Fig. 8", "Fig. 9", "Fig. 11", "Fig. 12"):
                self.assertIn(figure, page)


class Verdicts(unittest.TestCase):
    def test_every_verdict_can_be_yes_and_no(self):
        good, bad = meta.judge_all(lines_of(1, 1000), 1), meta.judge_all(lines_of(10_000, 1000), 1)
        for key in meta.KEYS:
            if key.must is not None:
                self.assertIs(good[key.name]["met"], True, key.name)
                self.assertIs(bad[key.name]["met"], False, key.name)

    def test_a_missed_bound_is_reported_as_missed(self):
        for ours, status, said in ((1, 0, "0 of"), (10_000, 1, "MISSED")):
            lines = lines_of(ours, 1000)
            result = {"results": meta.judge_all(lines, 1), "lines": lines}
            printed = io.StringIO()
            with tempfile.TemporaryDirectory(prefix="swale-test-") as out, contextlib.redirect_stdout(
                printed):
                self.assertEqual(judge.finish(result, pathlib.Path(out) / "meta.json", meta.text(result)),
                                 status)
            self.assertIn(said, printed.getvalue())
            self.assertEqual("put_speedup_vs_leveldb_random" in printed.getvalue().splitlines()[-1],
                             status == 1)

    def test_a_missing_measurement_is_no_verdict(self):
        lines = [entry for entry in lines_of(1, 1000) if entry["name"] != "client.swale.tile"]
        with self.assertRaises(KeyError):
            meta.judge_all(lines, 1)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
