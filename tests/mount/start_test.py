#!/usr/bin/env python3
"""start_test.py SWALE LIBSWALE [MPIRUN]: `swale start`, `swale stop` and `swale status`: a tree that outlives
the command which starts it.
"""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

from mounted import SWALE
from started import LAUNCHED, MPIRUN, NODE_WORDS, PATIENCE_S, Started, wait_until

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../launchers"))
import slurm  # noqa: E402


# Writes more than a meeting with the server costs, to files of its own in the folder; and says whether it
# has a log of that server's.
WRITER = """
import os, sys
folder, rank = sys.argv[1], os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("SLURM_PROCID", "0"))
for name in ("one", "two"):
    file = os.open(f"{folder}/{name}-{rank}", os.O_WRONLY | os.O_CREAT, 0o644)
    for i in range(500):
        os.pwrite(file, b"%07d\\n" % i * 64, i * 512)
with open("/proc/self/maps") as maps:
    print("by log" if "/swale-fs-" in maps.read() else "by the mount")
"""
WRITTEN = "".join(f"{i:07d}\n" * 64 for i in range(500))


class Start(Started):
    def test_programs_come_and_go_and_the_end_brings_all(self):
        self.start()
        self.assertTrue(os.path.ismount(self.backing))
        for step in range(3):
            subprocess.run(["/bin/sh", "-c", f"echo {step} >> {self.backing}/steps"], check=True)
        found = self.status(self.backing)
        self.assertEqual([tree["state"] for tree in found], ["mounted"])
        self.assertEqual(found[0]["nodes"], 1)
        self.assertIn(self.backing, self.swale("status").stdout)
        self.stop()
        self.assertFalse(os.path.ismount(self.backing))
        self.assertEqual(self.read(self.backing, "steps"), "0\n1\n2\n")
        self.assertEqual(self.status(self.backing, exit_code=1), [])
        self.assertEqual(self.swale("stop", self.backing).returncode, 3)

    def test_a_tree_is_found_by_each_path_that_leads_to_it(self):
        link = f"{self.scratch}/link"
        os.symlink("backing", link)
        ways_of = {f"{self.backing}/": (self.backing, link), link: (f"{self.backing}/", f"{link}/")}
        for at, ways in ways_of.items():
            self.start(at=at)
            for way in ways:
                self.assertEqual([tree["state"] for tree in self.status(way)], ["mounted"], way)
            inside = subprocess.run([SWALE, "status", "."], cwd=self.backing, capture_output=True, text=True,
                                    env={**os.environ, **LAUNCHED}, timeout=PATIENCE_S, check=False)
            self.assertEqual((inside.returncode, inside.stderr), (0, ""))
            self.started[-1] = ways[0]
            self.stop()

    def test_programs_of_a_started_tree_write_past_the_kernel(self):
        self.start()
        writer = [sys.executable, "-c", WRITER, self.backing]
        plain = subprocess.run(writer, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
        self.assertEqual(plain.stdout, "by the mount\n")  # canary
        self.assertEqual(self.stat(self.backing)["program_writes"], 0)
        done = self.swale("run", "--preload", "--", *writer)
        self.assertEqual((done.returncode, done.stderr, done.stdout), (0, "", "by log\n"))
        found = self.stat(self.backing)
        self.assertGreater(found["program_writes"], 0)
        self.assertEqual(found["light_creates"], 0)
        os.remove(f"{self.backing}/two-0")
        light = self.swale("run", "--preload", "--", *writer, SWALE_FS_DESCRIPTORS="light")
        self.assertEqual((light.returncode, light.stderr, light.stdout), (0, "", "by log\n"))
        self.assertGreater(self.stat(self.backing)["light_creates"], 0)
        self.assertTrue(os.path.ismount(self.backing), "it outlives the program")
        self.stop()
        for name in ("one-0", "two-0"):
            self.assertEqual(self.read(self.backing, name), WRITTEN)

    def test_ranks_in_a_started_tree_write_past_the_kernel(self):
        if not MPIRUN:
            self.skipTest("no Open MPI when this was built")
        self.start()
        done = subprocess.run([*MPIRUN, "-n", "3", SWALE, "run", "--preload", "--", sys.executable, "-c",
                               WRITER, self.backing], capture_output=True, text=True, timeout=PATIENCE_S,
                              env={**os.environ, **LAUNCHED}, check=False)
        self.assertEqual((done.returncode, done.stdout), (0, "by log\n" * 3), done.stderr)
        self.assertGreater(self.stat(self.backing)["program_writes"], 0)
        self.stop()
        for rank in range(3):
            for name in ("one", "two"):
                self.assertEqual(self.read(self.backing, f"{name}-{rank}"), WRITTEN)

    def test_run_says_how_programs_of_a_started_tree_are_preloaded(self):
        self.start()
        own = self.swale("run", "--preload", "--backing", self.backing, "--", "true")
        self.assertEqual(own.returncode, 3, own.stderr)
        self.assertIn("without --backing", own.stderr)
        for words in (("run", "--", "true"), ("run", "--preload", "--at", self.scratch, "--", "true")):
            self.assertEqual(self.swale(*words).returncode, 2, words)
        self.stop()

    def test_without_a_tree_run_preload_says_so(self):
        hide = 'umount --lazy --all --types fuse.swale && exec "$@"'  # those of others, too
        alone = ["unshare", "--mount", "sh", "-c", hide, "sh"]
        if subprocess.run([*alone, "true"], capture_output=True, check=False).returncode != 0:
            self.skipTest("no namespace of mounts here")
        for more, code, says in (((), 3, "swale start"), (("--fallback",), 7, "NO BUFFER")):
            done = subprocess.run([*alone, SWALE, "run", "--preload", *more, "--", "sh", "-c", "exit 7"],
                                  capture_output=True, text=True, timeout=PATIENCE_S, check=False)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertIn(says, done.stderr)

    def test_a_second_start_is_refused_with_a_remedy(self):
        self.start()
        again = self.swale("start", self.backing, "--buffer", self.buffer)
        self.assertNotEqual(again.returncode, 0)
        self.assertIn(f"swale stop {self.backing}", again.stderr)
        self.write(self.backing, "now", "there")  # the first one goes on
        self.stop()
        self.assertEqual(self.read(self.backing, "now"), "there")

    def test_a_tree_that_cannot_start_says_why_and_leaves_nothing(self):
        missing = f"{self.scratch}/missing"
        done = self.swale("start", missing)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("missing", done.stderr)
        self.assertIn("No such file", done.stderr)
        self.assertNotIn("swale: swale:", done.stderr)
        self.assertEqual(self.status(missing, exit_code=1), [])

    def test_a_backing_that_refuses_the_job_leaves_nothing(self):
        self.write(self.backing, ".swale", "not a directory")
        found, temporary = os.stat(self.backing), self.make("temporary")
        memory = f"swale-fs-{os.geteuid()}-{found.st_dev:x}-{found.st_ino:x}"

        def left():
            return [name for name in os.listdir("/dev/shm") if name.startswith(memory)]
        before = left()  # of a directory of another test that had this inode
        refused = self.swale("run", "--backing", self.backing, "--", "true", TMPDIR=temporary)
        self.assertEqual(refused.returncode, 3, refused.stderr)
        self.assertIn(".swale", refused.stderr)
        self.assertEqual(os.listdir(temporary), [])
        self.assertEqual(left(), before)

    def test_without_dev_fuse_run_says_so_or_falls_back(self):
        own = [] if os.geteuid() == 0 else ["--map-root-user"]
        hide = 'mount --bind /dev/null /dev/fuse && exec "$@"'
        without = ["unshare", "--mount", *own, "sh", "-c", hide, "sh"]
        tried = subprocess.run([*without, "true"], capture_output=True, text=True, check=False)
        if tried.returncode != 0:
            self.skipTest(f"no namespaces of hosts here: {tried.stderr.strip()}")

        def run_without(*words):
            program = ["/bin/sh", "-c", f"echo there > {self.backing}/now; exit 7"]
            return subprocess.run([*without, SWALE, "run", "--backing", self.backing, *words, "--", *program],
                                  capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        refused = run_without()
        self.assertNotIn(refused.returncode, (0, 7), refused.stderr)
        self.assertIn("/dev/fuse", refused.stderr)
        self.assertEqual(os.listdir(self.backing), [], "the program has run, or something is left")
        fallen = run_without("--fallback")
        self.assertEqual(fallen.returncode, 7, fallen.stderr)
        self.assertIn("NO BUFFER", fallen.stderr)
        self.assertEqual(os.listdir(self.backing), ["now"])
        self.assertEqual(self.read(self.backing, "now"), "there\n")

    def test_a_killed_server_is_started_again(self):
        self.start()
        self.write(self.backing, "before", "kept")
        os.kill(self.server(), signal.SIGKILL)

        def answers():
            try:
                return self.read(self.backing, "before") == "kept" and os.path.ismount(self.backing)
            except OSError:
                return False
        wait_until("it is mounted again", answers)
        self.write(self.backing, "after", "new")
        self.stop()
        self.assertEqual([self.read(self.backing, name) for name in ("before", "after")], ["kept", "new"])

    # Slurm sends them to all processes of a step.
    def test_signals_for_programs_do_not_end_the_server(self):
        self.start()
        server = self.server()
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
            os.kill(server, number)
            self.write(self.backing, "now", str(number))
        self.assertEqual(self.server(), server)
        self.stop()
        self.assertEqual(self.read(self.backing, "now"), str(int(signal.SIGUSR2)))

    def test_without_its_keeper_the_tree_ends_and_is_brought(self):
        self.start()
        self.write(self.backing, "now", "there")
        os.kill(self.status(self.backing)[0]["keeper"], signal.SIGKILL)
        wait_until("the servers have ended", lambda: not self.processes())
        self.assertEqual(self.read(self.backing, "now"), "there")
        self.assertEqual([tree["state"] for tree in self.status(self.backing, exit_code=1)], ["killed"])
        self.assertIn("swale fs recover", self.stop(exit_code=3).stderr)
        self.assertEqual(self.status(self.backing, exit_code=1), [])

    def test_sigterm_to_the_keeper_ends_all(self):
        self.start()
        self.write(self.backing, "now", "there")
        os.kill(self.status(self.backing)[0]["keeper"], signal.SIGTERM)
        wait_until("it has ended", lambda: not self.folders())
        self.started.pop()
        self.assertEqual(self.read(self.backing, "now"), "there")

    def test_an_end_that_fails_is_told(self):
        at = self.make("at")
        self.write(self.backing, "now", "old")

        def change():
            self.start(at=at)
            self.write(at, "now", "ours")
            self.write(self.backing, "now", "theirs, longer than ours")
        change()
        failed = self.swale("stop", at)
        self.assertNotEqual(failed.returncode, 0, failed.stderr)
        self.assertIn("others have changed it", failed.stderr)
        self.assertEqual(self.read(self.backing, "now"), "theirs, longer than ours")
        self.started.pop()
        self.write(self.backing, "now", "old")
        change()
        os.kill(self.status(at)[0]["keeper"], signal.SIGTERM)
        wait_until("it has ended", lambda: not self.processes())
        self.assertEqual([tree["state"] for tree in self.status(at, exit_code=1)], ["failed"])
        self.assertIn("swale fs recover", self.stop(exit_code=3).stderr)

    def test_from_drain_at_on_all_is_brought_while_programs_write(self):
        at = self.make("at")
        self.start("--drain-at", "+0s", at=at)
        with open(f"{at}/log", "w", encoding="utf-8", buffering=1) as log:
            log.write("one\n")
            brought = f"{self.backing}/log"
            wait_until("it is on the backing",
                       lambda: os.path.exists(brought) and self.read(self.backing, "log") == "one\n")
            log.write("two\n")
            wait_until("that, too", lambda: self.read(self.backing, "log") == "one\ntwo\n")
        self.stop()

    # What a keeper holds says that it lives.
    def test_a_drain_in_time_holds_nothing_of_the_keeper(self):
        self.start("--drain-at", "+3s")
        self.write(self.backing, "now", "there")
        keeper = self.status(self.backing)[0]["keeper"]
        server = self.server()
        os.kill(server, signal.SIGSTOP)  # so that the drain does not end

        def held(process):
            folder = f"/proc/{process}/fd"
            return {number: os.readlink(f"{folder}/{number}") for number in os.listdir(folder)}

        def drains():
            return [each for each, line in self.processes().items()
                    if "\0start\0" in line and each != keeper]
        try:
            wait_until("a drain is under way", drains)
            self.assertTrue(any(path.endswith("/lock") for path in held(keeper).values()), held(keeper))
            wait_until("it has closed all but the log", lambda: set(held(drains()[0])) == {"0", "1", "2"})
            self.assertEqual(len(drains()), 1)
        finally:
            os.kill(server, signal.SIGCONT)
        self.stop()
        self.assertEqual(self.read(self.backing, "now"), "there")

    def test_what_drain_at_is_not(self):
        for when, says in (("soon", "+10m"), ("-10m", "SLURM_JOB_END_TIME"), ("2001-01-01T00:00", "ago")):
            done = self.swale("start", self.backing, "--drain-at", when, SLURM_JOB_END_TIME="")
            self.assertNotEqual(done.returncode, 0, when)
            self.assertIn(says, done.stderr)
        self.assertEqual(os.listdir(self.backing), [])

    def test_two_nodes_by_a_launcher(self):
        if not MPIRUN:
            self.skipTest("no Open MPI when this was built")
        with open(f"{self.scratch}/words", "w", encoding="utf-8") as script:
            script.write(NODE_WORDS)
        os.chmod(f"{self.scratch}/words", 0o755)
        at = f"{self.scratch}/at-NODE"
        for node in range(2):
            self.make(f"at-{node}")
        os.symlink("at-0", at)
        launcher = f"{MPIRUN[0]} -n 2 {self.scratch}/words"
        self.buffer += "-NODE"
        self.start("--launcher", launcher, "--nodes", "2", at=at)
        self.write(f"{self.scratch}/at-0", "one", "of node 0")
        self.assertEqual(self.read(f"{self.scratch}/at-1", "one"), "of node 0")
        self.write(f"{self.scratch}/at-1", "two", "of node 1")
        self.assertEqual(self.status(at)[0]["nodes"], 2)
        self.stop()
        self.assertEqual([self.read(self.backing, name) for name in ("one", "two")],
                         ["of node 0", "of node 1"])
        for words, says in ((("--launcher", launcher), "--nodes"), (("--nodes", "2"), "--launcher")):
            self.assertIn(says, self.swale("start", self.backing, *words, SLURM_JOB_NUM_NODES="1").stderr)

    def test_two_nodes_by_a_launcher_without_a_mount(self):
        if not MPIRUN:
            self.skipTest("no Open MPI when this was built")
        self.write(self.scratch, "words", NODE_WORDS)
        os.chmod(f"{self.scratch}/words", 0o755)
        self.buffer += "-NODE"
        self.start("--no-mount", "--launcher", f"{MPIRUN[0]} -n 2 {self.scratch}/words", "--nodes", "2")
        self.assertEqual(self.status(self.backing)[0]["nodes"], 2)
        file = f"{self.backing}/file"
        step = f"echo of a step > {file}; flock {file} true && echo locked; cat {file}"
        done = self.swale("run", "--no-mount", "--backing", self.backing, "--", "sh", "-c", step)
        self.assertEqual((done.returncode, done.stdout), (0, "of a step\n"), done.stderr)
        self.assertIn("no other node would know of the lock", done.stderr)
        self.assertFalse(os.path.exists(file))
        self.stop()
        self.assertEqual(self.read(self.backing, "file"), "of a step\n")

    def test_a_launcher_that_starts_too_few_is_ended_at_the_deadline(self):
        done = self.swale("start", self.backing, "--buffer", self.buffer, "--launcher", "env", "--nodes", "2",
                          "--deadline", "2")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("1 of 2 nodes", done.stderr)
        wait_until("the server has ended", lambda: not self.processes())
        self.assertFalse(os.path.ismount(self.backing))

    def test_the_steps_of_a_batch_job(self):
        script = f"""#!/bin/sh
set -e
{SWALE} start {self.backing} --buffer {self.buffer} --drain-at -1s
srun -n 2 {SWALE} run --preload -- {sys.executable} {self.scratch}/writer {self.backing} > {self.scratch}/how
srun -n 2 /bin/sh -c 'echo $SLURM_PROCID > {self.backing}/out-$SLURM_PROCID'
srun -n 1 /bin/sh -c 'cat {self.backing}/out-0 {self.backing}/out-1 > {self.backing}/both'
mountpoint -q {self.backing}
{SWALE} stop {self.backing}
"""
        self.write(self.scratch, "writer", WRITER)
        said = f"{self.scratch}/said"
        folder = tempfile.mkdtemp(prefix="swale-slurm-")
        self.addCleanup(shutil.rmtree, folder)
        try:
            with slurm.Slurm(f"{folder}/slurm", 1) as cluster:
                done = subprocess.run(
                    [slurm.program("sbatch"), "--wait", "--nodes=1", "--ntasks=2", "--time=60",
                     f"--output={said}"],
                    input=script, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
                    env=cluster.environment(**LAUNCHED))
        except (slurm.NotInstalled, slurm.CannotRun) as why:
            self.skipTest(f"one machine: no Slurm here: {why}")
        with open(said, encoding="utf-8") as text:
            self.assertEqual(done.returncode, 0, text.read() + done.stderr)
        self.assertEqual(self.read(self.backing, "both"), "0\n1\n")
        self.assertEqual(self.read(self.scratch, "how"), "by log\n" * 2)
        for name in ("one-0", "two-0", "one-1", "two-1"):
            self.assertEqual(self.read(self.backing, name), WRITTEN)
        self.assertFalse(os.path.ismount(self.backing))

    # Each node has mounts and a buffer of its own, and the tree over the backing itself.
    def slurm_of_two_nodes(self):
        if os.geteuid() != 0:
            self.skipTest("one machine: no namespaces of hosts here: of mounts alone only root has one")
        folder = tempfile.mkdtemp(prefix="swale-slurm-")
        self.addCleanup(shutil.rmtree, folder)
        return slurm.Slurm(f"{folder}/slurm", 2, own=self.make("buffer"))

    def test_run_between_srun_and_a_program_of_two_nodes(self):
        program = f"""mountpoint -q {self.backing} || exit 9
cd {self.backing}
echo $SLURM_NODEID > from-$SLURM_PROCID
touch {self.scratch}/written-$SLURM_PROCID
for rank in 0 1 2 3; do
  while ! test -e {self.scratch}/written-$rank; do sleep 0.05; done
done
cat from-0 from-1 from-2 from-3 > seen-$SLURM_PROCID"""
        try:
            with self.slurm_of_two_nodes() as cluster:
                step = cluster.start_step(
                    4, ["--kill-on-bad-exit", SWALE, "run", "--backing", self.backing, "--buffer",
                        self.buffer, "--", "/bin/sh", "-c", program], **LAUNCHED)
                said = step.communicate(timeout=PATIENCE_S)[0]
        except (slurm.NotInstalled, slurm.CannotRun) as why:
            self.skipTest(f"one machine: no Slurm here: {why}")
        self.assertEqual(step.returncode, 0, said)
        nodes = [self.read(self.backing, f"from-{rank}") for rank in range(4)]
        self.assertEqual(set(nodes), {"0\n", "1\n"})
        for rank in range(4):
            self.assertEqual(self.read(self.backing, f"seen-{rank}"), "".join(nodes))

    def test_a_batch_job_starts_a_tree_on_its_two_nodes(self):
        script = f"""#!/bin/sh
set -e
{SWALE} start {self.backing} --buffer {self.buffer} --drain-at -1s
srun /bin/sh -c 'mountpoint -q {self.backing} && echo $SLURM_NODEID > {self.backing}/out-$SLURM_NODEID'
srun /bin/sh -c 'cat {self.backing}/out-0 {self.backing}/out-1 > {self.backing}/both-$SLURM_NODEID'
{SWALE} status {self.backing} --json > {self.scratch}/status
{SWALE} stop {self.backing}
! mountpoint {self.backing}
"""
        said = f"{self.scratch}/said"
        try:
            with self.slurm_of_two_nodes() as cluster:
                done = subprocess.run(
                    [slurm.program("sbatch"), "--wait", "--nodes=2", "--ntasks=2", "--time=60",
                     f"--output={said}"], input=script, capture_output=True, text=True, timeout=PATIENCE_S,
                    check=False, env=cluster.environment(**LAUNCHED))
        except (slurm.NotInstalled, slurm.CannotRun) as why:
            self.skipTest(f"one machine: no Slurm here: {why}")
        with open(said, encoding="utf-8") as text:
            self.assertEqual(done.returncode, 0, text.read() + done.stderr)
        with open(f"{self.scratch}/status", encoding="utf-8") as status:
            self.assertEqual([tree["nodes"] for tree in json.load(status)], [2])
        for node in range(2):
            self.assertEqual(self.read(self.backing, f"both-{node}"), "0\n1\n")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
