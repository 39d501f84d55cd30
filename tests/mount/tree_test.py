#!/usr/bin/env python3
"""tree_test.py SWALE: programs that know nothing of Swale, in the tree of a job: tar, cp, rsync, find, make,
git, SQLite, fio, NumPy, and Python's pwrite and mmap.

What they leave must be what they leave in a plain directory, byte for byte, seen through the mount and, after
the end, in the backing directory.
"""
import mmap
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import time
import unittest

from mounted import SWALE, listing, run
from tree_case import PATIENCE_S, TreeCase, make_tree

FILES = 150
COMMITS = 4
ROWS = 500
CALLS = 400
GIT = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a",
       "GIT_COMMITTER_EMAIL": "a@b",
       "GIT_AUTHOR_DATE": "2026-01-01T00:00:00Z", "GIT_COMMITTER_DATE": "2026-01-01T00:00:00Z",
       "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
FIO_MIB = 4
# Sums of all files, made when they are older than their files, and a sum of the sums.
MAKEFILE = """
FILES := $(filter-out %.sum,$(sort $(wildcard source/d*/e*/f*) source/new))
all: sums
sums: $(addsuffix .sum,$(FILES))
\tcat $^ > $@
%.sum: %
\tcksum < $< > $@
.PHONY: all
"""
# Four processes write one array through mappings of their own; another one is written by np.save.
NUMPY = """
import multiprocessing, os, sys
import numpy as np
os.chdir(sys.argv[1])
SHAPE = (400, 1003)

def fill(part):
    mapped = np.memmap("array", dtype="<f8", mode="r+", shape=SHAPE)
    mapped[part::4] = np.arange(SHAPE[1]) * (part + 1)
    mapped.flush()
    return float(mapped[part::4].sum())

if __name__ == "__main__":
    np.memmap("array", dtype="<f8", mode="w+", shape=SHAPE).flush()
    with multiprocessing.get_context("fork").Pool(4) as pool:
        print(pool.map(fill, range(4)))
    whole = np.fromfile("array", dtype="<f8").reshape(SHAPE)
    print(whole.sum(), whole[7, 900], os.path.getsize("array"))
    np.save("saved.npy", whole.T)
    print(np.load("saved.npy", mmap_mode="r")[1000].sum())
"""


def write_at_random(path, calls):
    """pwrite, ftruncate and a shared mapping, as fsx does; the same calls for the same path."""
    chance = random.Random(os.path.basename(path))
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    for i in range(calls):
        os.pwrite(file, chance.randbytes(chance.randrange(1, 30_000)), chance.randrange(300_000))
        if i % 20 == 7:
            os.ftruncate(file, chance.randrange(300_000))
        size = os.fstat(file).st_size
        if i % 20 == 13 and size > 5000:
            with mmap.mmap(file, size) as mapped:
                mapped[1000:1005] = b"mmaps"
                mapped.flush()
        if i % 100 == 50:
            os.fsync(file)
    os.close(file)


class Tree(TreeCase):
    def test_tar_cp_and_python(self):
        source = os.path.join(self.scratch, "source")
        make_tree(source, FILES)
        shutil.copytree(source, os.path.join(self.tree, "before"), symlinks=True)
        shutil.copytree(source, os.path.join(self.plain, "before"), symlinks=True)
        archive = os.path.join(self.scratch, "tree.tar")
        run("tar", "-C", source, "--sort=name", "-cf", archive, ".")
        self.serve("--memory", "32M")
        for root in (self.tree, self.plain):
            run("tar", "-C", root, "-xf", archive)
            run("cp", "-a", os.path.join(root, "before"), os.path.join(root, "copied"))
            shutil.rmtree(os.path.join(root, "before", "d3"))
            os.rename(os.path.join(root, "d1"), os.path.join(root, "copied", "moved"))
            write_at_random(os.path.join(root, "written"), CALLS)
            write_at_random(os.path.join(root, "copied", "large"), CALLS // 4)
        self.same()
        self.ends_with_all()
        self.same()
        # Modes and times of the archive's files have come along.
        again = os.path.join(self.scratch, "again.tar")
        run("tar", "-C", self.tree, "--sort=name", "-cf", again, "d2", "d4", "large")
        names = [line for line in run("tar", "-tvf", again).splitlines() if not line.startswith("d")]
        wanted = run("tar", "-C", source, "--sort=name", "-cf", archive, "d2", "d4", "large")
        wanted = [line for line in run("tar", "-tvf", archive).splitlines() if not line.startswith("d")]
        self.assertEqual(names, wanted)

    def test_copies_of_a_sparse_file_are_sparse_and_have_what_is_mapped(self):
        self.serve()
        file, copy = os.path.join(self.tree, "file"), os.path.join(self.tree, "copy")
        archive = os.path.join(self.scratch, "archive.tar")

        def copies():
            """What tar and cp, which look for holes, take of it."""
            run("tar", "-C", self.tree, "-Scf", archive, "file")
            run("cp", file, copy)
            with open(copy, "rb") as copied:
                return copied.read(), subprocess.check_output(["tar", "-xOf", archive])
        wanted = bytearray(8 << 20)
        with open(file, "w+b") as opened:
            opened.truncate(len(wanted))
            pages = mmap.mmap(opened.fileno(), 0)
        for offset in (1 << 20, 5 << 20):
            wanted[offset:offset + 6] = pages[offset:offset + 6] = b"mapped"
            self.assertEqual(copies(), (wanted, wanted))
        pages.close()
        with open(file, "r+b", buffering=0) as opened:
            opened.seek(3 << 20)
            opened.write(b"x" * 70_000)
        wanted[3 << 20:(3 << 20) + 70_000] = b"x" * 70_000
        end = time.monotonic() + PATIENCE_S  # the kernel tells of a close later
        while os.stat(file).st_blocks * 512 >= 1 << 20:
            self.assertLess(time.monotonic(), end, "the file is all data, though nobody has it open")
            time.sleep(0.01)

        def expect_sparse():
            for each in (file, copy):
                self.assertLess(os.stat(each).st_blocks * 512, 1 << 20, each)
        for _ in range(2):  # in logs, and on the backing
            self.assertEqual(copies(), (wanted, wanted))
            expect_sparse()
            self.assertLess(os.path.getsize(archive), 1 << 20)
            run(SWALE, "fs", "sync", self.tree)
        self.assertEqual(self.end(), (0, ""))
        expect_sparse()

    def test_git(self):
        source = os.path.join(self.scratch, "source")
        make_tree(source, FILES // 10)
        environment = dict(os.environ, **GIT)

        def git(folder, *words):
            return run("git", "-C", folder, *words, env=environment)

        git(self.scratch, "init", "-q", "source")
        git(source, "add", "-A")
        git(source, "commit", "-qm", "first")
        self.serve()
        logs = []
        for root in (self.plain, self.tree):
            folder = os.path.join(root, "clone")
            git(root, "clone", "-q", "--no-local", source, "clone")
            for i in range(COMMITS):
                with open(os.path.join(folder, f"new{i % 3}"), "a", encoding="ascii") as file:
                    file.write(f"line {i}\n" * (i + 1))
                git(folder, "add", "-A")
                git(folder, "commit", "-qm", f"commit {i}")
            git(folder, "gc", "-q")
            git(folder, "fsck", "--strict")
            self.assertEqual(git(folder, "status", "--porcelain"), "")
            logs.append(git(folder, "log", "--format=%H %T"))
        self.assertEqual(logs[0], logs[1])
        self.ends_with_all(r"^([^\n]* link of clone/.git/[^\n]*\n)?$")  # it tries, and then renames
        folder = os.path.join(self.tree, "clone")
        git(folder, "fsck", "--strict")
        self.assertEqual(git(folder, "log", "--format=%H %T"), logs[0])
        self.assertEqual(git(folder, "status", "--porcelain"), "")

    def test_sqlite_with_both_journals(self):
        self.serve()
        expected = {}
        for journal in ("delete", "wal"):
            for root in (self.plain, self.tree):
                database = sqlite3.connect(os.path.join(root, f"{journal}.db"))
                self.assertEqual(database.execute(f"pragma journal_mode={journal}").fetchone()[0], journal)
                database.execute("create table t (a integer primary key, b text)")
                chance = random.Random(2)
                for i in range(ROWS):
                    database.execute("insert or replace into t values (?, ?)",
                                     (chance.randrange(ROWS), "x" * chance.randrange(200)))
                    if i % 100 == 0:
                        database.commit()
                    if i % 333 == 0:
                        database.execute("delete from t where a % 7 = ?", (i % 7,))
                        database.rollback() if i % 2 else database.commit()
                database.commit()
                self.assertEqual(database.execute("pragma integrity_check").fetchone()[0], "ok")
                text = "\n".join(database.iterdump())
                database.close()
                self.assertEqual(expected.setdefault(journal, text), text)
        self.same()
        self.ends_with_all()

    # make and rsync go by them.
    def test_a_directorys_times_follow_its_entries(self):
        self.serve()

        def path(*names):
            return os.path.join(self.tree, *names)

        def times(name):
            found = os.stat(path(name))
            return found.st_mtime_ns, found.st_ctime_ns
        for name in ("d", "e"):
            os.mkdir(path(name))
        changes = [
            ("create", "d", lambda: open(path("d", "f"), "x").close()),
            ("mkdir", "d", lambda: os.mkdir(path("d", "sub"))),
            ("symlink", "d", lambda: os.symlink("f", path("d", "link"))),
            ("rename", "d", lambda: os.rename(path("d", "f"), path("d", "g"))),
            ("rename away", "d e", lambda: os.rename(path("d", "g"), path("e", "g"))),
            ("unlink", "d", lambda: os.unlink(path("d", "link"))),
            ("rmdir", "d", lambda: os.rmdir(path("d", "sub"))),
            ("sync", "", lambda: run(SWALE, "fs", "sync", self.tree)),
            ("create again", "e", lambda: open(path("e", "h"), "x").close()),
        ]
        for what, changed, change in changes:
            before = {name: times(name) for name in ("d", "e")}
            change()
            for name, was in before.items():
                now = times(name)
                if name in changed.split():
                    self.assertGreater(now[0], was[0], f"{what}: {name}")
                    self.assertGreater(now[1], was[1], f"{what}: {name}")
                else:
                    self.assertEqual(now[0], was[0], f"{what}: {name}")
        kept = times("d")[0]
        with open(path("e", "h"), "w") as file:
            file.write("no entry comes or goes")
        self.assertEqual(times("d")[0], kept)
        self.assertEqual(self.end(), (0, ""))
        self.assertEqual(os.stat(path("d")).st_mtime_ns, kept, "on the backing")
        print(f"{len(changes)} changes moved the times of their directories, and of no others")

    def test_fio_with_five_engines(self):
        self.needs("fio")
        self.serve("--memory", "32M")
        for engine, *more in (("psync",), ("pvsync2",), ("libaio", "--direct=1"), ("io_uring",), ("mmap",)):
            for name, kind in ((f"{engine}-seq", "write"), (f"{engine}-random", "randrw")):
                run("fio", f"--name={name}", f"--directory={self.tree}", f"--ioengine={engine}",
                    f"--rw={kind}", "--bs=4k-128k", f"--size={FIO_MIB}M", "--verify=crc32c", "--do_verify=1",
                    "--iodepth=8", "--fallocate=none", "--end_fsync=1", "--output-format=terse", *more,
                    cwd=self.scratch)
        self.assertEqual(len(self.ends_with_all()), 10)

    def test_rsync_find_and_make(self):
        for program in ("rsync", "find", "make"):
            self.needs(program)
        source = os.path.join(self.scratch, "source")
        make_tree(source, FILES // 5)
        self.serve()
        for changed in (False, True):
            if changed:  # a part of a file, a new one, one less
                with open(os.path.join(source, "large"), "r+b") as file:
                    file.seek(3_000_000)
                    file.write(b"changed")
                # rsync looks at seconds, and takes a change within one for none.
                later = os.stat(os.path.join(source, "large")).st_mtime + 2
                os.utime(os.path.join(source, "large"), (later, later))
                with open(os.path.join(source, "new"), "wb") as file:
                    file.write(b"new")
                os.unlink(os.path.join(source, "d3", "e3", "f3"))
            for root in (self.plain, self.tree):
                run("rsync", "-a", "--delete", "--inplace", "--no-whole-file", source, root)
                run("rsync", "-a", "--delete", source + "/", os.path.join(root, "by-rename"))
                self.assertEqual(run("rsync", "-aOnci", "--delete", source, root), "")
            self.same()
        for root in (self.plain, self.tree):
            with open(os.path.join(root, "Makefile"), "w", encoding="ascii") as file:
                file.write(MAKEFILE)
            run("make", "-j4", "-C", root)
            run("make", "-q", "-C", root)  # nothing is left to be made
            os.utime(os.path.join(root, "source", "new"))
            self.assertIn("cksum", run("make", "-C", root))
        self.same()
        found = [sorted(run("find", ".", "-type", "f", "-size", "+1", "!", "-newer", "Makefile", "-printf",
                            "%P %s %m %n %TY\\n", cwd=root).splitlines()) for root in (self.plain, self.tree)]
        self.assertGreater(len(found[0]), 5)
        self.assertEqual(found[0], found[1])
        self.ends_with_all()
        self.same()

    def test_numpy_and_processes_of_python(self):
        python = next((each for each in (sys.executable, "/usr/bin/python3") if subprocess.run(
            [each, "-c", "import numpy"], capture_output=True, check=False).returncode == 0), None)
        if python is None:
            self.skipTest("NumPy is not installed")
        self.serve()
        said = [run(python, "-c", NUMPY, root) for root in (self.plain, self.tree)]
        self.assertEqual(said[0], said[1])
        self.same()
        self.ends_with_all()
        self.same()

    def test_canary_a_wrong_byte_is_noticed(self):
        make_tree(self.plain, 20)
        self.serve("--at-end", "discard")
        shutil.copytree(self.plain, self.tree, symlinks=True, dirs_exist_ok=True)
        self.same()
        with open(os.path.join(self.tree, "large"), "r+b") as file:
            file.seek(4_000_000)
            byte = file.read(1)
            file.seek(4_000_000)
            file.write(bytes([byte[0] ^ 1]))
        with self.assertRaises(AssertionError):
            self.same()


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
