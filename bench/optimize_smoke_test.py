"""optimize_smoke_test.py PROGRAMS SWALE: `make bench-optimize` on a few records: it runs, measures every key,
and a bound that is not met is told. Asserts no times.
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import judge  # noqa: E402
import optimize  # noqa: E402

PROGRAMS, SWALE = (pathlib.Path(word) for word in sys.argv[1:3])


class WholeBench(unittest.TestCase):
    def test_tiny_profile(self):
        with tempfile.TemporaryDirectory(prefix="swale-test-") as out:
            done = subprocess.run([sys.executable, str(HERE / "optimize.py"), str(PROGRAMS), out, "--swale",
                                   str(SWALE), "--profile", "tiny"],
                                  capture_output=True, text=True, timeout=280)
            self.assertIn(done.returncode, (0, 1), done.stderr)
            result = json.loads((pathlib.Path(out) / "optimize.json").read_text(encoding="utf-8"))
            page = (pathlib.Path(out) / "optimize.md").read_text(encoding="utf-8")
        self.assertEqual([name for name in result["results"] if f"`{name}`" not in page], [])
        for epochs in result["parameters"]["axis_epochs"]:
            self.assertIn(f"\n| {epochs} |", page)
        missing = {name for name, row in result["results"].items() if row["value"] is None}
        absent = {name for name in result["results"] for rival in ("rocksdb", "leveldb")
                  if rival in name and not (PROGRAMS / f"bench_{rival}").exists()}
        self.assertEqual(missing, absent)
        # Counts do not depend on the machine.
        for name in ("optimized_1000_reads", "optimized_1000_depth", "optimize_reads"):
            self.assertTrue(result["results"][name]["met"], result["results"][name])

    def test_every_bound_can_be_missed(self):
        for key in (key for key in optimize.KEYS if key.must is not None):
            worse = key.must * (10 if key.less_is_better else 0.1)
            factors = {"cpu": 1.0, "cold": 1.0, "wait": 1.0}
            self.assertFalse(judge.judged(key, [(0, worse)], lambda _, f=factors: f)["met"], key.name)


unittest.main(argv=sys.argv[:1])
