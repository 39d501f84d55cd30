#!/usr/bin/env python3
"""faults_test.py SWALE LIBRARY CANARY SMALL KILLED_STEPS [--long]: programs with libswale_preload.so in the
tree of a job when something fails: they are killed at each step, or their server is; they open more than the
library knows; the loader ignores the library.

CANARY is a library whose table lacks fork and execl, SMALL one that has space for SMALL_END descriptors.
--long: all steps, and 132,000 open files.
"""
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

from mounted import NO_MOUNTS, SWALE, listing, run

LIBRARY, CANARY, SMALL, KILLED_STEPS = map(os.path.abspath, sys.argv[2:6])
LONG = "--long" in sys.argv
PATIENCE_S = 1800
OTHER_USER = 65533
TABLE_END = 131_072  # kDescriptorsMax in src/preload/descriptions.h
SMALL_END = 512
NO_TRACING = 77

# A program of a server that dies. It says what its calls give; of its writes how many have returned.
SURVIVOR = """
import errno, os, sys
def tell(what, call):
    try:
        call()
        print(what, "good", flush=True)
    except OSError as error:
        print(what, errno.errorcode[error.errno], flush=True)
def write_until_it_fails(file, count):
    for i in range(count):
        try:
            if os.write(file, b"%07d\\n" % i * 512) != 4096: return i
        except OSError as error:
            return i, errno.errorcode[error.errno]
    return i + 1, "good"
tree, lies = sys.argv[1], int(sys.argv[2])
os.chdir(tree)
first = os.open("first", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
before, _ = write_until_it_fails(first, 100)
print(before, flush=True)
sys.stdin.readline()
count, how = write_until_it_fails(first, 1_000_000)
print(count + lies, flush=True)
print("write", how, flush=True)
tell("write again", lambda: os.write(first, b"x"))
tell("pwrite", lambda: os.pwrite(first, b"x", 0))
tell("read", lambda: os.read(first, 1))
tell("stat", lambda: os.fstat(first))
tell("truncate", lambda: os.ftruncate(first, 0))
tell("commit", lambda: os.fsync(first))
tell("open", lambda: os.open("second", os.O_RDWR | os.O_CREAT))
tell("names", lambda: os.listdir("."))
tell("close", lambda: os.close(first))
print("ended", flush=True)
if not sys.stdin.readline(): sys.exit()
os.chdir(tree)
second = os.open("second", os.O_RDWR | os.O_CREAT)
print(*write_until_it_fails(second, 300), flush=True)
os.close(second)
"""

# A program that writes little, so that its log has space until a new server takes it.
STEADY = """
import errno, os, select, sys
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
count = 0
try:
    while True:
        os.write(file, b"%07d\\n" % count)
        count += 1
        if count == 100: print("begun", flush=True)
        if count > 100: select.select([], [], [], 0.0002)
except OSError as error:
    print(count, errno.errorcode[error.errno], flush=True)
"""

# Each descriptor has an offset of its own; the last ones are above the table's end. What they have opened is
# written through the mount, whatever number it is written by; a file that they have not goes to the log.
MANY = """
import fcntl, os, sys
count, table_end = map(int, sys.argv[1:])
files = 200
alone = os.open("alone", os.O_WRONLY | os.O_CREAT)
opened = [os.open(f"many{i % files}", os.O_RDWR | os.O_CREAT) for i in range(count)]
for i, each in enumerate(opened):
    os.lseek(each, i // files * 16, os.SEEK_SET)
for i, each in enumerate(opened):
    os.write(each, b"%07d\\n" % i)
for i, each in enumerate(opened):
    os.write(each, b"%07d\\n" % (i + 1))
    os.write(alone, b"%07d\\n" % i)
wrong = sum(os.lseek(each, 0, os.SEEK_CUR) != i // files * 16 + 16 for i, each in enumerate(opened))
above = fcntl.fcntl(opened[0], fcntl.F_DUPFD, table_end + 7)
for i in range(100):
    os.write((opened[0], above)[i % 2], b"turn%3d\\n" % i)
print(wrong, above >= table_end, os.lseek(opened[0], 0, os.SEEK_CUR), os.lseek(above, 0, os.SEEK_CUR))
os.close(opened[0])
os.write(above, b"last")
for each in [above, *opened[1:]]:
    os.close(each)
"""


class Faults(unittest.TestCase):
    def setUp(self):
        if NO_MOUNTS:
            self.skipTest(f"no FUSE mounts here: {NO_MOUNTS}; in a container, add --device /dev/fuse "
                          f"--cap-add SYS_ADMIN")
        # /tmp may be without extended attributes
        self.scratch = tempfile.mkdtemp(prefix="swale-preload-", dir=os.getcwd())
        self.addCleanup(shutil.rmtree, self.scratch)
        self.tree = os.path.join(self.scratch, "tree")
        os.mkdir(self.tree)
        self.addCleanup(self.unmount)
        self.server = None
        self.serve()

    def tearDown(self):
        if self.server is not None:
            self.assertEqual(self.end(signal.SIGTERM), (0, ""))

    def serve(self):
        self.server = subprocess.Popen([SWALE, "serve", self.tree], stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE, text=True)
        self.assertIn("is mounted", self.server.stdout.readline())

    def end(self, how):
        self.server.send_signal(how)
        _, said = self.server.communicate(timeout=PATIENCE_S)
        status, self.server = self.server.returncode, None
        return status, said

    def unmount(self):
        if self.server is not None:
            self.end(signal.SIGKILL)
        subprocess.run(["fusermount3", "-u", "-z", self.tree], stderr=subprocess.DEVNULL, check=False)

    def stats(self):
        return json.loads(run(SWALE, "fs", "stat", "--json", self.tree))

    def program_writes(self):
        return self.stats()["program_writes"]

    # ---- killed at each step ----

    def killed(self, stride, *more, library=LIBRARY, **variables):
        done = subprocess.run([KILLED_STEPS, self.tree, str(stride), *more], capture_output=True, text=True,
                              env=dict(os.environ, LD_PRELOAD=library, **variables), timeout=PATIENCE_S,
                              check=False)
        if done.returncode == NO_TRACING:
            self.skipTest("this machine does not let a process trace its children")
        self.assertIn(done.returncode, (0, 1), done.stderr)
        return done.returncode, done.stdout

    def test_a_process_is_killed_at_each_step(self):
        self.killed_everywhere(1 if LONG else 37)

    def test_a_process_whose_files_pass_the_kernel_is_killed_at_each_step(self):
        self.killed_everywhere(3 if LONG else 97, SWALE_FS_DESCRIPTORS="light")

    def killed_everywhere(self, stride, **variables):
        status, said = self.killed(stride, **variables)
        print(said)
        self.assertEqual(status, 0, said)
        self.assertGreater(self.program_writes(), 0)
        self.assertEqual(self.stats()["light_creates"] > 0, "SWALE_FS_DESCRIPTORS" in variables)
        seen = listing(self.tree)
        self.assertEqual(self.end(signal.SIGTERM), (0, ""))
        self.assertEqual(listing(self.tree), seen)  # the same in the backing

    def test_canary_a_write_that_returns_too_early(self):
        status, said = self.killed(149, "too-early")
        self.assertEqual(status, 1)
        self.assertIn("instructions of write: other bytes", said)

    def test_canary_a_fork_that_keeps_the_short_cut(self):
        status, said = self.killed(149, library=CANARY)
        self.assertEqual(status, 1)
        self.assertIn("instructions of write after the fork: other bytes", said)
        self.assertNotIn("instructions of write: other bytes", said)

    # ---- the server dies ----

    def survive(self, library, lies=0):
        """What a program says of its calls after its server's death, and how many it has made by then."""
        environment = dict(os.environ, **({"LD_PRELOAD": library} if library else {}))
        with subprocess.Popen([sys.executable, "-c", SURVIVOR, self.tree, str(lies)], env=environment,
                              text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
            self.addCleanup(program.kill)
            before = int(program.stdout.readline())
            self.assertEqual(before, 100)
            by_log = self.program_writes() > 0
            self.assertEqual(by_log, library is not None)
            self.end(signal.SIGKILL)
            program.stdin.write("\n")
            program.stdin.flush()
            after = int(program.stdout.readline())
            said = list(iter(program.stdout.readline, "ended\n"))
            run("fusermount3", "-u", "-z", self.tree)
            self.serve()
            self.holds("first", before, after)
            program.stdin.write("\n")
            program.stdin.flush()
            self.assertEqual(program.stdout.readline(), "300 good\n")
            self.assertEqual(program.wait(timeout=PATIENCE_S), 0)
        self.holds("second", 300)
        self.assertEqual(self.program_writes() > 0, library is not None)
        for name in ("first", "second"):
            os.remove(os.path.join(self.tree, name))
        return said

    def holds(self, name, *counts):
        """The writes that have returned, and nothing else."""
        with open(os.path.join(self.tree, name), "rb") as file:
            content = file.read()
        expected = b"".join(b"%07d\n" % i * 512 for count in counts for i in range(count))
        self.assertEqual(len(content), len(expected))
        self.assertTrue(content == expected, name)

    def test_the_server_dies_under_a_program(self):
        by_mount = self.survive(None)
        self.assertEqual(by_mount[0], "write ENOTCONN\n")
        self.end(signal.SIGTERM)
        self.serve()
        self.assertEqual(self.survive(LIBRARY), by_mount)

    def test_the_server_is_started_anew_while_a_program_writes(self):
        """A write to a log that the new server has already read must not return as if it were there."""
        counts = []
        for name in ("one", "two", "three"):
            path = os.path.join(self.tree, name)
            with subprocess.Popen([sys.executable, "-c", STEADY, path], stdout=subprocess.PIPE, text=True,
                                  env=dict(os.environ, LD_PRELOAD=LIBRARY)) as program:
                self.addCleanup(program.kill)
                self.assertEqual(program.stdout.readline(), "begun\n")
                self.assertGreater(self.program_writes(), 0)
                self.end(signal.SIGKILL)
                run("fusermount3", "-u", "-z", self.tree)
                self.serve()
                count, how = program.stdout.readline().split()
            self.assertEqual(how, "ENOTCONN")
            with open(path, "rb") as file:
                content = file.read()
            records = content.split(b"\n")[:-1]
            self.assertEqual(records, [b"%07d" % i for i in range(len(records))])
            # The one that has failed may be there, too.
            self.assertIn(len(records), (int(count), int(count) + 1))
            counts.append(int(count))
        print(f"{counts} writes")

    def test_canary_a_program_that_says_more_than_has_returned(self):
        with self.assertRaises(AssertionError):
            self.survive(LIBRARY, lies=1)

    # ---- more than the table has ----

    def many(self, library, count, table_end):
        limit = max(count, table_end) + 1000
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        plain = os.path.join(self.scratch, "plain")
        os.mkdir(plain)
        words = ["sh", "-c", f"ulimit -n {limit} && exec \"$@\"", "many", sys.executable, "-c", MANY,
                 str(count), str(table_end)]
        if limit > most and subprocess.run([*words[:3], "many", "true"], stderr=subprocess.DEVNULL,
                                           check=False).returncode != 0:
            self.skipTest(f"this user may have {most} open files, not {limit}")
        outcomes = []
        for folder, preload in ((plain, {}), (self.tree, {"LD_PRELOAD": library})):
            done = subprocess.run(words, cwd=folder, text=True, capture_output=True, timeout=PATIENCE_S,
                                  check=False, env=dict(os.environ, **preload))
            outcomes.append((done.returncode, done.stdout, done.stderr))
        self.assertEqual(outcomes[0], (0, "0 True 816 816\n", ""))
        self.assertEqual(outcomes[1], outcomes[0])
        self.assertEqual(listing(self.tree), listing(plain))
        self.assertGreater(self.program_writes(), 0)

    def test_descriptors_above_the_table_are_the_mounts(self):
        self.many(SMALL, 3 * SMALL_END, SMALL_END)

    if LONG:
        def test_more_than_a_hundred_thousand_open_files(self):
            self.many(LIBRARY, TABLE_END + 500, TABLE_END)

    # ---- the loader ignores the library ----

    def test_a_program_of_another_user_is_not_preloaded(self):
        """It works as it does without the library: on what it has inherited, through the mount."""
        if os.geteuid() != 0:
            self.skipTest("only root can make a set-user-ID program of another user")
        with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # where the other user may go
            os.chmod(folder, 0o755)
            program = shutil.copy(shutil.which("dd"), folder)
            for owner, mode, loaded in ((0, 0o755, True), (OTHER_USER, 0o4755, False)):
                os.chown(program, owner, owner)
                os.chmod(program, mode)
                out = os.path.join(self.tree, f"of-{owner}")
                for how in ("wb", "ab"):
                    with open(out, how) as file:
                        subprocess.run([program, "if=/proc/self/maps", "status=none"], stdout=file,
                                       check=True, env=dict(os.environ, LD_PRELOAD=LIBRARY))
                with open(out, encoding="ascii") as file:
                    content = file.read()
                self.assertEqual("libswale_preload" in content, loaded)
                self.assertEqual(content.count("[stack]"), 2)
                refused = [subprocess.run([program, f"if={out}"], capture_output=True, check=False,
                                          env=dict(os.environ, **library)).returncode
                           for library in ({}, {"LD_PRELOAD": LIBRARY})]
                self.assertEqual(*refused)
                self.assertEqual(refused[0] == 0, loaded)  # the kernel keeps it off another user's mount


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]], verbosity=2)
