#!/usr/bin/env python3
"""attributes_told_test.py SWALE: a file system on which the tier cannot keep its ids where only root writes,
or not at all.

The command says what is lost and what to do. As root: without CAP_SYS_ADMIN, and on ramfs, which has no
attributes.
"""
import os
import subprocess
import sys
import tempfile
import unittest

SWALE = os.path.abspath(sys.argv[1])


class AttributesTold(unittest.TestCase):
    def setUp(self):
        if os.geteuid() != 0:
            self.skipTest("needs root, which gives a capability up, and mounts")
        # Beside the program: /tmp may be without attributes.
        self.scratch = tempfile.TemporaryDirectory(prefix="attributes-", dir=os.getcwd())
        self.addCleanup(self.scratch.cleanup)
        self.root = self.scratch.name
        os.mkdir(f"{self.root}/slow")

    def make(self, *before, backing="slow"):
        words = [*before, SWALE, "tier", "make", f"{self.root}/ssd", f"{self.root}/{backing}", "--size",
                 "16M"]
        return subprocess.run(words, capture_output=True, text=True, timeout=100)

    def test_root_who_may_not_write_trusted_attributes_is_told(self):
        done = self.make("setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin")
        self.assertEqual(done.returncode, 0, done.stderr)
        for words in (f"{self.root}/slow", "trusted.swale.tier is refused", "two files with one id will be "
                      "set apart",
                      "run with CAP_SYS_ADMIN"):
            self.assertIn(words, done.stderr)

    def test_with_all_rights_nothing_is_said(self):
        done = self.make()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("trusted", done.stderr)

    def test_a_file_system_without_attributes_is_refused_and_others_are_named(self):
        os.mkdir(f"{self.root}/ram")
        script = f'mount -t ramfs none "{self.root}/ram" && mkdir "{self.root}/ram/slow" && exec "$@"'
        done = self.make("unshare", "--mount", "sh", "-c", script, "sh", backing="ram/slow")
        self.assertEqual(done.returncode, 3, done.stderr)
        for words in (f"{self.root}/ram/slow", "nothing can be buffered here", "ext4, xfs"):
            self.assertIn(words, done.stderr)
        self.assertEqual(os.listdir(f"{self.root}/ssd") if os.path.isdir(f"{self.root}/ssd") else [], [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
