#!/usr/bin/env python3
"""unmounted_nodes_test.py SWALE LIBSWALE [MPIRUN [MPI_IO]]: ranks of two nodes in a tree that is mounted
nowhere (swale run --no-mount), beside the same ranks in a plain directory. It needs no FUSE.

The nodes are of one machine, as in nodes_test.py: each has a buffer of its own, and what a program of one has
written comes to the other by their servers alone.
"""
import errno
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../mount"))
import nodes_test  # noqa: E402
from mounted import SWALE, listing  # noqa: E402
from nodes_test import LIBRARIES, MPIRUN, PATIENCE_S, NodesCase, wait_until  # noqa: E402

MPI_IO = "".join(sys.argv[4:5])  # tests/mount/mpi_io.c by Open MPI
LAUNCHED = dict(os.environ, SWALE_JOB_TRANSPORT="tls", LD_LIBRARY_PATH=LIBRARIES,
                OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                OMPI_MCA_rmaps_base_oversubscribe="1",
                PRTE_MCA_rmaps_default_mapping_policy=":oversubscribe")
RANKS = 4
BEGIN = nodes_test.PROGRAM.replace("RECORD, RECORDS = 4700, 40", "RECORD, RECORDS = 47008, 12") + """
import errno, hashlib
def read(name): return open(f"{root}/{name}", "rb").read()
"""
# What one node has written the others open. Some bytes of a record are zero, as in numbers.
SHARE = BEGIN + """
def record(i, r):
    made = b"".join(hashlib.sha256(b"%d %d %d" % (i, r, k)).digest() for k in range(RECORD // 32))
    return bytes(b if b > 60 else 0 for b in made)
shared = os.open(f"{root}/shared", os.O_RDWR | os.O_CREAT, 0o644)
meet("opened")
for i in range(RECORDS): os.pwrite(shared, record(i, rank), (i * size + rank) * RECORD)
with open(f"{root}/own-{rank}", "wb") as own: own.write(record(0, rank))
with open(f"{root}/log", "a") as log:
    for i in range(50): print(f"rank {rank} line {i}", file=log, flush=i % 7 == 0)
os.mkdir(f"{root}/folder-{rank}")
os.close(shared)
meet("written")
whole = b"".join(record(i, r) for i in range(RECORDS) for r in range(size))
assert read("shared") == whole, "records of others are not seen"
assert os.path.getsize(f"{root}/shared") == len(whole)
for r in range(size): assert read(f"own-{r}") == record(0, r)
lines = sorted(read("log").decode().splitlines())
assert lines == sorted(f"rank {r} line {i}" for r in range(size) for i in range(50)), lines
names = {"shared", "log"} | {f"{kind}-{r}" for kind in ("own", "folder") for r in range(size)}
assert set(os.listdir(root)) - {".swale"} == names, os.listdir(root)
meet("read")
held = os.open(f"{root}/shared", os.O_RDWR)
meet("held")
if rank == 0:
    os.pwrite(held, b"SYNC", 0)
    os.fsync(held)
    os.rename(f"{root}/own-1", f"{root}/renamed")
    os.unlink(f"{root}/own-2")
    with open(f"{root}/log", "w") as log: log.write("\\n".join(lines))
if rank == size - 1:
    with open(f"{root}/new", "wb") as new: new.write(b"new")
    os.replace(f"{root}/new", f"{root}/own-3")
    os.pwrite(held, b"END", len(whole))
    os.ftruncate(held, len(whole) + 1)
meet("changed")
assert read("shared") == b"SYNC" + whole[4:] + b"E", "what others have written is not seen"
meet("read before")
if rank in (0, size - 1): os.pwrite(held, b"%d" % rank, 100 + rank)  # and neither closes it, nor syncs it
meet("written again")
assert read("shared")[100:100 + size] == b"0" + whole[101:99 + size] + b"%d" % (size - 1)
meet("read again")
os.close(held)
assert os.path.getsize(f"{root}/shared") == len(whole) + 1
assert read("renamed") == record(0, 1) and read("own-3") == b"new"
assert not os.path.exists(f"{root}/own-1") and not os.path.exists(f"{root}/own-2")
assert read("log").decode().splitlines() == lines
meet("seen")
os.rmdir(f"{root}/folder-{rank}")
"""


class UnmountedNodes(NodesCase):
    def setUp(self):
        self.scratch = tempfile.mkdtemp(prefix="swale-unmounted-nodes-", dir=os.getcwd())
        self.backing, self.plain, self.steps = (self.make(name) for name in ("backing", "plain", "steps"))
        self.started = []

    def buffer(self, node):
        return os.path.join(self.scratch, f"buffer-{node}")

    def at(self, node, *names):  # what tells the servers of nodes from each other
        return os.path.join(self.buffer(node), *names)

    def launch(self, program, options=(), ranks=RANKS, nodes=2, **more):
        return [self.start(rank, ranks, rank * nodes // ranks, "run", "--no-mount", "--backing", self.backing,
                           "--buffer", "%b", "--memory", "32M", *options, "--", sys.executable, "-c", program,
                           str(rank), str(ranks), self.backing, self.backing, self.steps, **more)
                for rank in range(ranks)]

    def launch_natively(self, program, ranks=RANKS):
        steps = self.make("native-steps")
        for rank in range(ranks):
            self.started.append(subprocess.Popen(
                [sys.executable, "-c", program, str(rank), str(ranks), self.plain, self.plain, steps],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        return self.started[-ranks:]

    def all_end(self, started):
        for status, said in self.ends(started):
            self.assertEqual((status, said), (0, ""))

    def content(self, name):
        with open(os.path.join(self.backing, name), "rb") as file:
            return file.read()

    def test_ranks_leave_what_they_leave_in_a_plain_directory(self):
        self.all_end(self.launch(SHARE))
        self.all_end(self.launch_natively(SHARE))
        self.assertEqual(listing(self.backing), listing(self.plain))
        self.nothing_is_left()

    def test_one_node_alone_under_a_launcher(self):
        self.all_end(self.launch(SHARE, nodes=1))
        self.nothing_is_left(1)

    def under_mpirun(self):
        who = "import os, sys\nsys.argv[1:3] = [os.environ[f'OMPI_COMM_WORLD_{w}'] for w in ('RANK', 'SIZE')]"
        words = [*MPIRUN]
        for node in range(2):
            words += [*([":"] if node else []), "-n", "2", "env", f"SWALE_JOB_NODE=host-{node}", SWALE, "run",
                      "--no-mount", "--backing", self.backing, "--buffer", self.buffer(node), "--",
                      sys.executable, "-c", who + SHARE, "", "", self.backing, self.backing, self.steps]
        launched = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
                                  env=LAUNCHED)
        self.assertEqual(launched.returncode, 0, launched.stderr)
        self.assertEqual(set(os.listdir(self.backing)), {"log", "own-0", "own-3", "renamed", "shared"})
        self.nothing_is_left()

    def mpi_io(self):
        """What OMPIO reads, changes and writes under locks, and its shared pointers, on two nodes."""
        words = [*MPIRUN, "--mca", "io", "ompio"]
        for node in range(2):
            words += [*([":"] if node else []), "-n", "2", "env", f"SWALE_JOB_NODE=host-{node}", SWALE, "run",
                      "--no-mount", "--backing", self.backing, "--buffer", self.buffer(node), "--", MPI_IO,
                      self.backing, "4096", "6", "nodes"]
        for launch in (words, [*MPIRUN, "--mca", "io", "ompio", "-n", "4", MPI_IO, self.plain, *words[-3:]]):
            done = subprocess.run(launch, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
                                  env=dict(LAUNCHED, OMPI_MCA_mpi_yield_when_idle="1"))
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertGreater(len(listing(self.plain)), 10)
        self.assertEqual(listing(self.backing), listing(self.plain))
        self.nothing_is_left()

    if MPIRUN:
        test_under_mpirun = under_mpirun
    if os.path.exists(MPI_IO):
        test_mpi_io = mpi_io

    # What was written stays, also of files that are open, and programs go on.
    def test_a_killed_server_is_started_again_with_those_of_all_nodes(self):
        program = BEGIN + """
shared = os.open(f"{root}/shared", os.O_RDWR | os.O_CREAT, 0o644)
log = open(f"{root}/log", "a")
meet("opened")
for i in range(RECORDS): os.pwrite(shared, record(i, rank), (i * size + rank) * RECORD)
log.write(f"before {rank}\\n")
log.flush()
os.fsync(log.fileno())
if rank == 0: os.fsync(shared)
meet("before")
end = time.monotonic() + %d
while not os.path.exists(f"{scratch}/again"):
    assert time.monotonic() < end
    time.sleep(0.02)
os.pwrite(shared, b"after", (rank + 1) * RECORD - 5)
log.write(f"after {rank}\\n")
log.close()
os.close(shared)
meet("after")
whole = b"".join(record(i, r) for i in range(RECORDS) for r in range(size))
for r in range(size): whole = whole[:(r + 1) * RECORD - 5] + b"after" + whole[(r + 1) * RECORD:]
assert read("shared") == whole, "what was written is not there"
assert sorted(read("log").decode().split("\\n")) == sorted(
    [""] + [f"{when} {r}" for when in ("before", "after") for r in range(size)]), read("log")
""" % PATIENCE_S
        started = self.launch(program, ranks=2)
        wait_until("all have written", lambda: len(os.listdir(self.steps)) == 4)
        before = [self.servers_of(node) for node in range(2)]
        self.assertEqual([len(each) for each in before], [1, 1])
        os.kill(*before[1], signal.SIGKILL)

        def is_new(node):
            now = self.servers_of(node)
            return len(now) == 1 and not now & before[node]
        wait_until("all servers are new", lambda: is_new(0) and is_new(1))
        with open(os.path.join(self.steps, "again"), "w", encoding="ascii"):
            pass
        ended = self.ends(started)
        self.assertEqual([status for status, _ in ended], [0, 0], ended)
        self.assertEqual(len(self.content("shared")), 2 * 12 * 47_008)
        self.nothing_is_left()

    def test_a_killed_job_is_recovered(self):
        program = BEGIN + """
shared = os.open(f"{root}/shared", os.O_RDWR | os.O_CREAT, 0o644)
meet("opened")
for i in range(RECORDS): os.pwrite(shared, record(i, rank), (i * size + rank) * RECORD)
log = open(f"{root}/log", "a")
print(f"rank {rank}", file=log, flush=True)
meet("written")
time.sleep(%d)
""" % PATIENCE_S
        started = self.launch(program, ranks=2)
        wait_until("all have written", lambda: len(os.listdir(self.steps)) == 4)
        self.kill_all()
        self.ends(started)
        self.assertEqual(set(os.listdir(self.backing)) - {".swale"}, set())
        recover = [self.start(rank, 2, rank, "fs", "recover", "--buffer", "%b", self.backing)
                   for rank in range(2)]
        self.assertEqual([status for status, _ in self.ends(recover)], [0, 0])
        self.assertEqual(self.content("shared"), b"".join(
            bytes([(7 * i + 13 * rank) % 251 + 1]) * 47_008 for i in range(12) for rank in range(2)))
        self.assertEqual(sorted(self.content("log").splitlines()), [b"rank 0", b"rank 1"])
        self.nothing_is_left()

    def test_a_killed_rank_leaves_what_it_has_written(self):
        program = BEGIN + """
shared = os.open(f"{root}/shared", os.O_RDWR | os.O_CREAT, 0o644)
log = os.open(f"{root}/log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
os.pwrite(shared, record(0, rank), rank * RECORD)
os.write(log, b"rank %d\\n" % rank)
meet("written")
if rank == 1: os.kill(os.getpid(), 9)
os.close(shared)
os.close(log)
"""
        ended = self.ends(self.launch(program))
        self.assertEqual([status for status, _ in ended], [0, 128 + signal.SIGKILL, 0, 0], ended)
        self.assertEqual(self.content("shared"),
                         b"".join(bytes([13 * rank % 251 + 1]) * 47_008 for rank in range(RANKS)))
        self.assertEqual(sorted(self.content("log").splitlines()),
                         [b"rank %d" % rank for rank in range(RANKS)])
        self.nothing_is_left()

    # What one has written under a lock the next one reads, of another node or its own.
    def test_locks_of_ranges_hold_on_all_nodes(self):
        program = BEGIN + """
import fcntl, sqlite3
count = os.open(f"{root}/count", os.O_RDWR | os.O_CREAT, 0o644)
meet("opened")
for i in range(10):
    (fcntl.lockf if i %% 2 else lambda file, how: os.lockf(file, os.F_LOCK, 0))(count, fcntl.LOCK_EX)
    number = int(os.pread(count, 100, 0) or b"0")
    os.pwrite(count, b"%%d" %% (number + 1), 0)
    fcntl.lockf(count, fcntl.LOCK_UN)
data = sqlite3.connect(f"{root}/database", timeout=%d, isolation_level=None)
data.execute("create table if not exists lines (text)")
for i in range(5): data.execute("insert into lines values (?)", [f"rank {rank} line {i}"])
data.close()
meet("written")
assert read("count") == b"%%d" %% (10 * size), read("count")
fcntl.lockf(count, fcntl.LOCK_SH)
meet("shared")
try: fcntl.lockf(count, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError as why: assert why.errno in (errno.EAGAIN, errno.EACCES), why
else: raise AssertionError("others share it")
meet("refused")
fcntl.lockf(count, fcntl.LOCK_UN)
meet("unlocked")
if rank == 1:  # ends with it
    fcntl.lockf(count, fcntl.LOCK_EX)
    os.pwrite(count, b"last", 0)
    open(f"{scratch}/locked", "w").close()
    os.kill(os.getpid(), 9)
while not os.path.exists(f"{scratch}/locked"): time.sleep(0.01)
fcntl.lockf(count, fcntl.LOCK_EX)
assert os.pread(count, 100, 0) == b"last"
""" % PATIENCE_S
        ended = self.ends(self.launch(program))
        self.assertEqual([status for status, _ in ended], [0, 128 + signal.SIGKILL, 0, 0], ended)
        with sqlite3.connect(os.path.join(self.backing, "database")) as data:
            lines = {text for text, in data.execute("select text from lines")}
            self.assertEqual(data.execute("pragma integrity_check").fetchall(), [("ok",)])
        self.assertEqual(lines, {f"rank {rank} line {i}" for rank in range(RANKS) for i in range(5)})
        self.nothing_is_left()

    # Each would hold on one node alone.
    def test_what_would_not_hold_on_all_nodes_is_refused(self):
        program = BEGIN + """
import fcntl
def refused(call, *words):
    try: call(*words)
    except OSError as why: return why.errno
file = os.open(f"{root}/locked-{rank}", os.O_RDWR | os.O_CREAT, 0o644)
print(refused(fcntl.flock, file, fcntl.LOCK_SH), refused(fcntl.flock, file, fcntl.LOCK_UN),
      refused(fcntl.fcntl, file, fcntl.F_OFD_SETLK, b"\\0" * 32),
      refused(os.open, f"{root}/locked-{rank}", os.O_RDWR | os.O_APPEND),
      refused(fcntl.fcntl, file, fcntl.F_SETFL, os.O_APPEND), refused(fcntl.fcntl, file, fcntl.F_SETFL, 0))
"""
        started = self.launch(program, ranks=2)
        for process in started:
            out, said = process.communicate(timeout=PATIENCE_S)
            self.assertEqual(process.returncode, 0, said)
            self.assertEqual(out.split(), [str(number) for number in (
                errno.ENOLCK, None, errno.ENOLCK, errno.EOPNOTSUPP, errno.EOPNOTSUPP, None)])
            for call in ("fcntl (F_OFD_SETLK)", "flock"):
                self.assertIn(f"{call} of a file is refused: no other node would know of the lock", said)
            self.assertIn("open with O_APPEND and O_RDWR, on several nodes, of", said)
        self.nothing_is_left()


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
