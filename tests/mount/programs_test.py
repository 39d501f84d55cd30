#!/usr/bin/env python3
"""programs_test.py SWALE [--long]: programs that know nothing of Swale, on a mount of the tiered write
buffer.

What they leave must be what they leave in a plain directory, byte for byte, seen through the mount and, after
an unmount that drains, in the backing directory: tar, git, SQLite with both journals, fio with four engines;
and locks. --long: 10,000 files, more of all, and stress-ng.
"""
import fcntl
import filecmp
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import unittest

from mounted import Mounted, SWALE, listing, run

LONG = "--long" in sys.argv
FILES = 10_000 if LONG else 300
COMMITS = 60 if LONG else 8
ROWS = 20_000 if LONG else 1_000
FIO_MIB = 64 if LONG else 4
GIT = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a",
       "GIT_COMMITTER_EMAIL": "a@b",
       "GIT_AUTHOR_DATE": "2026-01-01T00:00:00Z", "GIT_COMMITTER_DATE": "2026-01-01T00:00:00Z",
       "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}


def make_tree(root, files):
    """Small files in folders, of sizes around those of blocks, with links and one large file."""
    chance = random.Random(1)
    for i in range(files):
        folder = os.path.join(root, f"d{i % 37}", f"e{i % 5}")
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, f"f{i}"), "wb") as file:
            file.write(chance.randbytes(chance.choice((0, 1, 100, 4095, 4096, 4097, 20_000))))
        if i % 50 == 0:
            os.link(os.path.join(folder, f"f{i}"), os.path.join(folder, f"hard{i}"))
            os.symlink(f"f{i}", os.path.join(folder, f"soft{i}"))
    with open(os.path.join(root, "large"), "wb") as file:
        file.write(chance.randbytes(5_000_000))


# What a process finds that another one has locked: byte ranges of fcntl (of the process, and of the open
# file), flock.
LOCKER = """
import fcntl, os, struct, sys
file = os.open(sys.argv[1], os.O_RDWR)
for start in (50, 99, 100):
    for command in (fcntl.F_SETLK, 37):  # F_OFD_SETLK
        try:
            fcntl.fcntl(file, command, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, start, 10, 0))
            print(start, "locked")
        except OSError as refused:
            print(start, refused.errno)
asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0)
found = struct.unpack("hhqqi4x", fcntl.fcntl(file, fcntl.F_GETLK, asked))
print("held", found[0] == fcntl.F_WRLCK, found[2:4], found[4] == os.getppid())
try:
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError as refused:
    print("flock", refused.errno)
print("asked", flush=True)
fcntl.lockf(file, fcntl.LOCK_EX, 100, 0)  # waits
fcntl.flock(file, fcntl.LOCK_EX)
print("got both")
"""


class Programs(Mounted):
    def test_tar(self):
        make_tree(self.plain, FILES)
        archive = os.path.join(self.scratch, "tree.tar")
        run("tar", "-C", self.plain, "--sort=name", "-cf", archive, ".")
        run("tar", "-C", self.mounted, "-xf", archive)
        again = os.path.join(self.scratch, "again.tar")
        run("tar", "-C", self.mounted, "--sort=name", "-cf", again, ".")
        # Times of directories, too: tar sets them last.
        self.assertTrue(filecmp.cmp(archive, again, shallow=False))
        self.same(listing(self.plain))
        run("tar", "-C", self.backing, "--sort=name", "--exclude=./.swale-tier", "-cf", again, ".")
        # without ".", which the store's own folder has changed
        names = run("tar", "-tvf", archive).splitlines()[1:]
        self.assertEqual(run("tar", "-tvf", again).splitlines()[1:], names)

    def test_copies_of_a_sparse_file_are_sparse(self):
        def blocks(path):
            return os.stat(path).st_blocks * 512

        def make(path):
            with open(path, "wb") as file:
                for offset in (0, 5_000_000, 40_000_000):
                    file.seek(offset)
                    file.write(b"x" * 10_000)
                file.truncate(64_000_000)

        make(os.path.join(self.plain, "sparse"))
        source = os.path.join(self.mounted, "sparse")
        make(source)
        self.assertLess(blocks(source), 1_000_000)
        for target in (os.path.join(self.plain, "from-mount"), os.path.join(self.mounted, "within")):
            run("cp", source, target)
            self.assertLess(blocks(target), 1_000_000, target)
            self.assertTrue(filecmp.cmp(source, target, shallow=False))
        run("tar", "-C", self.mounted, "-Scf", os.path.join(self.scratch, "sparse.tar"), "sparse")
        self.assertLess(os.path.getsize(os.path.join(self.scratch, "sparse.tar")), 1_000_000)
        # Full as well: many small writes, and one over a hole.
        with open(source, "r+b") as file:
            for _ in range(64):
                file.write(b"y" * 1_000_000)
        self.assertGreaterEqual(blocks(source), 64_000_000)
        self.unmount()
        self.assertLess(blocks(os.path.join(self.backing, "within")), 1_000_000)
        self.mount()

    def test_git(self):
        self.needs("git")
        source = os.path.join(self.scratch, "source")
        make_tree(source, FILES // 10)
        environment = dict(os.environ, **GIT)

        def git(folder, *words):
            return run("git", "-C", folder, *words, env=environment)

        git(self.scratch, "init", "-q", "source")
        git(source, "add", "-A")
        git(source, "commit", "-qm", "first")
        logs = []
        for root in (self.plain, self.mounted):
            folder = os.path.join(root, "clone")
            git(root, "clone", "-q", "--no-local", source, "clone")
            for i in range(COMMITS):
                with open(os.path.join(folder, f"new{i % 5}"), "a", encoding="ascii") as file:
                    file.write(f"line {i}\n" * (i + 1))
                git(folder, "add", "-A")
                git(folder, "commit", "-qm", f"commit {i}")
            git(folder, "gc", "-q")
            git(folder, "fsck", "--strict")
            self.assertEqual(git(folder, "status", "--porcelain"), "")
            logs.append(git(folder, "log", "--format=%H %T"))
        self.assertEqual(logs[0], logs[1])
        self.unmount()
        folder = os.path.join(self.backing, "clone")
        git(folder, "fsck", "--strict")
        self.assertEqual(git(folder, "log", "--format=%H %T"), logs[0])
        self.assertEqual(git(folder, "status", "--porcelain"), "")

    def test_sqlite_with_both_journals(self):
        expected = {}
        for journal in ("delete", "wal"):
            for root in (self.plain, self.mounted):
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
        self.same(listing(self.plain))

    def test_locks_of_two_processes(self):
        said = []
        for root in (self.plain, self.mounted):
            path = os.path.join(root, "locked")
            with open(path, "wb") as file:
                file.write(b"x" * 1000)
                fcntl.lockf(file, fcntl.LOCK_EX, 100, 0)
                fcntl.flock(file, fcntl.LOCK_EX)
                other = subprocess.Popen([sys.executable, "-c", LOCKER, path], stdout=subprocess.PIPE,
                                         text=True)
                lines = list(iter(other.stdout.readline, "asked\n"))
                self.assertIsNone(other.poll())
            rest, _ = other.communicate(timeout=60)  # the close has unlocked
            said.append("".join(lines) + rest)
        self.assertEqual(said[0], said[1])
        self.assertIn("50 11\n", said[0])
        self.assertIn("100 locked\n", said[0])
        self.assertIn("held True (0, 100) True\n", said[0])
        self.assertIn("flock 11\ngot both\n", said[0])

    def fio(self, engine, *more):
        self.needs("fio")
        for name in ("seq", "random"):
            rw = "write" if name == "seq" else "randrw"
            run("fio", f"--name={name}", f"--directory={self.mounted}", f"--ioengine={engine}", f"--rw={rw}",
                "--bs=4k-128k", f"--size={FIO_MIB}M", "--verify=crc32c", "--do_verify=1", "--iodepth=8",
                "--fallocate=none", "--end_fsync=1", "--output-format=terse", *more, cwd=self.scratch)
        seen = listing(self.mounted)
        self.assertEqual(len(seen), 2)
        self.unmount()
        self.assertEqual(listing(self.backing), seen)

    def test_fio_psync(self):
        self.fio("psync")

    def test_fio_pvsync2(self):
        self.fio("pvsync2")

    def test_fio_libaio(self):
        self.fio("libaio", "--direct=1")

    def test_fio_io_uring(self):
        self.fio("io_uring")

    if LONG:
        def test_stress_ng(self):
            """All its stressors of file systems, which verify what they read."""
            self.needs("stress-ng")
            run("stress-ng", "--class", "filesystem", "--sequential", "2", "--timeout", "3s", "--verify",
                "--exclude", "binderfs", "--temp-path", self.mounted)
            self.assertEqual(listing(self.mounted), {})

    def test_stats_of_the_mount(self):
        with open(os.path.join(self.mounted, "f"), "wb") as file:
            file.write(b"x" * 1_000_000)
        stats = json.loads(run(SWALE, "tier", "stats", self.mounted, "--json"))
        stats = {name: counter["sum"] for name, counter in stats["stats"].items()}
        self.assertEqual((stats["write.bytes"], stats["ssd.bytes"]), (1_000_000, 1_000_000))
        # A busy machine may have flushed some of it by now.
        self.assertGreaterEqual(stats["log.used"] + stats["flush.bytes"], 1_000_000)
        text = run(SWALE, "tier", "stats", self.mounted)
        self.assertIn("100.0 % of it to the SSD", text)
        self.assertIn("threshold", text)
        lines = run(SWALE, "tier", "stats", self.mounted, "--live", "--every", "0.05", "--rounds",
                    "3").splitlines()
        self.assertEqual([line.startswith("SSD [") for line in lines], [True] * 3, lines)
        plain = subprocess.run([SWALE, "tier", "stats", self.plain], capture_output=True, text=True,
                               timeout=60)
        self.assertEqual(plain.returncode, 2)
        self.assertIn("is not the mountpoint", plain.stderr)

    def test_canary_a_wrong_byte_is_noticed(self):
        make_tree(self.plain, 20)
        shutil.copytree(self.plain, self.mounted, symlinks=True, dirs_exist_ok=True)
        with open(os.path.join(self.mounted, "large"), "r+b") as file:
            file.seek(4_000_000)
            byte = file.read(1)
            file.seek(4_000_000)
            file.write(bytes([byte[0] ^ 1]))
        with self.assertRaises(AssertionError):
            self.same(listing(self.plain))


unittest.main(argv=sys.argv[:1], verbosity=2)
