#!/usr/bin/env python3
"""fallback_test.py SWALE LIBSWALE [MPIRUN]: `swale start --fallback` and `swale run --fallback`, where no
tree can be mounted; and what a job has left there before.
"""
import json
import os
import subprocess
import unittest

from mounted import SWALE
from started import LAUNCHED, MPIRUN, NODE_WORDS, Started


class Fallback(Started):
    def fails(self):
        """Words that hinder the server."""
        return ["--buffer", f"{self.backing}/inside"]

    def fall_back(self):
        done = self.swale("start", self.backing, *self.fails(), "--fallback")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("NO BUFFER", done.stderr)
        self.started.append(self.backing)

    def program(self, text="there"):
        return ["--", "/bin/sh", "-c", f"echo {text} > {self.backing}/now; exit 7"]

    def leave(self, text="ours"):
        """Bytes of a job that are not on the backing."""
        kept = self.swale("start", self.backing, "--buffer", self.buffer, "--at-end", "keep")
        self.assertEqual(kept.returncode, 0, kept.stderr)
        self.write(self.backing, "now", text)
        self.kill_all()

    def refused(self, *more):
        """What each command says that might fall back, and does not."""
        for words in (["run", "--backing", self.backing, "--fallback", *more, *self.program("theirs")],
                      ["start", self.backing, "--fallback", *more]):
            done = self.swale(*words)
            self.assertEqual(done.returncode, 3, done.stderr)
            self.assertNotIn("NO BUFFER", done.stderr)
            yield done.stderr

    def recover(self):
        done = self.swale("fs", "recover", self.backing, "--buffer", self.buffer)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_start_that_falls_back_leaves_word_until_the_stop(self):
        self.fall_back()
        self.assertFalse(os.path.ismount(self.backing))
        found = self.status(self.backing, exit_code=1)
        self.assertEqual([tree["state"] for tree in found], ["fallback"])
        self.assertIn("--buffer", found[0]["why"])
        self.assertIn("NO BUFFER", self.swale("status").stdout)
        self.write(self.backing, "now", "there")
        self.assertIn("NO BUFFER", self.stop().stderr)
        self.assertEqual(self.read(self.backing, "now"), "there")
        self.assertEqual(self.status(self.backing, exit_code=1), [])
        self.assertEqual(self.swale("stop", self.backing).returncode, 3)

    def test_the_script_of_the_guide(self):
        script = f"""set -e
{SWALE} start {self.backing} --fallback --json {" ".join(self.fails())} > {self.scratch}/started
{SWALE} run --preload --fallback -- sh -c 'echo there > {self.backing}/now'
{SWALE} stop {self.backing}
"""
        done = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, check=False,
                              env={**os.environ, **LAUNCHED})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(self.read(self.scratch, "started"))["state"], "fallback")
        self.assertEqual(self.read(self.backing, "now"), "there\n")

    def test_a_start_after_one_that_fell_back_mounts(self):
        self.fall_back()
        self.start()
        self.assertEqual([tree["state"] for tree in self.status(self.backing)], ["mounted"])
        self.stop()
        self.started.clear()

    def test_a_mistake_is_no_reason_to_fall_back(self):
        for words in (("--drain-at", "soon"), ("--nodes", "2")):
            done = self.swale("start", self.backing, "--fallback", *words, SLURM_JOB_NUM_NODES="1")
            self.assertNotEqual(done.returncode, 0, words)
            self.assertNotIn("NO BUFFER", done.stderr)
        missing = self.swale("start", f"{self.scratch}/missing", "--fallback")
        self.assertEqual(missing.returncode, 3, missing.stderr)
        at = self.make("at")  # where programs would write to, and nobody would look
        done = self.swale("start", self.backing, "--fallback", "--at", at)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(self.swale("status", self.backing).returncode, 1)

    def test_run_falls_back_to_the_directory_loudly(self):
        words = ["run", "--backing", self.backing, *self.fails()]
        refused = self.swale(*words, *self.program())
        self.assertNotIn(refused.returncode, (0, 7), refused.stderr)
        self.assertFalse(os.path.exists(f"{self.backing}/now"))
        fallen = self.swale(*words, "--fallback", *self.program())
        self.assertEqual(fallen.returncode, 7, fallen.stderr)
        self.assertIn("NO BUFFER", fallen.stderr)
        self.assertEqual(self.read(self.backing, "now"), "there\n")

    def test_nothing_falls_back_on_what_a_job_has_left(self):
        self.leave()
        for said in self.refused(*self.fails()):
            self.assertIn("swale fs recover", said)
            self.assertEqual(os.listdir(self.backing), [".swale"])
        self.assertEqual(self.status(self.backing, exit_code=1), [])
        self.recover()
        self.assertEqual(self.read(self.backing, "now"), "ours")
        # Canary: all is there, and the same words fall back.
        fallen = self.swale("run", "--backing", self.backing, *self.fails(), "--fallback", *self.program())
        self.assertEqual(fallen.returncode, 7, fallen.stderr)
        self.assertEqual(self.read(self.backing, "now"), "there\n")

    def test_nothing_falls_back_beside_a_job_that_lives(self):
        at = self.make("at")
        self.start(at=at)
        self.write(at, "now", "ours")
        self.assertEqual(len(list(self.refused(*self.fails()))), 2)
        self.stop()
        self.assertEqual(self.read(self.backing, "now"), "ours")
        self.start()
        self.assertEqual(len(list(self.refused())), 2)
        self.stop()
        self.assertEqual(self.read(self.backing, "now"), "ours")

    def test_a_start_brings_what_a_killed_job_has_left(self):
        self.leave()
        self.start()
        self.assertEqual(self.read(self.backing, "now"), "ours")
        self.stop()
        self.assertEqual(self.read(self.backing, "now"), "ours")
        self.assertEqual(os.listdir(self.backing), ["now"])

    def test_two_nodes_of_which_one_cannot_mount(self):
        if not MPIRUN:
            self.skipTest("no Open MPI when this was built")
        hide = "mount --bind /dev/null /dev/fuse && "  # of rank 1
        script = NODE_WORDS.replace('exec "$@"', f"""
test $rank = 0 && exec "$@"
exec unshare --mount sh -c '{hide}exec "$@"' sh "$@"
""")
        self.write(self.scratch, "words", script)
        os.chmod(f"{self.scratch}/words", 0o755)
        tried = subprocess.run(["unshare", "--mount", "sh", "-c", f"{hide}true"], capture_output=True,
                               check=False)
        if tried.returncode != 0:
            self.skipTest("no namespaces of mounts here")
        launch = [*MPIRUN, "-n", "2", f"{self.scratch}/words", SWALE, "run", "--backing", self.backing,
                  "--buffer", f"{self.buffer}-NODE"]
        program = ["--", "/bin/sh", "-c",
                   f"mountpoint {self.backing}; echo $OMPI_COMM_WORLD_RANK > "
                   f"{self.backing}/from-$OMPI_COMM_WORLD_RANK"]
        environment = {**os.environ, **LAUNCHED}
        for times in range(2):  # a start that failed is not in the way of the next one
            done = subprocess.run([*launch, "--fallback", *program], capture_output=True, text=True,
                                  env=environment, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(done.stderr.count("NO BUFFER"), 2, done.stderr)
            for rank in range(2):
                self.assertEqual(self.read(self.backing, f"from-{rank}"), f"{rank}\n", times)
            self.assertNotIn("is a mountpoint", done.stdout)
            self.assertEqual(sorted(os.listdir(self.backing)), ["from-0", "from-1"])


if __name__ == "__main__":
    unittest.main(argv=["fallback_test.py"], verbosity=2)
