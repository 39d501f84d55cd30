#!/usr/bin/env python3
"""slurm_test.py FAULT_WRITER SWALE [MPI_PROGRAM]: jobs that a real Slurm has started, on four nodes that are
one machine.

Slurm's environment alone tells the ranks who they are and which node they are on. MPI_PROGRAM was built with
MPICH, and asks Slurm by PMI-2.
"""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import unittest

import slurm

WRITER, SWALE = sys.argv[1:3]
MPI_PROGRAM = sys.argv[3] if len(sys.argv) > 3 else None
NODES, RANKS, EPOCHS, RECORDS = 4, 8, 2, 2_000
PATIENCE_S = 180
# A peer is given up early enough for a test.
QUICK = {"SWALE_NET_SILENCE_DEADLINE_S": "10", "SWALE_NET_HEARTBEAT_INTERVAL_S": "0.5",
         "SWALE_NET_CLOSE_DEADLINE_S": "10"}


def lines_by_rank(text):
    """srun --label: "3: open" -> {3: ["open"]}."""
    found = {}
    for rank, line in re.findall(r"^ *(\d+): (.*)$", text, re.MULTILINE):
        found.setdefault(int(rank), []).append(line)
    return found


def tasks(scratch):
    """{rank: pid} of the ranks that run now on this scratch folder."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and scratch in (entry / "cmdline").read_text() and os.path.basename(
                os.readlink(entry / "exe")) == \
                    os.path.basename(WRITER):
                rank = re.search(r"\0SLURM_PROCID=(\d+)\0", (entry / "environ").read_text())
                found[int(rank.group(1))] = int(entry.name)
        except (OSError, AttributeError):
            continue  # ended meanwhile
    return found


class Jobs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="swale-slurm-")
        cls.addClassCleanup(cls.folder.cleanup)
        cls.skip = None
        try:
            cls.slurm = slurm.Slurm(pathlib.Path(cls.folder.name) / "slurm", NODES)
            cls.slurm.__enter__()
            cls.addClassCleanup(cls.slurm.stop)
        except slurm.NotInstalled as program:
            cls.skip = f"Slurm is not installed: {program}"
        except slurm.CannotRun as why:
            cls.skip = f"one machine: no Slurm here: {why}"

    def setUp(self):
        if self.skip is not None:
            self.skipTest(self.skip)
        self.scratch = tempfile.mkdtemp(dir=self.folder.name)
        self.directory = self.scratch + "/dir"

    def step(self, directory, hold="none", records=RECORDS, ranks=RANKS, **environment):
        environment.setdefault("SWALE_JOB_RENDEZVOUS", self.scratch)
        return self.slurm.start_step(ranks, [WRITER, directory, EPOCHS, records, hold], **QUICK,
                                     **environment)

    def end_of(self, step):
        try:
            return step.communicate(timeout=PATIENCE_S)[0]
        except subprocess.TimeoutExpired:
            step.kill()
            self.fail(f"a rank waits for ever\n{step.communicate()[0]}")

    def check(self, directory, ranks, records=RECORDS, epochs=EPOCHS):
        verified = subprocess.run([SWALE, "verify", directory], capture_output=True, text=True,
                                  timeout=PATIENCE_S, check=False)
        self.assertEqual(verified.returncode, 0, verified.stdout + verified.stderr)
        info = json.loads(subprocess.run([SWALE, "info", directory, "--json"], capture_output=True,
                                         text=True, timeout=PATIENCE_S, check=True).stdout)
        self.assertEqual([(epoch["step"], epoch["records"]) for epoch in info["epochs"]],
                         [(ranks, ranks * records)] * epochs)
        return info

    def test_ranks_on_four_nodes_write_by_both_routes(self):
        for route in ("direct", "three-hop"):
            for form in ("base", "lossy"):
                with self.subTest(route=route, format=form):
                    directory = f"{self.scratch}/{route}-{form}"
                    step = self.step(directory, SWALE_NET_ROUTE=route, SWALE_IMD_FORMAT=form)
                    out = self.end_of(step)
                    self.assertEqual(step.returncode, 0, out)
                    self.assertEqual({rank: lines[-1] for rank, lines in lines_by_rank(out).items()},
                                     dict.fromkeys(range(RANKS), "closed"), out)
                    self.assertEqual(self.check(directory, RANKS)["layout"]["format"], form)

    def test_two_steps_with_one_rendezvous_do_not_meet(self):
        steps = {name: self.step(f"{self.scratch}/{name}", ranks=4) for name in ("one", "two")}
        for name, step in steps.items():
            out = self.end_of(step)
            self.assertEqual(step.returncode, 0, out)
            self.check(f"{self.scratch}/{name}", 4)

    def test_a_job_without_a_rendezvous_is_told_what_it_needs(self):
        step = self.step(self.directory, SWALE_JOB_RENDEZVOUS="")
        out = self.end_of(step)
        self.assertNotEqual(step.returncode, 0, out)
        for rank in range(RANKS):
            self.assertTrue(any("slurm" in line and "job.rendezvous" in line
                                for line in lines_by_rank(out).get(rank, [])), out)

    def test_a_killed_rank_is_named_by_all_others(self):
        step = self.step(self.directory, hold="ended 0")
        seen = ""
        while seen.count("ended 0") < RANKS:
            line = step.stdout.readline()
            self.assertTrue(line, f"the ranks ended too early\n{seen}")
            seen += line
        os.kill(tasks(self.scratch)[3], signal.SIGKILL)
        out = seen + step.communicate("x" * RANKS, timeout=PATIENCE_S)[0]
        self.assertNotEqual(step.returncode, 0, out)
        failures = {rank: " ".join(line for line in lines if line.startswith("failed")) for rank,
                    lines in lines_by_rank(out).items()}
        for rank in set(range(RANKS)) - {3}:
            self.assertIn("rank 3", failures[rank], out)
        self.check(self.directory, RANKS, epochs=1)

    def test_the_ranks_of_an_mpi_program_know_of_each_other(self):
        if MPI_PROGRAM is None:
            self.skipTest("no MPICH when this was built")
        step = self.slurm.start_step(4, ["--mpi=pmi2", MPI_PROGRAM, self.directory])
        out = self.end_of(step)
        self.assertEqual(step.returncode, 0, out)
        self.assertIn("4 ranks: 10000 of 10000 trajectories are right", out)

    def test_canary_ranks_that_do_not_meet_are_noticed(self):
        # The same check of a directory that another number of ranks has written fails.
        step = self.step(self.directory, ranks=4)
        self.end_of(step)
        with self.assertRaises(AssertionError):
            self.check(self.directory, RANKS)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
