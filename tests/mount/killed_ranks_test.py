#!/usr/bin/env python3
"""killed_ranks_test.py SWALE LIBSWALE [MPIRUN] [--long]: one rank of a job is killed, or the launcher alone,
at each step of the job's life: before, in and after each collective call of its ranks and of its servers.

Ranks that wait for the dead one end with an error that names it, within their deadline; those that do not
need it end well. What was written is on the backing, no process is left, and the next job runs.
(nodes_test.py says how the nodes are of one machine: here ranks 0 and 1 are on node 0, rank 2 is on node 1.)
"""
import concurrent.futures
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest

import rendezvous
from nodes_test import LIBRARIES, PATIENCE_S, PROGRAM, RECORD, NodesCase, wait_until
from mounted import SWALE

LONG = "--long" in sys.argv
MPIRUN = [word for word in sys.argv[3:4] if word != "--long"]
RANKS, NODES = 3, 2
FIRST_DEADLINE_S = 2  # of ranks that meet; a machine that is too slow for the step gets twice as much
TRIES = 6
AT_A_TIME = 7  # most of their time they wait
WAITED_FOR = re.compile(r"of 3 ranks to give to allgather \d: ([\d, ]+);|for rank (\d+) of 3 ")
OWN = PROGRAM + """
with open(f"{root}/own-{rank}", "wb") as own: own.write(record(0, rank))
open(f"{scratch}/written-{rank}", "w").close()
while not os.path.exists(f"{scratch}/end"): time.sleep(0.01)
"""
LAUNCHED = "import os, sys\nsys.argv[1:3] = [os.environ[f'OMPI_COMM_WORLD_{w}'] for w in ('RANK', 'SIZE')]"


def node_of(rank):
    return rank * NODES // RANKS


class Steps:
    """Whether a job has come so far, seen from outside. `rank`: the one that is to be killed."""

    def __init__(self, case, rank):
        self.case, self.rank, self.node = case, rank, node_of(rank)

    def names(self, *path):
        try:
            return os.listdir(os.path.join(self.case.scratch, *path))
        except OSError:
            return []

    def ranks(self, *record):
        return (record[0], self.rank, record[1]) in rendezvous.said(self.case.backing, "_run.")

    def servers(self, *record):
        return (record[0], self.node, record[1]) in rendezvous.said(self.case.backing, "_servers_")

    def written(self):
        return sum(name.startswith("written-") for name in self.names("steps")) == RANKS

    def ends(self):
        if self.written():
            self.case.let_end()
        return self.written() and not os.path.ismount(self.case.at(self.node))

    ALL = {"the rank has come": lambda steps: steps.ranks("hello", 0),
           "the ranks meet": lambda steps: steps.ranks("gather", 0),
           "the ranks find their nodes": lambda steps: steps.ranks("gather", 1),
           "the ranks agree on options": lambda steps: steps.ranks("gather", 2),
           "its server has come": lambda steps: steps.servers("hello", 0),
           "the servers meet": lambda steps: steps.servers("gather", 0),
           "the servers agree": lambda steps: steps.servers("gather", 1),
           "the servers open a job": lambda steps: steps.servers("gather", 2),
           "the job has the backing": lambda steps: any(name.startswith("job-") for name
                                                        in steps.names("backing", ".swale")),
           "its names are there": lambda steps: "tree.json" in steps.names(f"buffer-{steps.node}", "names"),
           "a mount is there": lambda steps: os.path.ismount(steps.case.at(steps.node)),
           "the ranks agree that all are": lambda steps: steps.ranks("gather", 3),
           "all have written": lambda steps: steps.written(),
           "it ends": lambda steps: steps.ends()}


class Job(NodesCase):
    """One job, in a folder of its own."""

    def let_end(self):
        with open(os.path.join(self.steps, "end"), "w", encoding="ascii"):
            pass

    def until(self, step, rank, processes):
        """False: the job has failed before. A moment that is over unseen is not waited for: ranks that have
        met remove what they have said.
        """
        steps, end = Steps(self, rank), time.monotonic() + PATIENCE_S
        while not Steps.ALL[step](steps) and not (step != "it ends" and steps.written()):
            if any(process.poll() is not None for process in processes):
                return False
            self.assertLess(time.monotonic(), end, f"it is never so that {step}")
        return True

    def anew(self):
        wait_until("the servers have ended", lambda: not self.servers())
        for folder in (self.steps, self.backing):
            shutil.rmtree(folder)
            os.mkdir(folder)

    def own_files(self):
        return sorted(name for name in os.listdir(self.backing) if name.startswith("own-"))

    def all_is_there(self):
        self.assertEqual(sorted(os.listdir(self.backing)), [f"own-{rank}" for rank in range(RANKS)])
        for rank in range(RANKS):
            with open(os.path.join(self.backing, f"own-{rank}"), "rb") as file:
                self.assertEqual(file.read(), bytes([13 * rank % 251 + 1]) * RECORD)
        self.nothing_is_left()

    def next_job_runs(self):
        self.let_end()
        for status, said in self.ends(self.launch(OWN, ranks=RANKS, nodes=NODES)):
            self.assertEqual(status, 0, said)
        self.all_is_there()

    def kill_rank(self, step, rank, kill=True):
        """Whether others have waited for it."""
        for tries in range(TRIES):
            started = self.launch(OWN, ranks=RANKS, nodes=NODES,
                                  SWALE_JOB_JOIN_DEADLINE_S=FIRST_DEADLINE_S << tries)
            if self.until(step, rank, started):
                break
            self.let_end()
            self.ends(started)
            self.anew()
        else:
            self.fail(f"it is never so that {step}, in {FIRST_DEADLINE_S << TRIES} s")
        if kill:
            started[rank].kill()
        self.let_end()
        ended = self.ends(started)
        self.assertEqual(ended[rank][0], -signal.SIGKILL, ended)
        others = [ended[other] for other in range(RANKS) if other != rank]
        waited = any(status != 0 for status, _ in others)
        named = set()
        for status, said in others:
            self.assertEqual(status != 0, waited, ended)
            if waited:
                missed = WAITED_FOR.search(said)
                self.assertTrue(missed, said)
                named.update(re.findall(r"\d+", missed[1] or missed[2]))
        # One that meets others in turn may be what a third one waits for.
        if waited:
            self.assertIn(str(rank), named, ended)
        wait_until("the servers have ended", lambda: not self.servers())
        if waited:
            self.assertEqual(self.own_files(), [], "programs have run without the dead rank")
        if step in ("all have written", "it ends"):
            self.assertFalse(waited)
            self.all_is_there()
        else:
            self.next_job_runs()
        return waited

    def kill_launcher(self, step, rank):
        """Nobody is left to hear of an error. Whether the programs have run to their end."""
        words = [*MPIRUN]
        for node in range(NODES):
            ranks = sum(node_of(each) == node for each in range(RANKS))
            words += [*([":"] if node else []), "-n", str(ranks), "env", f"SWALE_JOB_NODE=host-{node}", SWALE,
                      "run", "--backing", self.backing, "--at", self.make(f"at-{node}"), "--buffer",
                      os.path.join(self.scratch, f"buffer-{node}"), "--memory", "32M", "--", sys.executable,
                      "-c", LAUNCHED + OWN, "", "", self.at(node), self.backing, self.steps]
        environment = dict(os.environ, SWALE_JOB_TRANSPORT="tls", LD_LIBRARY_PATH=LIBRARIES,
                           OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                           OMPI_MCA_rmaps_base_oversubscribe="1",
                           PRTE_MCA_rmaps_default_mapping_policy=":oversubscribe")
        launcher = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL,
                                    stderr=subprocess.DEVNULL)
        try:
            self.assertTrue(self.until(step, rank, [launcher]), f"mpirun has ended before {step}")
        finally:
            launcher.kill()
            launcher.wait()
        self.let_end()
        wait_until("all have ended", lambda: not self.servers())
        ran = self.own_files() != []
        if step in ("all have written", "it ends"):
            self.all_is_there()
        else:
            self.next_job_runs()
        return ran


class KilledRanks(unittest.TestCase):
    def setUp(self):
        probe = Job()
        probe.setUp()  # or it skips
        probe.tearDown()

    def each(self, kills):
        """Results of jobs' calls, a few at a time; kills: {name: call of a Job}."""
        def one(name):
            job = Job()
            job.setUp()
            try:
                return kills[name](job)
            except Exception as failed:  # pylint: disable=broad-except
                return f"{type(failed).__name__}: {failed}"
            finally:
                job.tearDown()
        with concurrent.futures.ThreadPoolExecutor(AT_A_TIME) as pool:
            found = dict(zip(kills, pool.map(one, kills)))
        for name, said in found.items():
            print(f"{name}: {said}", flush=True)
        self.assertEqual({name: said for name, said in found.items() if isinstance(said, str)}, {})
        return found

    def test_a_rank_alone_at_each_step(self):
        kills = {}
        for i, step in enumerate(Steps.ALL):
            # Rank 1 has no mount to bring, and agrees long before the others.
            for rank in range(RANKS) if LONG else [1 if "agree that" in step else i % RANKS]:
                kills[f"rank {rank}, when {step}"] = lambda job, s=step, r=rank: job.kill_rank(s, r)
        waited = self.each(kills)
        self.assertGreaterEqual(sum(waited.values()), 4, "nobody has waited for the dead ones")
        self.assertIn(False, waited.values())

    if MPIRUN:
        def test_the_launcher_alone_at_each_step(self):
            steps = [step for i, step in enumerate(Steps.ALL) if LONG or i % 2 == 1]
            kills = {f"mpirun, when {step}": lambda job, s=step, r=i % RANKS: job.kill_launcher(s, r)
                     for i, step in enumerate(steps)}
            self.assertIn(True, self.each(kills).values())

    def test_canary_a_rank_that_lives_is_noticed(self):
        with self.assertRaises(AssertionError):
            self.each({"nobody": lambda job: job.kill_rank("the ranks meet", 1, kill=False)})


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
