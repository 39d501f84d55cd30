#!/usr/bin/env python3
"""iond_root_test.py SWALE: an I/O server refuses to run as root, before it joins a job or makes a file; as an
ordinary user it runs.
"""
import os
import subprocess
import sys
import tempfile
import unittest

import ordinary_user

SWALE = os.path.abspath(sys.argv[1])


class IondRoot(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory(prefix="iond-root-", dir=os.getcwd())
        self.root = self.scratch.name
        os.mkdir(f"{self.root}/disk")

    def tearDown(self):
        self.scratch.cleanup()

    def serve(self, *before):
        environment = dict(os.environ, SWALE_JOB_RANK="0", SWALE_JOB_SIZE="1")
        words = [*before, SWALE, "iond", "--ssd", f"{self.root}/ssd", "--backing", f"{self.root}/disk",
                 "--size", "16M"]
        return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=100)

    def test_root_is_refused_and_told_what_to_do(self):
        if os.geteuid() != 0:
            self.skipTest("needs root, to be refused")
        done = self.serve()
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("does not run as root", done.stderr)
        self.assertIn("setpriv --reuid", done.stderr)
        self.assertEqual(os.listdir(self.root), ["disk"])
        self.assertEqual(os.listdir(f"{self.root}/disk"), [])

    def test_a_tree_over_servers_is_refused_and_leaves_nothing(self):
        if os.geteuid() != 0:
            self.skipTest("needs root, to be refused")
        os.mkdir(f"{self.root}/at")
        words = [SWALE, "run", "--ssd", f"{self.root}/ssd", "--backing", f"iond:{self.root}/disk", "--at",
                 f"{self.root}/at", "--buffer", f"{self.root}/buffer", "--", "true"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=100, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("does not run as root", done.stderr)
        self.assertEqual(sorted(os.listdir(self.root)), ["at", "disk"])

    def test_an_ordinary_user_is_served(self):
        ordinary_user.give(self.root)
        done = self.serve(*ordinary_user.words())
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(os.stat(f"{self.root}/ssd/log").st_mode & 0o777, 0o600)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
