#!/usr/bin/env python3
"""library_test.py SWALE PROGRAM EXAMPLE CPP RANDOM [FORTRAN] [--long]: programs that use the tree of a job by
the library (swale_fs.h), beside the system's own calls. What they leave comes to the backing directory.
"""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

from mounted import NO_MOUNTS, SWALE, listing

LONG = "--long" in sys.argv
PROGRAM, EXAMPLE, CPP, RANDOM = map(os.path.abspath, sys.argv[2:6])
FORTRAN = [os.path.abspath(path) for path in sys.argv[6:7] if path != "--long"]
RANDOM_CALLS, SEEDS = (1_000_000, 3) if LONG else (10_000, 2)
RECORDS, RECORD_BYTES = 100, 47_008  # of the guide's example
EXPECTED = {"lines": b"a line of 16 b.\n" * 400, "mistakes": b"", "mounted": b"third",
            "sealed": b"Bytes", "shared": b"parent child killed parent", "vectored": b"0123456789a",
            "writes": b"01234"}


class Library(unittest.TestCase):
    def setUp(self):
        if NO_MOUNTS:
            self.skipTest(f"no FUSE mounts here: {NO_MOUNTS}; in a container, add --device /dev/fuse "
                          f"--cap-add SYS_ADMIN")
        # /tmp may be without extended attributes
        self.scratch = tempfile.mkdtemp(prefix="swale-library-", dir=os.getcwd())
        self.tree = os.path.join(self.scratch, "tree")
        self.other = os.path.join(self.scratch, "other")
        os.mkdir(self.tree)
        os.mkdir(self.other)

    def tearDown(self):
        if hasattr(self, "scratch"):
            subprocess.run(["fusermount3", "-u", "-z", self.tree], stderr=subprocess.DEVNULL, check=False)
            shutil.rmtree(self.scratch)

    def test_a_program_in_c(self):
        done = subprocess.run([SWALE, "run", "--backing", self.tree, "--", PROGRAM, self.tree, self.other],
                              capture_output=True, text=True, timeout=600, check=False)
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        self.assertIn(" 0 failed", done.stdout)
        self.assertEqual(sorted(os.listdir(self.tree)), sorted([*EXPECTED, "records"]))
        for name, content in EXPECTED.items():
            with open(os.path.join(self.tree, name), "rb") as file:
                self.assertEqual(file.read(), content, name)
        self.assertEqual(os.listdir(self.other), [])

    def test_a_program_in_cpp(self):
        done = subprocess.run([SWALE, "run", "--backing", self.tree, "--", CPP, self.tree, self.other],
                              capture_output=True, text=True, timeout=600, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        with open(os.path.join(self.tree, "cpp"), "rb") as file:
            self.assertEqual(file.read(), b"0123456789abcdef")

    if FORTRAN:  # a sanitized library is for no Fortran
        def test_a_program_in_fortran(self):
            done = subprocess.run([SWALE, "run", "--backing", self.tree, "--", *FORTRAN, self.tree],
                                  capture_output=True, text=True, timeout=600, check=False)
            # The kernel refuses a user to write what is sealed, and the server root.
            said = [line for line in done.stderr.splitlines() if "fortran: it is sealed" not in line]
            self.assertEqual((done.returncode, done.stdout, said), (0, "", []), done.stderr)
            with open(os.path.join(self.tree, "fortran"), "rb") as file:
                self.assertEqual(list(memoryview(file.read()).cast("i")), [1, 3, 2, 4])

    def random(self, calls, seed, *more):
        for folder in (self.tree, self.other):
            shutil.rmtree(folder)
            os.mkdir(folder)
        return subprocess.run([SWALE, "run", "--backing", self.tree, "--memory", "32M", "--", RANDOM,
                               self.tree, self.other, str(calls), str(seed), *more], capture_output=True,
                              text=True, timeout=7200, check=False)

    def test_random_calls_give_what_a_plain_directory_gives(self):
        for seed in range(SEEDS):
            with self.subTest(seed=seed):
                done = self.random(RANDOM_CALLS // SEEDS, 700 + seed)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                print(done.stdout)
                self.assertEqual(listing(self.tree), listing(self.other))
                self.assertGreater(len(listing(self.other)), 3)

    def test_canary_a_library_that_loses_a_write_is_noticed(self):
        done = self.random(2_000, 700, "loses")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertRegex(done.stderr, "differ|instead of")

    def test_the_example_of_the_guide(self):
        done = subprocess.run([SWALE, "run", "--backing", self.tree, "--", EXAMPLE, "field"], cwd=self.tree,
                              capture_output=True, text=True, timeout=600, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        with open(os.path.join(self.tree, "field"), "rb") as file:
            row = b"".join(letter * RECORD_BYTES for letter in (b"a", b"b", b"c", b"d"))
            self.assertEqual(file.read(), row * RECORDS)

    def test_canary_outside_of_a_tree_the_program_fails(self):
        done = subprocess.run([PROGRAM, self.tree, self.other], capture_output=True, text=True, timeout=600,
                              check=False)
        self.assertEqual(done.returncode, 1, done.stderr + done.stdout)
        self.assertIn("swale run --backing", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
