#!/usr/bin/env python3
"""reads_test.py SWALE LIBRARY READ_STEPS: reads in the logs by libswale_preload.so.

What a program prints must be the same natively and in the tree of a job, and some reads must have needed no
call of the mount. Then what can go wrong: garbage in the maps, and a server that is killed.
"""
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

from mounted import NO_MOUNTS, SWALE, run

LIBRARY, STEPS = map(os.path.abspath, sys.argv[2:4])
PATIENCE_S = 300
MANY = 1024
# Reads of a table and of an array, which both libraries do by pread or by read at an offset.
READERS = """
import json, os, sqlite3, sys
with open("array", "wb", buffering=0) as array:
    for i in range(200):
        array.write(bytes([i]) * 1000)
with open("array", "rb", buffering=0) as array:
    for i in range(400):
        array.seek(i * 7919 % 190000)
        print(hash(array.read(5000)) and array.tell())
    print(sum(os.pread(array.fileno(), 100, i * 1000)[0] for i in range(200)))
base = sqlite3.connect("base")
base.execute("create table t (i integer primary key, text)")
with base:
    base.executemany("insert into t values (?, ?)", [(i, "row %d" % i * 9) for i in range(3000)])
base.close()
base = sqlite3.connect("base")
base.execute("pragma cache_size = 4")
for i in range(300):
    print(base.execute("select text from t where i = ?", (i * 7919 % 3000,)).fetchone())
print(base.execute("pragma integrity_check").fetchall())
base.close()
"""


class Reads(unittest.TestCase):
    def setUp(self):
        if NO_MOUNTS:
            self.skipTest(f"no FUSE mounts here: {NO_MOUNTS}; in a container, add --device /dev/fuse "
                          f"--cap-add SYS_ADMIN")
        self.scratch = tempfile.mkdtemp(prefix="swale-preload-", dir=os.getcwd())
        self.addCleanup(shutil.rmtree, self.scratch)
        self.plain, self.tree = (os.path.join(self.scratch, name) for name in ("plain", "tree"))
        os.mkdir(self.plain)
        os.mkdir(self.tree)
        self.server = subprocess.Popen([SWALE, "serve", self.tree], stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE, text=True)
        self.addCleanup(self.unmount)
        self.assertIn("is mounted", self.server.stdout.readline())

    def end(self, how):
        self.server.send_signal(how)
        _, said = self.server.communicate(timeout=PATIENCE_S)
        return self.server.returncode, said

    def unmount(self):
        if self.server.poll() is None:
            self.end(signal.SIGKILL)
        subprocess.run(["fusermount3", "-u", "-z", self.tree], stderr=subprocess.DEVNULL, check=False)

    def tearDown(self):
        if self.server.poll() is None:
            self.assertEqual(self.end(signal.SIGTERM), (0, ""))

    def outcome(self, folder, words, library):
        environment = dict(os.environ, LC_ALL="C", PYTHONHASHSEED="0")
        if library:
            environment["LD_PRELOAD"] = library
        return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True,
                              timeout=PATIENCE_S, check=False)

    def same(self, what, *numbers, at_least=1):
        """Returns how many reads were in logs."""
        words = [STEPS, what, ".", *map(str, numbers)]
        native, ours = self.outcome(self.plain, words, None), self.outcome(self.tree, words, LIBRARY)
        self.assertEqual(native.returncode, 0, native.stderr)
        self.assertEqual((ours.returncode, ours.stdout), (0, native.stdout), ours.stderr)
        in_logs = int(ours.stderr.splitlines()[-1])
        print(f"{what} {numbers}: {in_logs} reads in logs")
        self.assertGreaterEqual(in_logs, at_least)
        return in_logs

    def test_beside_a_process_that_writes(self):
        for seed in range(4):
            self.same("writer", 150, seed, at_least=300)

    def test_beside_a_process_that_has_mapped_the_file(self):
        self.same("mapping", 6, at_least=50)

    def test_a_mapping_beside_a_process_that_writes_by_its_log(self):
        self.same("watch", 300, at_least=0)

    def test_descriptions_that_another_process_comes_to(self):
        self.same("pass", at_least=30)

    def test_many_files(self):
        self.same("many", MANY, at_least=MANY)

    def test_real_programs(self):
        words = [sys.executable, "-c", READERS]
        native, ours = self.outcome(self.plain, words, None), self.outcome(self.tree, words, LIBRARY)
        self.assertEqual(native.returncode, 0, native.stderr)
        self.assertEqual((ours.returncode, ours.stdout), (0, native.stdout), ours.stderr)

    # ---- faults ----

    def begin_steady(self):
        program = subprocess.Popen([STEPS, "steady", "."], cwd=self.tree, text=True, stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   env=dict(os.environ, LD_PRELOAD=LIBRARY))
        self.addCleanup(program.kill)
        self.assertEqual(program.stdout.readline(), "begun\n")
        return program

    def end_steady(self, program):
        said, errors = program.communicate("", timeout=PATIENCE_S)
        self.assertEqual(program.returncode, 0, said + errors)
        return said, int(errors.splitlines()[-1])

    def maps_of(self, program):
        with open(f"/proc/{program.pid}/maps", encoding="utf-8") as maps:
            return next(line.split()[-1] for line in maps if line.endswith("/maps\n"))

    def test_garbage_in_the_maps(self):
        """Reads stay right, by the mount where need be; the server gives a new map when it is asked."""
        program = self.begin_steady()
        path = self.maps_of(program)
        draw = random.Random(5)
        points = 0
        with open(path, "r+b", buffering=0) as maps:
            used = os.fstat(maps.fileno()).st_blocks * 512
            for _ in range(3000):
                maps.seek(draw.randrange(4096 // 8, used // 8) * 8)
                maps.write(draw.choice((draw.randbytes(8), bytes(8), b"\xff" * 8, draw.randbytes(3))))
                points += 1
        said, in_logs = self.end_steady(program)
        print(f"{points} places with garbage; {in_logs} reads in logs")
        self.assertEqual(said, "0 wrong\n")
        self.assertGreater(in_logs, 0)

    def test_the_server_is_killed(self):
        """A map is true until somebody writes; then the dead mount says so."""
        program = self.begin_steady()
        self.end(signal.SIGKILL)
        said, in_logs = self.end_steady(program)
        self.assertIn(said, ("0 wrong\n", "ENOTCONN\n0 wrong\n"))
        self.assertGreater(in_logs, 100)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]], verbosity=2)
