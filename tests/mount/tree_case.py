"""A test case with a job's tree on one node: a directory beside a plain one, and the server of the tree.

The first argument of the test program is the swale command.
"""
import json
import os
import random
import shutil
import signal
import subprocess
import tempfile
import unittest

from mounted import NO_MOUNTS, SWALE, listing, run

PATIENCE_S = 300  # for what must happen, on a machine however slow


def make_tree(root, files):
    chance = random.Random(1)
    for i in range(files):
        folder = os.path.join(root, f"d{i % 13}", f"e{i % 5}")
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, f"f{i}"), "wb") as file:
            file.write(chance.randbytes(chance.choice((0, 1, 100, 4095, 4096, 4097, 20_000))))
        if i % 50 == 0:
            os.symlink(f"f{i}", os.path.join(folder, f"soft{i}"))
    with open(os.path.join(root, "large"), "wb") as file:
        file.write(chance.randbytes(5_000_000))


def run_failing(*words):
    """What the command says that must fail."""
    ended = subprocess.run(words, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    if ended.returncode == 0:
        raise AssertionError(f"{words} has succeeded")
    return ended.stderr


class TreeCase(unittest.TestCase):
    def setUp(self):
        if NO_MOUNTS:
            self.skipTest(f"no FUSE mounts here: {NO_MOUNTS}; in a container, add --device /dev/fuse "
                          f"--cap-add SYS_ADMIN")
        # /tmp may be without extended attributes
        self.scratch = tempfile.mkdtemp(prefix="swale-tree-", dir=os.getcwd())
        self.plain = os.path.join(self.scratch, "plain")
        self.tree = os.path.join(self.scratch, "tree")
        os.mkdir(self.plain)
        os.mkdir(self.tree)
        self.server = None

    def tearDown(self):
        if self.server:
            self.end()
        if hasattr(self, "scratch"):
            subprocess.run(["fusermount3", "-u", "-z", self.tree], stderr=subprocess.DEVNULL, check=False)
            shutil.rmtree(self.scratch)

    def serve(self, *options):
        self.server = subprocess.Popen([SWALE, "serve", *options, self.tree], stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE, text=True)
        self.assertIn("is mounted", self.server.stdout.readline())

    def end(self, how=signal.SIGTERM):
        """Exit status and messages of the server."""
        self.server.send_signal(how)
        _, said = self.server.communicate(timeout=PATIENCE_S)
        status, self.server = self.server.returncode, None
        return status, said

    def stat(self):
        return json.loads(run(SWALE, "fs", "stat", "--json", self.tree))

    def recover(self):
        return subprocess.run([SWALE, "fs", "recover", self.tree], capture_output=True, text=True,
                              timeout=PATIENCE_S, check=False)

    def memory_of(self, buffer):
        """Where the server has the logs of its memory, which a machine that loses power has no more."""
        found = os.stat(buffer)
        return f"/dev/shm/swale-fs-{os.geteuid()}-{found.st_dev:x}-{found.st_ino:x}"

    def same(self):
        self.assertEqual(listing(self.tree), listing(self.plain))

    def ends_with_all(self, said="^$"):
        seen = listing(self.tree)
        status, found = self.end()
        self.assertEqual(status, 0, found)
        self.assertRegex(found, said)
        self.assertFalse(os.path.ismount(self.tree))
        self.assertEqual(listing(self.tree), seen)
        self.assertNotIn(".swale", os.listdir(self.tree))
        return seen

    def needs(self, program):
        if not shutil.which(program):
            self.skipTest(f"{program} is not installed")
