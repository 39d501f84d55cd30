"""A test case with a mount of the tiered write buffer: plain directory, mountpoint and backing directory in a
folder of its own.

The first argument of the test program is the swale command.
"""
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

import probe

SWALE = os.path.abspath(sys.argv[1])
NO_MOUNTS = probe.no_mounts()


def run(*words, **options):
    done = subprocess.run(words, capture_output=True, text=True, timeout=1800, **options)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(words)}: exit status {done.returncode}: {done.stderr}{done.stdout}")
    return done.stdout


def unmount(mountpoint):
    """A mount is busy while any process of the machine looks at all mounts (df, fuser), and until the last
    one that used it has ended: then it tries again.
    """
    end = time.monotonic() + 60
    while True:
        try:
            return run("fusermount3", "-u", mountpoint)
        except AssertionError:
            if time.monotonic() > end:
                raise
        time.sleep(0.02)


def listing(root):
    """Each name below root with what it is: a directory, the target of a symlink, or the mode and hash of a
    file.
    """
    found = {}
    for folder, folders, names in os.walk(root):
        if ".swale-tier" in folders:
            folders.remove(".swale-tier")
        for name in folders + names:
            path = os.path.join(folder, name)
            key = os.path.relpath(path, root)
            if os.path.islink(path):
                found[key] = ("link", os.readlink(path))
            elif os.path.isdir(path):
                found[key] = ("directory",)
            else:
                with open(path, "rb") as file:
                    found[key] = (os.stat(path).st_mode, hashlib.sha256(file.read()).hexdigest())
    return found


class Mounted(unittest.TestCase):
    # A log that is smaller than what is written, so that it is flushed and erased on the way.
    policy = "ssd-overflow"
    mount_options = ()

    def setUp(self):
        if NO_MOUNTS:
            self.skipTest(f"no FUSE mounts here: {NO_MOUNTS}; in a container, add --device /dev/fuse "
                          f"--cap-add SYS_ADMIN")
        # /tmp may be without extended attributes
        self.scratch = tempfile.mkdtemp(prefix="swale-mount-", dir=os.getcwd())
        for name in ("plain", "mnt", "backing"):
            os.mkdir(os.path.join(self.scratch, name))
        self.plain = os.path.join(self.scratch, "plain")
        self.mounted = os.path.join(self.scratch, "mnt")
        self.backing = os.path.join(self.scratch, "backing")
        self.process = None
        self.mount()

    def tearDown(self):
        if self.process:
            self.unmount()
        if hasattr(self, "scratch"):
            shutil.rmtree(self.scratch)

    def mount(self):
        self.process = subprocess.Popen(
            [SWALE, "tier", "mount", "--foreground", "--ssd", os.path.join(self.scratch, "ssd"), "--backing",
             self.backing, "--size", "16M", "--policy", self.policy, "--on-unmount", "drain",
             *self.mount_options, self.mounted],
            stdout=subprocess.PIPE, text=True)
        self.said = self.process.stdout.readline()
        self.assertIn("in front", self.said)

    def unmount(self):
        unmount(self.mounted)
        self.process.stdout.close()
        self.assertEqual(self.process.wait(timeout=600), 0)
        self.process = None

    def killed(self):
        """The process that serves the mount was killed."""
        self.process.stdout.close()
        self.process.wait(timeout=60)
        self.process = None

    def needs(self, program):
        if not shutil.which(program):
            self.skipTest(f"{program} is not installed")

    def same(self, expected):
        """`expected` is what listing() gave for the plain directory."""
        self.assertEqual(listing(self.mounted), expected)
        self.unmount()
        self.assertEqual(listing(self.backing), expected)
        self.mount()
        self.assertEqual(listing(self.mounted), expected)
