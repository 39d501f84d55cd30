#!/usr/bin/env python3
"""run_test.py SWALE LIBSWALE PROGRAM LAUNCHER...: `swale run` under a launcher of MPI: I/O servers beside a
program that MPI knows nothing of.

PROGRAM is run_program.c, built for the launcher's MPI. An I/O server refuses to run as root, so all of this
is an ordinary user's.
"""
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../security"))
import ordinary_user  # noqa: E402

SWALE, LIBRARY, PROGRAM = (os.path.abspath(path) for path in sys.argv[1:4])
LAUNCHER = sys.argv[4:]
BLOCK = 300_000
PATIENCE_S = 200
JOIN_DEADLINE_S = 1000  # of a meeting: nothing here waits for it


class Run(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory(prefix="run-", dir=os.getcwd())
        self.root = self.scratch.name
        for server in range(3):
            os.mkdir(f"{self.root}/disk{server}")
        os.mkdir(f"{self.root}/meet", 0o700)

    def tearDown(self):
        self.scratch.cleanup()

    def environment(self, servers):
        more = dict(SERVERS=str(servers), SWALE_NET_SILENCE_DEADLINE_S="15", SWALE_IOND_WATCH_S="0.3",
                    SWALE_JOB_JOIN_DEADLINE_S=str(JOIN_DEADLINE_S), TMPDIR=self.root,
                    LD_LIBRARY_PATH=os.path.dirname(LIBRARY),  # of libswale-ucx.so
                    OMPI_MCA_rmaps_base_oversubscribe="1",
                    PRTE_MCA_rmaps_default_mapping_policy=":oversubscribe", OMPI_MCA_mpi_yield_when_idle="1",
                    OMPI_MCA_btl_tcp_if_include="lo")
        return {**os.environ, **more}

    def words(self, servers, program):
        return [SWALE, "run", "--servers", str(servers), "--ssd", f"{self.root}/ssd%s", "--backing",
                f"{self.root}/disk%s", "--size", "16M", "--at-end", "drain", "--options",
                "iond.stripe=65536", "--", *program]

    def start(self, launcher, servers, *program):
        return subprocess.Popen([*launcher, *self.words(servers, program)], env=self.environment(servers),
                                cwd=self.root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                start_new_session=True)

    def run_all(self, launcher, servers, *program):
        process = self.start(launcher, servers, *program)
        try:
            out, err = process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            self.fail(f"waited for {PATIENCE_S} s: {out}\n{err}")
        return process.returncode, out, err

    def ours(self):
        """Command lines of processes that have this test's folder among their words."""
        found = []
        for number in os.listdir("/proc"):
            if not number.isdigit() or int(number) == os.getpid():
                continue
            try:
                with open(f"/proc/{number}/cmdline", "rb") as words:
                    line = words.read()
            except OSError:
                continue
            if self.root.encode() in line and b"run_test.py" not in line:
                found.append(line.replace(b"\0", b" ").decode())
        return found

    def expect_no_process(self):
        until = time.monotonic() + PATIENCE_S
        while self.ours() and time.monotonic() < until:
            time.sleep(0.1)
        self.assertEqual(self.ours(), [])

    def test_a_program_of_mpi_has_servers_that_mpi_does_not_count(self):
        for servers, ranks in ((1, 3), (2, 3), (3, 2)):
            with self.subTest(servers=servers, ranks=ranks):
                self.tearDown()
                self.setUp()
                status, out, err = self.run_all([*LAUNCHER, "-n", str(ranks)], servers, PROGRAM, "write")
                self.assertEqual(status, 0, err)
                self.assertIn(f"{ranks} ranks wrote", out)
                self.assertEqual(out.count("took"), servers, out)
                self.assertTrue(os.path.exists(f"{self.root}/disk0/field"))
                if servers == 1:  # a plain file, drained
                    with open(f"{self.root}/disk0/field", "rb") as field:
                        self.assertEqual(field.read(),
                                         b"".join(bytes([97 + rank]) * BLOCK for rank in range(ranks)))
                self.expect_no_process()

    def test_a_program_of_mpi_makes_other_collective_calls_beside_the_servers(self):
        os.chmod(self.root, 0o700)
        status, out, err = self.run_all([*LAUNCHER, "-n", "3"], 2, PROGRAM, "beside", f"{self.root}/dir")
        self.assertEqual(status, 0, err)
        self.assertIn("3 ranks ended 20 epochs", out)
        found = subprocess.run([SWALE, "info", "--json", f"{self.root}/dir"], capture_output=True, text=True,
                               check=True, timeout=PATIENCE_S)
        self.assertEqual([epoch["records"] for epoch in json.loads(found.stdout)["epochs"]], [3 * 100] * 20)
        self.expect_no_process()

    def test_a_rank_that_fails_ends_the_job_and_the_server_ends_by_itself(self):
        status, out, _ = self.run_all([*LAUNCHER, "-n", "3"], 1, PROGRAM, "fail")
        self.assertNotEqual(status, 0, out)
        self.expect_no_process()
        # What was acknowledged is there, drained by the server or in its log.
        subprocess.run([SWALE, "tier", "drain", f"{self.root}/ssd0", f"{self.root}/disk0"], check=False,
                       capture_output=True)
        with open(f"{self.root}/disk0/field", "rb") as field:
            content = field.read()
        for rank in range(3):
            self.assertEqual(content[rank * BLOCK:(rank + 1) * BLOCK], bytes([97 + rank]) * BLOCK, rank)

    def test_a_program_that_uses_no_server_is_not_waited_for(self):
        status, _, err = self.run_all([*LAUNCHER, "-n", "2"], 1, PROGRAM, "nothing")
        self.assertIn("has ended without its I/O servers", err)
        self.expect_no_process()
        self.assertFalse(os.path.exists(f"{self.root}/ssd0"))
        self.assertEqual(status, 0, err)

    def test_words_reach_the_program_as_they_are(self):
        words = ["--ssd", "[1,2]", "", "a b", "--", "-n", "*"]
        status, out, err = self.run_all([*LAUNCHER, "-n", "1"], 1, PROGRAM, "words", *words)
        self.assertEqual([line for line in out.split("\n") if line.startswith("<")],
                         [f"<{word}>" for word in words], err)
        self.assertEqual(status, 0, err)

    def test_status_and_signals_without_a_launcher(self):
        status, _, err = self.run_all([], 1, "sh", "-c", "exit 5")
        self.assertEqual(status, 5, err)
        status, _, err = self.run_all([], 1, f"{self.root}/none")
        self.assertEqual(status, 127, err)
        self.assertIn("No such file", err)
        process = self.start([], 1, "sh", "-c", "trap 'exit 9' TERM; echo ready; while :; do sleep 0.1; done")
        self.assertEqual(process.stdout.readline(), "ready\n")
        process.terminate()
        process.communicate(timeout=PATIENCE_S)
        self.assertEqual(process.returncode, 9)

    def test_what_is_killed_takes_the_program_and_its_server_along(self):
        # At once: the server has hardly begun. The folder is among the program's words for ours().
        for _ in range(10):
            process = self.start([], 1, "sh", "-c", f"echo ready; exec tail -f /dev/null {self.root}/none")
            self.assertEqual(process.stdout.readline(), "ready\n")
            process.kill()
            process.wait()
            process.stdout.close()
            process.stderr.close()
            self.expect_no_process()

    def one_launch_of(self, first, second):
        """The words of a launch whose rank 0 is one program and whose rank 1 another: with a colon, or where
        mpirun crashes on every colon (Open MPI 5.0.7, open-mpi/ompi#13303), with a shell that looks at its
        rank.
        """
        colon = subprocess.run([*LAUNCHER, "-n", "1", "true", ":", "-n", "1", "true"], capture_output=True,
                               env=self.environment(1), cwd=self.root, text=True, timeout=PATIENCE_S)
        if colon.returncode == 0:
            return [*LAUNCHER, "-n", "1", *first, ":", "-n", "1", *second]
        version = subprocess.run([*LAUNCHER, "--version"], capture_output=True, text=True,
                                 env=self.environment(1)).stdout
        self.assertIn("(Open MPI) 5", version, f"mpirun fails on a colon: {colon.stderr}")
        choose = 'if [ "$OMPI_COMM_WORLD_RANK" = 0 ]; then exec {}; else exec {}; fi'
        return [*LAUNCHER, "-n", "2", "sh", "-c", choose.format(shlex.join(first), shlex.join(second))]

    def test_servers_may_be_ranks_of_a_program_without_mpi(self):
        os.chmod(self.root, 0o700)
        serve = [SWALE, "iond", "--ssd", f"{self.root}/ssd", "--backing", f"{self.root}/disk0", "--size",
                 "16M"]
        client = [SWALE, "iond", "--ssd", f"{self.root}/ssd1", "--backing", f"{self.root}/disk1", "--size",
                  "16M"]
        done = subprocess.run(self.one_launch_of(serve, client), env=self.environment(1), cwd=self.root,
                              capture_output=True, text=True, timeout=PATIENCE_S)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.count("took"), 2, done.stdout)


if __name__ == "__main__":
    sys.exit(ordinary_user.run(lambda: unittest.main(argv=sys.argv[:1])))
