#!/usr/bin/env python3
"""tree_servers_test.py SWALE: the servers of a job's tree on one node: what they bring to the backing
directory and when, what a kill or a loss of power leaves, and what their commands say.
"""
import glob
import json
import mmap
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

from mounted import SWALE, listing, run
from tree_case import PATIENCE_S, TreeCase, make_tree, run_failing

FILES = 150
INODES = 1000  # made until one that was given back is given again


class TreeServers(TreeCase):
    def test_sealed_files_do_not_change_until_they_are_unsealed(self):
        self.serve()
        path = os.path.join(self.tree, "file")

        def seal():
            return subprocess.run([SWALE, "fs", "seal", path], capture_output=True, text=True, check=False,
                                  timeout=PATIENCE_S)

        with open(path, "wb") as file:
            file.write(b"bytes")
            file.flush()
            mode = os.stat(path).st_mode
            asked = seal()
            self.assertNotEqual(asked.returncode, 0)
            self.assertIn(f"open to be written by process {os.getpid()} of node", asked.stderr)
            self.assertEqual(os.stat(path).st_mode, mode)
        self.assertEqual(seal().stderr, "")
        self.assertEqual(os.stat(path).st_mode, mode & ~0o222)

        def changes():
            os.close(os.open(path, os.O_WRONLY))

        # The kernel refuses whom the mode refuses, the server those that no mode refuses.
        for change in (changes, lambda: os.truncate(path, 1), lambda: open(path, "wb"),
                       lambda: open(path, "r+b")):
            self.assertRaises(PermissionError, change)
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 5, prot=mmap.PROT_READ) as mapped:
            self.assertEqual(mapped[:], b"bytes")
            self.assertEqual(seal().stderr, "", "it is sealed already")
            os.chmod(path, 0o644)
            with open(path, "r+b") as again:
                again.write(b"B")
            file.seek(0)
            self.assertEqual(file.read(), b"Bytes")
        # The last close seals a file whose mode has changed before, after a mapping of it has ended, too.
        with open(path, "r+b") as file:
            mapped = mmap.mmap(file.fileno(), 5)
            os.fchmod(file.fileno(), 0o444)
        mapped[1:2] = b"Y"
        mapped.close()
        self.assertEqual(seal().stderr, "")
        self.assertRaises(PermissionError, changes)
        self.assertIn("is no file of a tree", run_failing(SWALE, "fs", "seal", self.plain))
        os.unlink(path)
        status, said = self.end()
        self.assertEqual(status, 0, said)
        if os.geteuid() == 0:
            self.assertIn("file: it is sealed, and its bytes cannot change: chmod u+w lets them", said)

    def test_a_killed_server_loses_nothing_and_recover_brings_it_to_the_backing(self):
        with open(os.path.join(self.tree, "old"), "wb") as file:
            file.write(b"old bytes")
        self.serve()
        make_tree(self.tree, FILES)
        with open(os.path.join(self.tree, "old"), "r+b") as file:
            file.write(b"NEW")
        seen = listing(self.tree)
        self.end(signal.SIGKILL)
        with self.assertRaises(OSError):  # a dead mount
            os.listdir(self.tree)
        run(SWALE, "fs", "recover", self.tree)
        self.assertEqual(listing(self.tree), seen)
        self.assertNotIn(".swale", os.listdir(self.tree))
        missing = self.recover()
        self.assertNotEqual(missing.returncode, 0)
        self.assertIn("no job of", missing.stderr)

    def test_keep_stat_sync_and_discard(self):
        buffer = os.path.join(self.scratch, "buffer")
        self.serve("--at-end", "keep", "--buffer", buffer)
        make_tree(self.tree, 20)
        self.assertGreater(self.stat()["undrained_files"], 10)
        seen = listing(self.tree)
        self.assertEqual(self.end(), (0, ""))
        self.assertFalse(os.path.exists(os.path.join(self.tree, "large")))
        self.serve("--at-end", "discard", "--buffer", buffer)
        self.assertEqual(listing(self.tree), seen)
        run(SWALE, "fs", "sync", self.tree)
        self.assertEqual(self.stat()["undrained_files"], 0)
        with open(os.path.join(self.tree, "late"), "wb") as file:
            file.write(b"given up")
        self.assertEqual(self.end(), (0, ""))
        self.assertEqual(listing(self.tree), seen)
        self.assertEqual(os.listdir(buffer), [])

    def made_anew(self, path):
        """Another directory in its place, which gets its inode."""
        inode = os.stat(path).st_ino
        shutil.rmtree(path)
        others = []
        for i in range(INODES):
            os.mkdir(path)
            if os.stat(path).st_ino == inode:
                break
            others.append(f"{path}-{i}")
            os.rename(path, others[-1])
        for other in others:
            os.rmdir(other)
        return os.path.isdir(path)

    def test_a_new_directory_has_another_buffer_than_the_deleted_one_whose_inode_it_got(self):
        self.serve("--at-end", "keep")
        with open(os.path.join(self.tree, "old"), "wb") as file:
            file.write(b"of the tree that is deleted")
        self.end(signal.SIGKILL)
        subprocess.run(["fusermount3", "-u", "-z", self.tree], check=True)
        found = os.stat(self.tree)
        if not self.made_anew(self.tree):
            print("this file system gives no inode again: nothing can be taken for another one")
            return
        self.serve()
        self.assertEqual(os.listdir(self.tree), [])
        self.assertEqual(self.end(), (0, ""))
        self.assertEqual(os.listdir(self.tree), [])
        for folder in ("/dev/shm", tempfile.gettempdir()):
            left = glob.glob(f"{folder}/swale-fs-{os.geteuid()}-{found.st_dev:x}-{found.st_ino:x}-*")
            self.assertEqual(len(left), 1, "of the first one, which was killed")
            shutil.rmtree(left[0])

    def test_a_new_directory_with_the_inode_of_a_deleted_tree_gets_nothing_of_it(self):
        buffer = os.path.join(self.scratch, "buffer")
        self.serve("--at-end", "keep", "--buffer", buffer)
        with open(os.path.join(self.tree, "old"), "wb") as file:
            file.write(b"of the tree that is deleted")
        self.end(signal.SIGKILL)
        subprocess.run(["fusermount3", "-u", "-z", self.tree], check=True)
        if not self.made_anew(self.tree):
            print("this file system gives no inode again: nothing can be taken for another one")
            return
        for words in (("serve", "--buffer", buffer, self.tree),
                      ("fs", "recover", "--buffer", buffer, self.tree)):
            self.assertIn("whose tree was another directory", run_failing(SWALE, *words))
        self.assertEqual(os.listdir(self.tree), [])
        # The same of the buffer: the memory of the one that is gone has bytes of files with the same ids.
        if not self.made_anew(buffer):
            return
        os.chmod(buffer, 0o700)
        self.serve("--buffer", buffer)
        with open(os.path.join(self.tree, "new"), "wb") as file:
            file.truncate(100)
        self.assertEqual(self.end(), (0, ""))
        with open(os.path.join(self.tree, "new"), "rb") as file:
            self.assertEqual(file.read(), bytes(100))

    def test_fsync_is_durable_on_the_node_without_a_drain(self):
        at = os.path.join(self.scratch, "at")
        os.mkdir(at)
        with open(os.path.join(self.tree, "old"), "wb") as file:
            file.write(b"old bytes")
        buffer = os.path.join(self.scratch, "buffer")
        self.serve("--at", at, "--at-end", "keep", "--buffer", buffer)
        self.assertEqual(json.loads(run(SWALE, "fs", "stat", "--json", at))["fsync"], "node")
        large = random.Random(3).randbytes(6_000_000)
        for name, how, content in (("new", "wb", large), ("old", "r+b", b"NEW"), ("late", "wb", b"late")):
            with open(os.path.join(at, name), how) as file:
                file.write(content)
                if name != "late":
                    file.flush()
                    os.fsync(file.fileno())
        os.rename(os.path.join(at, "new"), os.path.join(at, "renamed"))
        self.assertEqual(sorted(os.listdir(self.tree)), [".swale", "old"])
        self.end(signal.SIGKILL)
        shutil.rmtree(self.memory_of(buffer))
        run(SWALE, "fs", "recover", self.tree, "--buffer", buffer)
        with open(os.path.join(self.tree, "old"), "rb") as file:
            self.assertEqual(file.read(), b"NEW bytes")
        with open(os.path.join(self.tree, "renamed"), "rb") as file:
            self.assertEqual(file.read(), large)
        subprocess.run(["fusermount3", "-u", "-z", at], stderr=subprocess.DEVNULL, check=False)

    def test_fsync_brings_a_file_to_the_backing_where_that_is_wanted_or_the_buffer_is_in_memory(self):
        at = os.path.join(self.scratch, "at")
        os.mkdir(at)
        with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
            for name, options, remark in (("one", (), ""),
                                          ("other", ("--buffer", os.path.join(self.scratch, "buffer"),
                                                     "--fsync", "backing"), ""),
                                          ("two", ("--buffer", os.path.join(memory, "buffer")),
                                           "is in memory: fsync brings")):
                self.serve("--at", at, *options)
                with open(os.path.join(at, name), "wb") as file:
                    file.write(b"synced")
                    file.flush()
                    os.fsync(file.fileno())
                    self.assertTrue(os.path.exists(os.path.join(self.tree, name)))
                status, said = self.end()
                self.assertEqual(status, 0)
                self.assertIn(remark, said)
                self.assertEqual(said == "", remark == "")

    def test_info_stats_verify_dump_and_drain_know_the_directories(self):
        at = os.path.join(self.scratch, "at")
        buffer = os.path.join(self.scratch, "buffer")
        os.mkdir(at)
        self.serve("--at", at, "--at-end", "keep", "--buffer", buffer)
        for name in ("f", "g"):
            with open(os.path.join(at, name), "wb") as file:
                file.write(name.encode() * 100_000)
                file.flush()
                os.fsync(file.fileno())

        def info(path):
            return json.loads(run(SWALE, "info", "--json", path))

        self.assertEqual((info(at)["part"], info(at)["undrained_files"]), ("mountpoint", 2))
        self.assertEqual(info(self.tree)["part"], "backing")
        found = info(buffer)
        self.assertEqual((found["part"], found["undrained_files"]), ("buffer", 2))
        self.assertEqual(found["undrained_bytes"], 200_000)
        self.assertIn("buffer of a job's file system", run(SWALE, "info", os.path.join(buffer, "spill")))
        stats = json.loads(run(SWALE, "stats", "--json", at))
        self.assertEqual((stats["undrained_files"], stats["undrained_bytes"]), (2, 200_000))
        self.assertRegex(run(SWALE, "stats", at), r"undrained_files +2\n")
        for other in (buffer, self.tree):  # they count nothing
            self.assertIn("no server has its tree mounted", run_failing(SWALE, "stats", other))
        self.assertIn("2 spilled chunks", run(SWALE, "verify", buffer))
        self.assertIn('"order"', run(SWALE, "dump", "--json", buffer))
        drained = json.loads(run(SWALE, "fs", "drain", "--json", at))
        self.assertEqual((drained["drained_files"], drained["undrained_files"]), (2, 0))
        self.assertEqual(info(buffer)["undrained_bytes"], 0)
        with open(os.path.join(at, "h"), "wb") as file:
            file.write(b"h" * 1_000_000)  # too much for the journal of fsyncs
            file.flush()
            os.fsync(file.fileno())
        newest = max((entry.path for entry in os.scandir(os.path.join(buffer, "spill"))
                      if entry.name.startswith("spill-")), key=lambda path: int(path.rsplit("-", 1)[1]))
        with open(newest, "r+b") as file:  # a canary
            file.seek(50_000)
            file.write(b"X")
        broken = subprocess.run([SWALE, "verify", buffer], capture_output=True, text=True, check=False)
        self.assertNotEqual(broken.returncode, 0)
        self.assertIn(os.path.basename(newest), broken.stdout + broken.stderr)
        self.assertNotIn("restore", broken.stdout + broken.stderr)

    def test_what_others_change_fails_the_end_and_a_second_job_is_refused(self):
        for name in ("f", "g"):
            with open(os.path.join(self.tree, name), "wb") as file:
                file.write(b"old")
        at = os.path.join(self.scratch, "at")
        os.mkdir(at)
        self.serve("--at", at, "--at-end", "keep")
        with open(os.path.join(at, "f"), "wb") as file:
            file.write(b"ours")
        with open(os.path.join(self.tree, "f"), "wb") as file:
            file.write(b"theirs, longer")
        second = subprocess.run([SWALE, "serve", self.tree], capture_output=True, text=True, check=False)
        self.assertNotEqual(second.returncode, 0)
        self.assertIn("a job has it now", second.stderr)
        self.assertEqual(self.end()[0], 0)
        drained = self.recover()
        self.assertNotEqual(drained.returncode, 0)
        self.assertIn("others have changed", drained.stderr)
        with open(os.path.join(self.tree, "f"), "rb") as file:
            self.assertEqual(file.read(), b"theirs, longer")
        aside = [name for name in os.listdir(self.tree) if name.startswith("f.swale-job-")]
        self.assertEqual(len(aside), 1)
        with open(os.path.join(self.tree, aside[0]), "rb") as file:
            self.assertEqual(file.read(), b"ours")

    def test_what_a_drain_in_the_background_keeps_aside_fails_the_job_which_names_it(self):
        at = os.path.join(self.scratch, "at")
        os.mkdir(at)
        program = """
import json, subprocess, sys, time
swale, at, backing = sys.argv[1:]
for name in ("kept", "changed"):
    with open(f"{at}/{name}", "r+b") as file:
        file.write(b"ours")
        if name == "changed":
            with open(f"{backing}/{name}", "wb") as there: there.write(b"theirs, longer")
end = time.monotonic() + %d
def stat(): return json.loads(subprocess.run([swale, "fs", "stat", "--json", at], capture_output=True,
                                             check=True).stdout)
while stat()["undrained_files"] > 0: assert time.monotonic() < end; time.sleep(0.05)
""" % PATIENCE_S
        for name in ("kept", "changed"):
            with open(os.path.join(self.tree, name), "wb") as file:
                file.write(b"old")
        done = subprocess.run([SWALE, "run", "--backing", self.tree, "--at", at, "--", sys.executable, "-c",
                               program, SWALE, at, self.tree], capture_output=True, text=True,
                              timeout=PATIENCE_S, check=False)
        self.assertNotEqual(done.returncode, 0, done.stderr)
        self.assertIn("changed: others have changed it", done.stderr)
        self.assertNotIn("kept:", done.stderr)
        names = sorted(os.listdir(self.tree))
        self.assertEqual(names[:1] + names[2:], ["changed", "kept"])
        self.assertTrue(names[1].startswith("changed.swale-job-"), names)

    def test_run(self):
        script = "echo some text > out; test -e ../tree/out; exit 7"
        done = subprocess.run([SWALE, "run", "--backing", self.tree, "--", "sh", "-c", script], cwd=self.tree,
                              capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        self.assertEqual((done.returncode, done.stderr), (7, ""))
        with open(os.path.join(self.tree, "out"), encoding="ascii") as file:
            self.assertEqual(file.read(), "some text\n")
        self.assertEqual(os.listdir(self.tree), ["out"])
        run(SWALE, "run", "--backing", self.tree, "--", "true")

    # The program finds its tree again, with all that it has written.
    def test_run_starts_a_killed_server_again(self):
        program = """
import os, signal, sys, time
tree, scratch = sys.argv[1:]
for i in range(50):
    with open(f"{tree}/f{i}", "w") as file: file.write(f"file {i}")
children = open(f"/proc/{os.getppid()}/task/{os.getppid()}/children").read().split()
server = [int(each) for each in children if int(each) != os.getpid()]
os.kill(server[0], signal.SIGKILL)
end = time.monotonic() + 300
while time.monotonic() < end:
    try:
        if len(os.listdir(tree)) == 50 and os.path.ismount(tree): break
    except OSError:
        pass
    time.sleep(0.05)
assert open(f"{tree}/f49").read() == "file 49"
with open(f"{tree}/after", "w") as file: file.write("after")
"""
        done = subprocess.run([SWALE, "run", "--backing", self.tree, "--", sys.executable, "-c", program,
                               self.tree, self.scratch], capture_output=True, text=True, timeout=PATIENCE_S,
                              check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("it is started again", done.stderr)
        self.assertEqual(len(os.listdir(self.tree)), 51)
        with open(os.path.join(self.tree, "f7"), encoding="ascii") as file:
            self.assertEqual(file.read(), "file 7")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
