#!/usr/bin/env python3
"""locks_test.py SWALE LIBSWALE: locks (fcntl, OFD, flock) of processes on two nodes of a job's tree: real
mounts, real programs (nodes_test.py says how the nodes are of one machine).
"""
import errno
import os
import select
import signal
import sqlite3
import subprocess
import sys
import unittest

from nodes_test import PATIENCE_S, PROGRAM, NodesCase, wait_until

COUNTS = 20  # of each process and kind
COUNTER = PROGRAM + """
import fcntl, struct
def posix(file, how): fcntl.lockf(file, how, 8, 0)
def flock(file, how): fcntl.flock(file, how)
def ofd(file, how):
    kind = fcntl.F_UNLCK if how == fcntl.LOCK_UN else fcntl.F_WRLCK
    fcntl.fcntl(file, fcntl.F_OFD_SETLKW, struct.pack("hhqqi4x", kind, os.SEEK_SET, 0, 0, 0))
for lock in (posix, flock, ofd):
    file = os.open(f"{root}/{lock.__name__}", os.O_RDWR | os.O_CREAT, 0o644)
    for _ in range(%d):
        lock(file, fcntl.LOCK_EX)
        count = int(os.pread(file, 8, 0) or b"0")
        os.pwrite(file, b"%%08d" %% (count + 1), 0)
        lock(file, fcntl.LOCK_UN)
    os.close(file)
""" % COUNTS
# SQLite locks ranges by fcntl, made stronger and weaker, and reads what others have written under theirs.
DATABASE = PROGRAM + """
import sqlite3
base = sqlite3.connect(f"{root}/base", timeout=%d, isolation_level=None)
base.execute("PRAGMA synchronous=OFF")  # else each one brings the file to the backing
base.execute("CREATE TABLE IF NOT EXISTS counts (rank INTEGER, number INTEGER)")
for _ in range(%d):
    base.execute("BEGIN IMMEDIATE")
    (last,) = base.execute("SELECT coalesce(max(number), 0) FROM counts").fetchone()
    base.execute("INSERT INTO counts VALUES (?, ?)", (rank, last + 1))
    base.execute("COMMIT")
base.close()
""" % (PATIENCE_S, COUNTS)
# Does what it is told, a line each, and says what has come of it.
ACTOR = """
import errno, fcntl, os, signal, struct, sys
READ, WRITE, UNLOCK = fcntl.F_RDLCK, fcntl.F_WRLCK, fcntl.F_UNLCK
def wake(*_): raise OSError(errno.EINTR, "")
signal.signal(signal.SIGUSR1, wake)
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o644)
def record(kind, begin, length): return struct.pack("hhqqi4x", kind, os.SEEK_SET, begin, length, 0)
def posix(kind, begin=0, length=0, waits=True):
    fcntl.fcntl(file, fcntl.F_SETLKW if waits else fcntl.F_SETLK, record(kind, begin, length))
def ofd(kind, begin=0, length=0, waits=True):
    fcntl.fcntl(file, fcntl.F_OFD_SETLKW if waits else fcntl.F_OFD_SETLK, record(kind, begin, length))
def get(begin=0, length=0):
    kind, _, start, size, pid = struct.unpack("hhqqi4x", fcntl.fcntl(file, fcntl.F_GETLK,
                                                                   record(WRITE, begin, length)))
    return {READ: "read", WRITE: "write", UNLOCK: "free"}[kind], start, size, pid
def flock(how): fcntl.flock(file, how)
def close_another(): os.close(os.open(sys.argv[1], os.O_RDONLY))
print("ready", flush=True)
for line in sys.stdin:
    try:
        print("begins", flush=True)
        print(eval(line), flush=True)
    except OSError as failed:
        print(errno.errorcode[failed.errno], flush=True)
"""


class Locks(NodesCase):
    def actor(self, node, name):
        actor = subprocess.Popen([sys.executable, "-c", ACTOR, self.at(node, name)], stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, bufsize=0)  # select() sees what is unread
        self.started.append(actor)
        self.assertEqual(self.said(actor), "ready")
        return actor

    def begin(self, actor, call):
        actor.stdin.write(call.encode() + b"\n")
        self.assertEqual(self.said(actor), "begins")

    def said(self, actor):
        return actor.stdout.readline().decode().strip()

    def does(self, actor, call):
        self.begin(actor, call)
        return self.said(actor)

    def begin_to_wait(self, actor, call):
        """Returns when its call sleeps."""
        self.begin(actor, call)

        def sleeps():
            with open(f"/proc/{actor.pid}/stat", encoding="ascii") as stat:
                return stat.read().rsplit(")", 1)[1].split()[0] == "S"
        wait_until("it sleeps", sleeps)

    def end(self, *servers):
        for server in servers:
            server.send_signal(signal.SIGTERM)
        for status, said in self.ends(servers):
            self.assertEqual(status, 0, said)

    def test_counts_under_locks_of_two_nodes_are_exact(self):
        for status, said in self.ends(self.launch(COUNTER)):
            self.assertEqual(status, 0, said)
        for name in ("posix", "flock", "ofd"):
            with open(os.path.join(self.backing, name), encoding="ascii") as file:
                self.assertEqual(int(file.read()), 4 * COUNTS, name)

    def test_a_database_that_processes_of_two_nodes_write(self):
        for status, said in self.ends(self.launch(DATABASE)):
            self.assertEqual(status, 0, said)
        base = sqlite3.connect(os.path.join(self.backing, "base"))
        self.assertEqual(base.execute("PRAGMA integrity_check").fetchone(), ("ok",))
        rows = base.execute("SELECT number FROM counts ORDER BY number").fetchall()
        self.assertEqual(rows, [(number,) for number in range(1, 4 * COUNTS + 1)])
        base.close()

    def test_locks_exclude_processes_of_other_nodes_wait_and_end_with_their_process(self):
        servers = self.serve()
        here, there, third = self.actor(0, "f"), self.actor(1, "f"), self.actor(1, "f")
        self.assertEqual(self.does(here, "posix(WRITE, 10, 20)"), "None")
        self.assertEqual(self.does(there, "posix(WRITE, 20, 1, False)"), "EAGAIN")
        self.assertEqual(self.does(there, "posix(WRITE, 30, 1, False)"), "None")
        self.assertEqual(self.does(there, "get(0, 15)"), "('write', 10, 20, 0)", "a process of another node")
        self.assertEqual(self.does(third, "get(30, 1)"), f"('write', 30, 1, {there.pid})")
        self.assertEqual(self.does(third, "ofd(READ, 12, 1, False)"), "EAGAIN", "of one kind with fcntl")
        self.assertEqual(self.does(third, "flock(fcntl.LOCK_EX | fcntl.LOCK_NB)"), "None", "of another")
        self.assertEqual(self.does(here, "flock(fcntl.LOCK_SH | fcntl.LOCK_NB)"), "EAGAIN")
        self.begin_to_wait(there, "posix(WRITE, 10, 1)")
        self.assertEqual(self.does(here, "posix(UNLOCK, 10, 5)"), "None")
        self.assertEqual(self.said(there), "None")
        # The holder is killed: all its locks end.
        self.begin_to_wait(there, "posix(WRITE, 15, 15)")
        here.kill()
        self.assertEqual(self.said(there), "None")
        # A close of any descriptor of the file ends fcntl's locks of the process.
        self.assertEqual(self.does(third, "posix(READ, 10, 1, False)"), "EAGAIN")
        self.assertEqual(self.does(there, "close_another()"), "None")
        self.assertEqual(self.does(third, "posix(READ, 10, 1, False)"), "None")
        # flock's and OFD's end with the open file.
        back = self.actor(0, "f")
        self.begin_to_wait(back, "flock(fcntl.LOCK_EX)")
        third.kill()
        self.assertEqual(self.said(back), "None")
        for actor in (there, back):
            self.begin(actor, "sys.exit()")
            actor.wait(timeout=PATIENCE_S)
        self.end(*servers)

    def test_a_signal_ends_a_wait_and_a_killed_waiter_gets_nothing(self):
        servers = self.serve()
        here, there, third = self.actor(0, "f"), self.actor(1, "f"), self.actor(0, "f")
        for lock, unlock in (("posix(WRITE)", "posix(UNLOCK)"), ("ofd(WRITE)", "ofd(UNLOCK)"),
                             ("flock(fcntl.LOCK_EX)", "flock(fcntl.LOCK_UN)")):
            self.assertEqual(self.does(here, lock), "None")
            self.begin_to_wait(there, lock)
            there.send_signal(signal.SIGUSR1)
            self.assertEqual(self.said(there), "EINTR")
            self.assertEqual(self.does(here, unlock), "None")
            self.assertEqual(self.does(third, lock), "None", "what was interrupted has it not")
            self.assertEqual(self.does(third, unlock), "None")
        self.assertEqual(self.does(here, "posix(WRITE)"), "None")
        self.begin_to_wait(there, "posix(WRITE)")
        there.kill()
        there.wait(timeout=PATIENCE_S)
        self.assertEqual(self.does(here, "posix(UNLOCK)"), "None")
        self.assertEqual(self.does(third, "posix(WRITE)"), "None")
        for actor in (here, third):
            self.begin(actor, "sys.exit()")
            actor.wait(timeout=PATIENCE_S)
        self.end(*servers)

    def test_a_cycle_of_waits_is_a_deadlock(self):
        servers = self.serve()
        actors = [self.actor(node, "f") for node in range(2)]
        for number, actor in enumerate(actors):
            self.assertEqual(self.does(actor, f"posix(WRITE, {number}, 1)"), "None")
        for number, actor in enumerate(actors):
            self.begin(actor, f"posix(WRITE, {1 - number}, 1)")
        # The later one is refused; it makes way for the other.
        ready, _, _ = select.select([actor.stdout for actor in actors], [], [], PATIENCE_S)
        refused, other = actors if actors[0].stdout in ready else reversed(actors)
        self.assertEqual(self.said(refused), errno.errorcode[errno.EDEADLK])
        self.assertEqual(self.does(refused, "posix(UNLOCK)"), "None")
        self.assertEqual(self.said(other), "None")
        for actor in actors:
            self.begin(actor, "sys.exit()")
            actor.wait(timeout=PATIENCE_S)
        self.end(*servers)

    # The locks that its programs had end, at the roots that live; those that it kept are EIO.
    def test_the_locks_of_a_node_that_dies_end(self):
        servers = self.serve("--at-end", "keep")
        names = [f"f{number}" for number in range(8)]
        there = [self.actor(1, name) for name in names]
        here = [self.actor(0, name) for name in names]
        for actor in there:
            self.assertEqual(self.does(actor, "flock(fcntl.LOCK_EX)"), "None")
            self.assertEqual(self.does(actor, "posix(WRITE)"), "None")
        for actor in here:
            self.begin(actor, "(posix(WRITE), flock(fcntl.LOCK_EX))")
        servers[1].kill()
        came = [self.said(actor) for actor in here]
        print("of 8 files:", came)
        self.assertEqual(set(came), {"(None, None)", "EIO"})
        for process in [*here, *there]:
            process.kill()
        servers[0].kill()

    # Meanwhile others have its locks; what it has written under them does not come over theirs.
    def test_a_node_that_was_silent_too_long_has_no_locks_when_it_wakes(self):
        servers = self.serve("--at-end", "keep")
        names = [f"f{number}" for number in range(8)]
        there = [self.actor(1, name) for name in names]
        here = [self.actor(0, name) for name in names]
        for actor in there:
            self.assertEqual(self.does(actor, "posix(WRITE)"), "None")
            self.assertEqual(self.does(actor, "os.pwrite(file, b'OLD', 0)"), "3")
        for actor in here:
            self.begin(actor, "posix(WRITE)")
        servers[1].send_signal(signal.SIGSTOP)
        came = [self.said(actor) for actor in here]
        self.assertEqual(set(came), {"None", "EIO"})
        ours = [number for number, said in enumerate(came) if said == "None"]
        for number in ours:
            self.assertEqual(self.does(here[number], "os.pwrite(file, b'NEW', 0)"), "3")
            self.assertEqual(self.does(here[number], "posix(UNLOCK)"), "None")
        servers[1].send_signal(signal.SIGCONT)
        for number in ours:
            self.assertEqual(self.does(there[number], "posix(UNLOCK)"), "EIO")
            self.assertEqual(self.does(there[number], "posix(WRITE)"), "EIO")
            self.assertEqual(self.does(here[number], "os.pread(file, 9, 0)"), "b'NEW'")
        for process in [*here, *there, *servers]:
            process.kill()


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
