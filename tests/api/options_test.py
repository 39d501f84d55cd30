"""options_test.py PROGRAM LIBRARY SWALE: ranks that differ in a variable, through the C interface and
real processes.

Each option of writers that `swale config` has: all ranks are refused with one message that names option and
ranks, or what they wrote is read back. PROGRAM is fabric_test.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

PROGRAM, LIBRARY, SWALE = sys.argv[1:4]
TEXTS = {"imd.schema": "e:u1x5", "imd.extrema": None, "imd.partitioner": None, "imd.resume_after": "5"}


def write_rows():
    """Each option that writers have, as `swale config --json` tells it."""
    listed = subprocess.run([SWALE, "config", "--json"], check=True, capture_output=True, text=True,
                            timeout=60)
    rows = [json.loads(line) for line in listed.stdout.splitlines()]
    return [row for row in rows if "write" in row["calls"]]


def value_of(row):
    """Another value than the default; None: one alone is not legal."""
    if row["name"] in TEXTS:
        return TEXTS[row["name"]]
    if row["name"] == "imd.memory":
        return "16M"
    if "choices" in row:
        return row["choices"][-1]
    assert "min" in row, f"add a value for {row}"
    return str(int(row["min"]) if row["name"].endswith("bytes") else int(row["min"]) + 2)


class Options(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.mkdtemp(prefix="swale-test-")
        self.count = 0

    def tearDown(self):
        shutil.rmtree(self.scratch)

    def run_ranks(self, path, variables):
        """What the ranks, each with its variables, end with: (status, standard error)."""
        self.count += 1
        environment = {name: text for name, text in os.environ.items() if not name.startswith("SWALE_")}
        environment.update(SWALE_JOB_SIZE=str(len(variables)),
                           SWALE_JOB_ID=f"options-{os.getpid()}-{self.count}",
                           SWALE_JOB_RENDEZVOUS=os.path.join(self.scratch, "meet"),
                           SWALE_JOB_JOIN_DEADLINE_S="30", LD_LIBRARY_PATH=os.path.dirname(LIBRARY))
        ranks = [subprocess.Popen([PROGRAM, path], env=dict(environment, SWALE_JOB_RANK=str(rank), **own),
                                  stderr=subprocess.PIPE, text=True) for rank, own in enumerate(variables)]
        ends = [rank.communicate(timeout=100) for rank in ranks]
        return [(rank.returncode, end[1]) for rank, end in zip(ranks, ends)]

    def values_found(self, path):
        done = subprocess.run([SWALE, "get", path, "key"], capture_output=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.count(b"value")

    def test_each_variable_of_one_rank(self):
        rows = write_rows()
        self.assertGreater(len(rows), 12)
        refused = accepted = 0
        for row in rows:
            name, variable, value = row["name"], row["environment"], value_of(row)
            if value is None:
                continue
            path = os.path.join(self.scratch, name)
            ranks = [{}, {variable: value}] if refused % 2 else [{variable: value}, {}]
            ends = self.run_ranks(path, ranks)
            with self.subTest(option=name, value=value, ends=ends):
                self.assertEqual(len(set(ends)), 1, "all ranks are told the same")
                status, text = ends[0]
                if status == 0:
                    accepted += 1
                    self.assertEqual(self.values_found(path), 2)
                else:
                    refused += 1
                    for part in (name, "rank 0", "rank 1"):
                        self.assertIn(part, text)
                if name == "imd.ways":  # with defaults there is no such mistake
                    self.assertEqual(self.run_ranks(path, [{}, {}]), [(0, "")] * 2)
                    self.assertEqual(self.values_found(path), 2)
                    # The same step once more: every rank refuses it, unless all say that steps repeat.
                    for status, text in self.run_ranks(path, [{}, {}]):
                        self.assertEqual(status, 1)
                        self.assertIn("has step 0, and the last epoch has step 0", text)
                        self.assertIn("imd.resume_after", text)
                    ends = self.run_ranks(path, [{"SWALE_IMD_STEPS": "any"}] * 2)
                    self.assertEqual([status for status, _ in ends], [0, 0], ends)
                    self.assertEqual(self.values_found(path), 4)
        print(f"{len(rows)} rows: {refused} refused, {accepted} accepted and read back")
        self.assertGreater(refused, 4)
        self.assertGreater(accepted, 4)


unittest.main(argv=sys.argv[:1])
