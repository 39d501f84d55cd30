#!/usr/bin/env python3
"""synchronous_test.py SWALE LIBSWALE PRELOAD: writes of O_SYNC, O_DSYNC and RWF_DSYNC to a job's tree, and
other changes of files that are open so, by programs that neither sync nor close: when they have returned,
other nodes see them, and a node that loses power keeps them. (nodes_test.py says how the nodes are of one
machine.)
"""
import json
import os
import subprocess
import sys
import unittest

from nodes_test import NodesCase

PRELOAD = os.path.abspath(sys.argv[3])
PIECE, PIECES = 100, 40  # more writes than it takes the preload to ask for a log
WAYS = {"dsync": (os.O_DSYNC, 0), "sync": (os.O_SYNC, 0), "appends": (os.O_SYNC | os.O_APPEND, 0),
        "rwf-dsync": (0, os.RWF_DSYNC), "rwf-sync": (0, os.RWF_SYNC)}
CHANGES = ("copy", "hole", "cut", "grow")
CHANGED_BY = {"dsync": os.O_DSYNC, "sync": os.O_SYNC}
PLAIN = (0, 0)
# The last of a file's pieces is written with the flags, and the file stays open.
# A change: all were written before by another descriptor, and the file is open with the flags.
WRITER = """
import ctypes, json, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def punch(file, offset, length):
    libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    if libc.fallocate(file, 1 | 2, offset, length): raise OSError(ctypes.get_errno(), "fallocate")
for line in sys.stdin:
    path, flags, how, piece, pieces, change = json.loads(line)
    file = os.open(path, os.O_RDWR | os.O_CREAT | (0 if change else flags), 0o644)
    for i in range(pieces):
        os.pwritev(file, [bytes([i]) * piece], i * piece, how if i + 1 == pieces else 0)
    if change:
        by = os.open(path, os.O_RDWR | flags)
        if change == "copy": os.copy_file_range(by, by, piece, offset_src=piece, offset_dst=3 * piece)
        if change == "hole": punch(by, piece, piece)
        if change == "cut": os.ftruncate(by, 3 * piece)
        if change == "grow": os.ftruncate(by, (pieces + 1) * piece)
    print("written", flush=True)
"""


def whole(change=""):
    pieces = [bytes([i]) * PIECE for i in range(PIECES)]
    if change == "copy":
        pieces[3] = pieces[1]
    if change == "hole":
        pieces[1] = bytes(PIECE)
    if change == "grow":
        pieces.append(bytes(PIECE))
    return b"".join(pieces[:3] if change == "cut" else pieces)


class Synchronous(NodesCase):
    def writer(self, preload):
        environment = dict(os.environ, **({"LD_PRELOAD": PRELOAD} if preload else {}))
        writer = subprocess.Popen([sys.executable, "-c", WRITER], env=environment, stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, text=True)
        self.started.append(writer)
        return writer

    def write(self, writer, path, how, change=""):
        writer.stdin.write(json.dumps((path, *how, PIECE, PIECES, change)) + "\n")
        writer.stdin.flush()
        self.assertEqual(writer.stdout.readline(), "written\n")

    def content(self, *names):
        """Of a file; nothing, if it is not there."""
        path = os.path.join(*names)
        if not os.path.exists(path):
            return None
        with open(path, "rb") as file:
            return file.read()

    def test_another_node_sees_them(self):
        servers = self.serve()
        for preload in (False, True):
            writers = [self.writer(preload) for _ in range(2)]
            for node, writer in enumerate(writers):
                for way, how in WAYS.items():
                    with self.subTest(way=way, node=node, preload=preload):
                        name = f"{way}-{node}-{preload}"
                        self.write(writer, self.at(node, name), how)
                        self.assertEqual(self.content(self.at(1 - node, name)), whole())
                for change in CHANGES:
                    for way, flags in CHANGED_BY.items():
                        with self.subTest(change=change, way=way, node=node, preload=preload):
                            name = f"{change}-{way}-{node}-{preload}"
                            self.write(writer, self.at(node, name), (flags, 0), change)
                            self.assertEqual(self.content(self.at(1 - node, name)), whole(change))
                # The canary: what is neither synchronous nor committed is not seen.
                name = f"plain-{node}-{preload}"
                self.write(writer, self.at(node, name), PLAIN)
                self.assertEqual(self.content(self.at(1 - node, name)), b"", "this test sees nothing")
        self.end(servers)

    def end(self, servers):
        for writer in self.started:
            if writer not in servers:
                writer.communicate()
        for server in servers:
            server.terminate()
        for status, said in self.ends(servers):
            self.assertEqual((status, said), (0, ""))

    def are_kept_without_memory(self, nodes):
        servers = self.serve("--at-end", "keep", nodes=nodes)
        writers = [self.writer(preload) for preload in (False, True)]
        for number, writer in enumerate(writers):
            for way, how in WAYS.items():
                self.write(writer, self.at(0, f"{way}-{number}"), how)
            for change in CHANGES:
                for way, flags in CHANGED_BY.items():
                    self.write(writer, self.at(0, f"{change}-{way}-{number}"), (flags, 0), change)
        self.write(writers[0], self.at(0, "plain"), PLAIN)
        for change in CHANGES:
            self.write(writers[0], self.at(0, f"plain-{change}"), PLAIN, change)
        self.kill_all()
        self.ends(servers)
        for node in range(nodes):
            self.forget_memory_of(f"buffer-{node}")
        recover = [self.start(rank, nodes, rank, "fs", "recover", "--buffer", "%b", self.backing)
                   for rank in range(nodes)]
        for status, said in self.ends(recover):
            self.assertEqual(status, 0, said)
        for number in range(len(writers)):
            for way in WAYS:
                with self.subTest(way=way, preload=bool(number)):
                    self.assertEqual(self.content(self.backing, f"{way}-{number}"), whole())
            for change in CHANGES:
                for way in CHANGED_BY:
                    with self.subTest(change=change, way=way, preload=bool(number)):
                        name = f"{change}-{way}-{number}"
                        self.assertEqual(self.content(self.backing, name), whole(change))
        self.assertNotEqual(self.content(self.backing, "plain"), whole(), "a canary: nothing is lost")
        for change in CHANGES:
            self.assertNotEqual(self.content(self.backing, f"plain-{change}"), whole(change),
                                f"a canary: {change}: nothing is lost")

    def test_one_node_keeps_them_without_its_memory(self):
        self.are_kept_without_memory(1)

    def test_two_nodes_keep_them_without_their_memory(self):
        self.are_kept_without_memory(2)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
