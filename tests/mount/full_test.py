#!/usr/bin/env python3
"""full_test.py SWALE: a tree whose backing is really full, by size, by inodes, or by a quota: it is a small
file system of its own. Programs hear of it when the backing says so, never before; the end of the job does;
nothing is lost, and `swale fs recover` brings it when there is space. So it is for programs that write
through the mount, by logs of libswale_preload.so, and to files that were opened past the kernel.
"""
import errno
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

from mounted import NO_MOUNTS, SWALE, run

PATIENCE_S = 300  # for what must happen, on a machine however slow
MIB = 1 << 20
SMALL, LARGE = 8, 64  # MiB of the backing: before and after space is made
BLOCK = 64 * 1024
# Writes the file, and goes on after each error; says which blocks the tree has taken, and the errors.
WRITER = """
import errno, json, os, subprocess, sys
path, blocks, block, swale = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o644))
file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
taken, errors = [], {}
for i in range(blocks):
    try:
        written = os.pwrite(file, bytes([i % 251 + 1]) * block, i * block)
    except OSError as failed:
        name = errno.errorcode[failed.errno]
        errors[name] = errors.get(name, 0) + 1
        continue
    assert written == block, f"{written} bytes of block {i}"
    taken.append(i)
for i in taken:
    assert os.pread(file, block, i * block) == bytes([i % 251 + 1]) * block, f"block {i} is lost"
os.close(file)
environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
stats = json.loads(subprocess.run([swale, "fs", "stat", "--json", os.path.dirname(path)], env=environment,
                                  capture_output=True, check=True).stdout)
print(json.dumps({"taken": taken, "errors": errors,
                  "past_kernel": [stats["program_writes"] > 0, stats["light_opens"] > 0]}))
"""

LIBRARY = os.path.join(os.path.dirname(SWALE), "libswale_preload.so")
# How programs write: what their environment has, and whether logs, and the server's opens, are used.
WAYS = {"mount": ({}, [False, False]), "log": ({"LD_PRELOAD": LIBRARY}, [True, False]),
        "light": ({"LD_PRELOAD": LIBRARY, "SWALE_FS_DESCRIPTORS": "light"}, [True, True])}


def content(blocks):
    """Of a file of these blocks; all others are holes."""
    bytes_of = bytearray((max(blocks) + 1) * BLOCK)
    for i in blocks:
        bytes_of[i * BLOCK:(i + 1) * BLOCK] = bytes([i % 251 + 1]) * BLOCK
    return bytes(bytes_of)


class Full(unittest.TestCase):
    def setUp(self):
        why = NO_MOUNTS or ("" if os.geteuid() == 0 else "root alone mounts a small file system for it")
        if why:
            self.skipTest(f"no FUSE mounts here: {why}")
        self.scratch = tempfile.mkdtemp(prefix="swale-full-", dir=os.getcwd())
        self.backing = os.path.join(self.scratch, "backing")
        self.buffer = os.path.join(self.scratch, "buffer")
        self.mounts = []
        os.mkdir(self.backing)

    def tearDown(self):
        if not hasattr(self, "scratch"):
            return
        self.unmount_small()
        shutil.rmtree(self.scratch)

    def unmount_small(self):
        for path in reversed(self.mounts):
            while os.path.ismount(path):  # a server that was killed has left one above it
                run("umount", "-l", path)
        self.mounts = []

    def small(self, path, options):
        os.makedirs(path, mode=0o700, exist_ok=True)
        run("mount", "-t", "tmpfs", "-o", options, "swale-full-test", path)
        self.mounts.append(path)

    def run_tree(self, *words, buffer=None):
        return subprocess.run([SWALE, "run", "--backing", self.backing, "--buffer", buffer or self.buffer,
                               "--memory", "32M", "--", *words],
                              capture_output=True, text=True, check=False, timeout=PATIENCE_S)

    def write(self, way, blocks, buffer=None):
        """How the run has ended, and what the writer has said."""
        environment, past_kernel = WAYS[way]
        ended = self.run_tree("env", *(f"{name}={value}" for name, value in environment.items()),
                              sys.executable, "-c", WRITER, os.path.join(self.backing, "f"), str(blocks),
                              str(BLOCK), SWALE, buffer=buffer)
        self.assertTrue(ended.stdout, ended.stderr)
        said = json.loads(ended.stdout)
        self.assertEqual(said.pop("past_kernel"), past_kernel)
        return ended, said

    def recover(self, buffer=None):
        return subprocess.run([SWALE, "fs", "recover", "--buffer", buffer or self.buffer, self.backing],
                              capture_output=True, text=True, check=False, timeout=PATIENCE_S)

    def read(self, name):
        with open(os.path.join(self.backing, name), "rb") as file:
            return file.read()

    def ends_full(self, ended, words):
        """The program has done what it wanted, and the tree could not bring it."""
        self.assertNotEqual(ended.returncode, 0, ended.stderr)
        self.assertIn(words, ended.stderr)
        self.assertIn("run swale fs recover", ended.stderr)

    def each_way(self, check):
        for way in WAYS:
            with self.subTest(way=way):
                try:
                    check(way)
                finally:
                    self.unmount_small()
                    shutil.rmtree(self.buffer, ignore_errors=True)

    def test_a_full_backing_fails_the_end_of_the_job_and_nothing_is_lost(self):
        self.each_way(self.a_full_backing)

    def a_full_backing(self, way):
        self.small(self.backing, f"size={SMALL}M")
        blocks = 2 * SMALL * MIB // BLOCK
        ended, said = self.write(way, blocks)
        self.ends_full(ended, "No space left")
        self.assertEqual(said, {"taken": list(range(blocks)), "errors": {}}, "the buffer had space")
        self.assertFalse(os.path.exists(os.path.join(self.backing, "f")), "half of it is there")
        again = self.recover()
        self.ends_full(again, "No space left")
        run("mount", "-o", f"remount,size={LARGE}M", self.backing)
        last = self.recover()
        self.assertEqual(last.returncode, 0, last.stderr)
        self.assertEqual(self.read("f"), content(said["taken"]))
        self.assertEqual(os.listdir(self.backing), ["f"])
        print(f"size, by {way}: {blocks} blocks of {BLOCK} bytes were kept while the backing was full")

    def test_writers_hear_of_a_full_backing_when_all_is_full_and_go_on_when_there_is_space(self):
        """Memory and buffer are small, too: the backing alone has space, until it says that it has none."""
        self.each_way(self.all_is_full)

    def all_is_full(self, way):
        buffer = os.path.join(self.scratch, "small")
        self.small(self.backing, f"size={SMALL}M")
        self.small(buffer, f"size={SMALL}M,mode=0700")
        blocks = LARGE * MIB // BLOCK
        ended, said = self.write(way, blocks, buffer=buffer)
        self.assertEqual(set(said["errors"]), {"ENOSPC"}, ended.stderr)
        self.assertGreaterEqual(len(said["taken"]) * BLOCK, SMALL * MIB, "the backing had space for more")
        run("mount", "-o", f"remount,size={2 * LARGE}M", self.backing)
        if ended.returncode != 0:
            self.ends_full(ended, "No space left")
            last = self.recover(buffer)
            self.assertEqual(last.returncode, 0, last.stderr)
        self.assertEqual(self.read("f"), content(said["taken"]))
        print(f"writers, by {way}: {len(said['taken'])} of {blocks} blocks were taken, {said['errors']}")

    def test_a_file_for_which_there_is_no_inode_fails_alone(self):
        self.small(self.backing, f"size={SMALL}M,nr_inodes=40")
        program = """
import os, sys
for i in range(100):
    with open(f"{sys.argv[1]}/f{i}", "w") as file: file.write(str(i))
"""
        ended = self.run_tree(sys.executable, "-c", program, self.backing)
        self.ends_full(ended, "No space left")
        there = [name for name in os.listdir(self.backing) if name != ".swale"]
        self.assertGreater(len(there), 10, "one file that finds no inode has held up others")
        self.assertLess(len(there), 40)
        run("mount", "-o", "remount,nr_inodes=400", self.backing)
        last = self.recover()
        self.assertEqual(last.returncode, 0, last.stderr)
        self.assertEqual({name: self.read(name) for name in os.listdir(self.backing)},
                         {f"f{i}": str(i).encode() for i in range(100)})
        print(f"inodes: {len(there)} of 100 files came before there were no more")

    def test_canary_without_a_limit_all_ends_well(self):
        self.small(self.backing, f"size={LARGE}M")
        blocks = 2 * SMALL * MIB // BLOCK
        ended, _ = self.write("log", blocks)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertEqual(self.read("f"), content(range(blocks)))
        self.assertNotEqual(self.read("f"), content(range(blocks - 1)))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
