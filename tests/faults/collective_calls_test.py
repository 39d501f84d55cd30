"""collective_calls_test.py PROGRAM: ranks that make different collective calls, through the C interface and
in real processes. Each rank is told which ranks make which calls, and none waits for a deadline of a
minute."""
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest

PROGRAM = sys.argv[1]
DEADLINE_S = 40  # of the harness; the job's own deadlines are longer

# What rank 0 does, what rank 1 does, and what both must be told.
PAIRS = [
    ("open append end", "open leave", ("rank 1 closes the job", "still open")),
    ("open close", "open leave", ("rank 1 closes the job", "still open")),
    ("open append end", "open close", ("rank 0", "rank 1", "end", "close")),
    ("open close make", "open close leave", ("rank 0", "rank 1")),
    ("open close open", "open close leave", ("rank 0", "rank 1")),
    ("open", "make", ("rank 0", "rank 1")),
    ("open make", "open close", ("rank 0", "rank 1")),
    ("open make", "open append end", ("rank 0", "rank 1")),
]


class CollectiveCalls(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.mkdtemp(prefix="swale-test-")

    def tearDown(self):
        shutil.rmtree(self.scratch)

    def run_ranks(self, scripts, number):
        environment = dict(os.environ, SWALE_JOB_SIZE=str(len(scripts)),
                           SWALE_JOB_ID=f"calls-{os.getpid()}-{number}",
                           SWALE_JOB_RENDEZVOUS=os.path.join(self.scratch, "meet"),
                           SWALE_JOB_JOIN_DEADLINE_S="50")
        path = os.path.join(self.scratch, f"run{number}")
        began = time.monotonic()
        # Each rank lives until both have said how their calls ended: a process that exits is another test's
        # matter.
        ranks = [subprocess.Popen([PROGRAM, path, *script.split(), "wait"],
                                  env=dict(environment, SWALE_JOB_RANK=str(rank)),
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                  text=True)
                 for rank, script in enumerate(scripts)]
        alarm = threading.Timer(DEADLINE_S, lambda: [rank.kill() for rank in ranks])
        alarm.start()
        try:
            said = ["".join(rank.stdout.readline() for _ in script.split()) for rank,
                    script in zip(ranks, scripts)]
            took = time.monotonic() - began
            for rank in ranks:
                rank.communicate("x")
        finally:
            alarm.cancel()
            for rank in ranks:
                rank.kill()
                rank.wait()
        self.assertLess(took, DEADLINE_S, f"{scripts}: a rank waited: {said}")
        return [rank.returncode for rank in ranks], said

    def test_each_pair_is_told_to_both(self):
        points = 0
        for first, second, words in PAIRS:
            for swapped in (False, True):
                scripts = [second, first] if swapped else [first, second]
                codes, said = self.run_ranks(scripts, points)
                points += 1
                if swapped:
                    words = [word.translate(str.maketrans("01", "10")) if word.startswith("rank") else word
                             for word in words]
                for code, text in zip(codes, said):
                    self.assertNotEqual(code, 0, (scripts, said))
                told = "".join(said)
                for word in words:
                    self.assertIn(word, told, scripts)
                for rank, text in enumerate(said):
                    self.assertRegex(text, r"rank \d|still open", (scripts, rank))
        print(f"{points} pairs of calls")

    def test_canary_the_same_calls_are_fine(self):
        codes, said = self.run_ranks(["open append end close leave"] * 2, "same")
        self.assertEqual(codes, [0, 0], said)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
