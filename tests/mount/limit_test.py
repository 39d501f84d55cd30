#!/usr/bin/env python3
"""limit_test.py SWALE LIBSWALE: a batch job with a tree that ends at Slurm's time limit, of a minute."""
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

from mounted import SWALE
from started import LAUNCHED, PATIENCE_S, Started, wait_until

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../launchers"))
import slurm  # noqa: E402

# Writes to the file's end until it is killed, and says beside the tree how many records have returned.
WRITER = """
import os, sys, time
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT, 0o644)
said = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT, 0o644)
for i in range(100_000_000):
    os.pwrite(file, b"%011d\\n" % i, i * 12)
    os.pwrite(said, b"%011d\\n" % (i + 1), 0)
    time.sleep(0.05)
"""


class Limit(Started):
    def setUp(self):
        super().setUp()
        self.folder = tempfile.mkdtemp(prefix="swale-slurm-")
        self.addCleanup(shutil.rmtree, self.folder)

    def tearDown(self):
        self.kill_all()
        super().tearDown()

    def job(self, cluster, name, *words):
        """A batch job that the limit ends; its tree is over NAME, and mounted at NAME-at."""
        self.make(name)
        self.make(f"{name}-at")
        script = f"""#!/bin/sh
{SWALE} start {self.scratch}/{name} --at {self.scratch}/{name}-at --buffer {self.scratch}/{name}-buffer \\
  {" ".join(words)} || exit 9
srun -n 1 {sys.executable} -c '{WRITER}' {self.scratch}/{name}-at/first {self.scratch}/{name}-count
"""
        job = subprocess.Popen(
            [slurm.program("sbatch"), "--wait", "--nodes=1", "--ntasks=1", "--time=1",
             f"--output={self.scratch}/{name}-said"],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=cluster.environment(**LAUNCHED))
        job.stdin.write(script)
        job.stdin.close()
        return job

    def written(self, name):
        """How many records have returned."""
        try:
            return int(self.read(self.scratch, f"{name}-count") or 0)
        except FileNotFoundError:
            return 0

    def records(self, name):
        """On the backing, whole ones."""
        if not os.path.exists(f"{self.scratch}/{name}/first"):
            return 0
        content = self.read(f"{self.scratch}/{name}", "first")
        expected = "".join(f"{i:011d}\n" for i in range(len(content) // 12))
        self.assertEqual(content, expected)
        return len(content) // 12

    def test_what_the_time_limit_leaves(self):
        try:
            with slurm.Slurm(f"{self.folder}/slurm", 1) as cluster:
                jobs = {"drained": self.job(cluster, "drained", "--drain-at", "-30s"),
                        "canary": self.job(cluster, "canary")}
                open_files = []  # what nobody has open is brought when nobody writes
                for name in jobs:
                    wait_until("records are written", lambda each=name: self.written(each) > 20)
                    open_files.append(open(f"{self.scratch}/{name}-at/first", "rb"))
                before = self.written("drained")
                wait_until("they are brought", lambda: self.records("drained") >= before)
                keeper = self.status(f"{self.scratch}/drained-at")[0]["keeper"]
                os.kill(keeper, signal.SIGSTOP)  # what comes now comes after the last drain
                for name, job in jobs.items():
                    code = job.wait(timeout=PATIENCE_S)
                    said = self.read(self.scratch, f"{name}-said")
                    self.assertNotEqual(code, 0, said)
                    self.assertIn("TIME LIMIT", said)
                self.kill_all()
                for each in open_files:
                    each.close()
        except (slurm.NotInstalled, slurm.CannotRun) as why:
            self.skipTest(f"one machine: no Slurm here: {why}")
        counts = {name: self.written(name) for name in jobs}
        on_backing = self.records("drained")
        print(f"records: {before} before the drain, {on_backing} on the backing at the limit, "
              f"{counts['drained']} written")
        self.assertGreaterEqual(on_backing, before)
        self.assertLess(on_backing, counts["drained"])
        self.assertEqual(self.records("canary"), 0)
        for name in jobs:
            done = self.swale("fs", "recover", f"{self.scratch}/{name}", "--buffer",
                              f"{self.scratch}/{name}-buffer")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertGreaterEqual(self.records(name), counts[name])
            self.swale("stop", f"{self.scratch}/{name}-at")
            subprocess.run(["fusermount3", "-u", "-z", f"{self.scratch}/{name}-at"], check=False,
                           capture_output=True)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
