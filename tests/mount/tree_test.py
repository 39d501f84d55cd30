#!/usr/bin/env python3
"""tree_test.py SWALE: programs that know nothing of Swale, in the tree of a job: tar, cp, rsync, find, make,
git, SQLite, fio, NumPy, and Python's pwrite and mmap; servers that are killed, recovered, refused.

What they leave must be what they leave in a plain directory, byte for byte, seen through the mount and, after
the end, in the backing directory.
"""
import glob
import json
import mmap
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock

from mounted import NO_MOUNTS, SWALE, listing, run

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
INODES = 1000  # made until one that was given back is given again
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


def run_failing(*words):
    """What the command says that must fail."""
    ended = subprocess.run(words, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    if ended.returncode == 0:
        raise AssertionError(f"{words} has succeeded")
    return ended.stderr


class Tree(unittest.TestCase):
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

    def same(self):
        self.assertEqual(listing(self.tree), listing(self.plain))

    def ends_with_all(self):
        seen = listing(self.tree)
        self.assertEqual(self.end(), (0, ""))
        self.assertFalse(os.path.ismount(self.tree))
        self.assertEqual(listing(self.tree), seen)
        self.assertNotIn(".swale", os.listdir(self.tree))
        return seen

    def test_a_refusal_can_be_traced(self):
        """The log of level debug has the call, the file and why; names that are not there are no refusals."""
        with unittest.mock.patch.dict(os.environ, SWALE_LOG="debug"):
            self.serve()
        file = os.path.join(self.tree, "file")
        with open(file, "wb"):
            pass
        for missing in ("missing", "file/beneath"):
            self.assertFalse(os.path.exists(os.path.join(self.tree, missing)))
        with self.assertRaises(PermissionError):
            os.link(file, os.path.join(self.tree, "other"))
        status, said = self.end()
        self.assertEqual(status, 0, said)
        self.assertRegex(said, "link of file: .*not permitted")
        self.assertNotIn("missing", said)

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
        self.ends_with_all()
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

    def memory_of(self, buffer):
        """Where the server has the logs of its memory, which a machine that loses power has no more."""
        found = os.stat(buffer)
        return f"/dev/shm/swale-fs-{os.geteuid()}-{found.st_dev:x}-{found.st_ino:x}"

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

    def test_info_verify_dump_and_drain_know_the_directories(self):
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


    def needs(self, program):
        if not shutil.which(program):
            self.skipTest(f"{program} is not installed")

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
