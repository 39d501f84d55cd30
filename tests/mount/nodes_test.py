#!/usr/bin/env python3
"""nodes_test.py SWALE LIBSWALE [MPIRUN]: the tree of a job on several nodes: `swale run` and `swale serve` as
a launcher starts them, a rank each.

The nodes are of one machine: SWALE_JOB_NODE says which ranks share one, and each has a mountpoint and a
buffer of its own.
"""
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from mounted import NO_MOUNTS, SWALE, listing, run

PATIENCE_S = 300  # for what must happen, on a machine however slow
LIBRARIES = os.path.dirname(os.path.abspath(sys.argv[2]))  # of libswale-tls.so
MPIRUN = sys.argv[3:4]  # Open MPI's
RECORD = 4_700
RECORDS = 40  # of each rank

# What the programs of ranks begin with. They meet by files beside the tree.
PROGRAM = """
import os, sys, time
rank, size, root, backing, scratch = int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:6]
RECORD, RECORDS = %d, %d
def record(i, r): return bytes([(7 * i + 13 * r) %% 251 + 1]) * RECORD
def meet(step):
    open(f"{scratch}/{step}-{rank}", "w").close()
    end = time.monotonic() + %d
    while not all(os.path.exists(f"{scratch}/{step}-{r}") for r in range(size)):
        assert time.monotonic() < end, f"{step}: ranks are missing"
        time.sleep(0.01)
""" % (RECORD, RECORDS, PATIENCE_S)
N_TO_1 = PROGRAM + """
assert os.path.ismount(root)
shared = os.open(f"{root}/shared", os.O_RDWR | os.O_CREAT, 0o644)
for i in range(RECORDS): os.pwrite(shared, record(i, rank), (i * size + rank) * RECORD)
with open(f"{root}/own-{rank}", "wb") as own: own.write(record(0, rank))
os.close(shared)
meet("written")
whole = b"".join(record(i, r) for i in range(RECORDS) for r in range(size))
assert open(f"{root}/shared", "rb").read() == whole, "what others have closed is not seen"
for r in range(size): assert open(f"{root}/own-{r}", "rb").read() == record(0, r)
meet("read")
if rank == 0:
    shared = os.open(f"{root}/shared", os.O_RDWR)
    os.pwrite(shared, b"SYNC", 0)
    os.fsync(shared)
    if sys.argv[6:]:
        assert open(f"{backing}/shared", "rb").read() == b"SYNC" + whole[4:], "fsync has not brought it"
    os.rename(f"{root}/own-1", f"{root}/renamed")
meet("synced")
assert open(f"{root}/shared", "rb").read(4) == b"SYNC"
assert not os.path.exists(f"{root}/own-1") and os.path.exists(f"{root}/renamed")
"""

def wait_until(what, done, pause_s=0.05):
    end = time.monotonic() + PATIENCE_S
    while not done():
        if time.monotonic() > end:
            raise AssertionError(f"waited {PATIENCE_S} s until {what}")
        time.sleep(pause_s)


class NodesCase(unittest.TestCase):
    def setUp(self):
        if NO_MOUNTS:
            self.skipTest(f"no FUSE mounts here: {NO_MOUNTS}; in a container, add --device /dev/fuse "
                          f"--cap-add SYS_ADMIN")
        # /tmp may be without extended attributes
        self.scratch = tempfile.mkdtemp(prefix="swale-nodes-", dir=os.getcwd())
        self.backing = self.make("backing")
        self.steps = self.make("steps")
        self.started = []

    def make(self, name):
        path = os.path.join(self.scratch, name)
        if name not in os.listdir(self.scratch):  # a look at what is there may wait for its server
            os.mkdir(path)
        return path

    def tearDown(self):
        if not hasattr(self, "scratch"):
            return
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.communicate()
        wait_until("the servers have ended", lambda: not self.servers())
        for name in os.listdir(self.scratch):
            if name.startswith("at-"):
                subprocess.run(["fusermount3", "-u", "-z", os.path.join(self.scratch, name)],
                               stderr=subprocess.DEVNULL, check=False)
            if name.startswith("buffer-"):
                self.forget_memory_of(name)
        shutil.rmtree(self.scratch)

    def forget_memory_of(self, buffer):
        """What a server that was refused, or is not started again, has left in the memory of its node."""
        found = os.stat(os.path.join(self.scratch, buffer))
        memory = f"/dev/shm/swale-fs-{os.geteuid()}-{found.st_dev:x}-{found.st_ino:x}"
        shutil.rmtree(memory, ignore_errors=True)

    def servers(self, at=""):
        """Processes of swale for this test's directories, by mountpoint."""
        found = []
        for number in os.listdir("/proc"):
            try:
                with open(f"/proc/{number}/cmdline", "rb") as words:
                    line = words.read().split(b"\0")
            except (OSError, ValueError):
                continue
            if os.path.basename(line[0]) == b"swale" and (at or self.scratch).encode() in b"\0".join(line):
                found.append(int(number))
        return found

    def servers_of(self, node):
        """The processes that serve the node's mount: children of keepers, which are children of ranks."""
        parents = {}
        for number in self.servers(self.at(node)):
            try:
                with open(f"/proc/{number}/stat", encoding="ascii") as stat:
                    parents[number] = int(stat.read().rsplit(")", 1)[1].split()[1])
            except OSError:
                pass  # it has ended
        return {number for number, parent in parents.items()
                if parents.get(parent) in parents and number not in parents.values()}

    def words_before(self, _):
        """What starts a program on a node."""
        return []

    def start(self, rank, size, node, *words, job="job", **more):
        """A rank as a launcher starts it. `words`: with %a, %b for the mountpoint and buffer of its node."""
        at, buffer = self.make(f"at-{node}"), os.path.join(self.scratch, f"buffer-{node}")
        environment = {**os.environ, "SWALE_JOB_RANK": str(rank), "SWALE_JOB_SIZE": str(size),
                       "SWALE_JOB_ID": job, "SWALE_JOB_NODE": f"host-{node}", "SWALE_JOB_TRANSPORT": "tls",
                       "LD_LIBRARY_PATH": LIBRARIES, **{name: str(value) for name, value in more.items()}}
        words = [*self.words_before(node), SWALE,
                 *(word.replace("%a", at).replace("%b", buffer) for word in words)]
        process = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True)
        self.started.append(process)
        return process

    def launch(self, program, options=(), ranks=4, nodes=2, **more):
        """`swale run` of all ranks, which fill one node after the other."""
        return [self.start(rank, ranks, rank * nodes // ranks, "run", "--backing", self.backing, "--at", "%a",
                           "--buffer", "%b", "--memory", "32M", *options, "--", sys.executable, "-c", program,
                           str(rank), str(ranks), "%a", self.backing, self.steps,
                           *(["drains"] if "backing" in options else []), **more)
                for rank in range(ranks)]

    def serve(self, *options, nodes=2, **more):
        started = [self.start(rank, nodes, rank, "serve", "--at", "%a", "--buffer", "%b", "--memory", "32M",
                              *options, self.backing, **more) for rank in range(nodes)]
        for process in started:
            line = process.stdout.readline()
            self.assertIn("is mounted", line, line or process.stderr.read())
        return started

    def ends(self, started):
        """Exit status and messages of each."""
        said = [process.communicate(timeout=PATIENCE_S) for process in started]
        return [(process.returncode, err) for process, (_, err) in zip(started, said)]

    def at(self, node, *names):
        return os.path.join(self.scratch, f"at-{node}", *names)

    def kill_all(self):
        while self.servers():
            for number in self.servers():
                try:
                    os.kill(number, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            for process in self.started:  # else they stay as zombies
                process.poll()

    def nothing_is_left(self, nodes=2):
        self.assertNotIn(".swale", os.listdir(self.backing))
        for node in range(nodes):
            self.assertEqual(os.listdir(os.path.join(self.scratch, f"buffer-{node}")), [])


class Nodes(NodesCase):
    def test_ranks_of_two_nodes_share_files_and_leave_plain_ones(self):
        for status, said in self.ends(self.launch(N_TO_1)):
            self.assertEqual(status, 0, said)
        with open(os.path.join(self.backing, "shared"), "rb") as file:
            content = file.read()
        whole = b"".join(bytes([(7 * i + 13 * rank) % 251 + 1]) * RECORD
                         for i in range(RECORDS) for rank in range(4))
        self.assertEqual(content, b"SYNC" + whole[4:])
        self.assertEqual(sorted(os.listdir(self.backing)), ["own-0", "own-2", "own-3", "renamed", "shared"])
        self.nothing_is_left()

    def under_mpirun(self):
        """The same by a real launcher, which says who is who, to a program that is none of MPI."""
        who = "import os, sys\nsys.argv[1:3] = [os.environ[f'OMPI_COMM_WORLD_{w}'] for w in ('RANK', 'SIZE')]"
        words = [*MPIRUN]
        for node in range(2):
            buffer = os.path.join(self.scratch, f"buffer-{node}")
            words += [*([":"] if node else []), "-n", "2", "env", f"SWALE_JOB_NODE=host-{node}", SWALE, "run",
                      "--backing", self.backing, "--at", self.make(f"at-{node}"), "--buffer", buffer, "--",
                      sys.executable, "-c", who + N_TO_1, "", "", self.at(node), self.backing, self.steps]
        launched = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
                                  env=dict(os.environ, SWALE_JOB_TRANSPORT="tls", LD_LIBRARY_PATH=LIBRARIES,
                                           OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                                           OMPI_MCA_rmaps_base_oversubscribe="1",
                                           PRTE_MCA_rmaps_default_mapping_policy=":oversubscribe"))
        self.assertEqual(launched.returncode, 0, launched.stderr)
        self.assertEqual(len(os.listdir(self.backing)), 5)
        self.nothing_is_left()

    if MPIRUN:
        test_under_mpirun = under_mpirun

    def test_the_exit_status_is_the_programs_and_the_others_still_get_their_bytes_there(self):
        program = PROGRAM + """
with open(f"{root}/own-{rank}", "wb") as own: own.write(record(0, rank))
meet("written")
sys.exit(7 if rank == 0 else 0)
"""
        ended = self.ends(self.launch(program))
        self.assertEqual([status for status, _ in ended], [7, 0, 0, 0], ended)
        self.assertEqual(sorted(os.listdir(self.backing)), [f"own-{rank}" for rank in range(4)])
        self.nothing_is_left()

    def test_one_node_alone_under_a_launcher(self):
        for status, said in self.ends(self.launch(N_TO_1, ("--fsync", "backing"), ranks=2, nodes=1)):
            self.assertEqual(status, 0, said)
        self.nothing_is_left(1)

    def test_fsync_of_two_nodes_brings_a_file_to_the_backing_where_that_is_wanted(self):
        for status, said in self.ends(self.launch(N_TO_1, ("--fsync", "backing"))):
            self.assertEqual(status, 0, said)
        self.nothing_is_left()

    # Both nodes have written each file, and one has synced it. Their memory is gone then.
    def test_what_was_synced_on_one_node_is_there_after_all_have_lost_power(self):
        for lost in ((0,), (1,), (0, 1)):
            started = self.serve("--at-end", "keep")
            names = [f"{''.join(map(str, lost))}-{number}" for number in range(4)]  # on both servers
            for name in names:
                with open(self.at(0, name), "wb") as file:
                    file.write(b"0" * 100_000)
                with open(self.at(1, name), "r+b") as file:
                    file.seek(100_000)
                    file.write(b"1" * 100_000)
                    file.flush()
                    os.fsync(file.fileno())
                self.assertFalse(os.path.exists(os.path.join(self.backing, name)))
                with open(self.at(0, f"{name}-closed"), "wb") as file:
                    file.write(b"c" * 100_000)
            self.assertEqual(json.loads(run(SWALE, "fs", "stat", "--json", self.at(1)))["fsync"], "node")
            self.kill_all()
            self.ends(started)
            for node in lost:
                self.forget_memory_of(f"buffer-{node}")
            recover = [self.start(rank, 2, rank, "fs", "recover", "--buffer", "%b", self.backing)
                       for rank in range(2)]
            for status, said in self.ends(recover):
                self.assertEqual(status, 0, said)
            for name in names:
                with open(os.path.join(self.backing, name), "rb") as file:
                    self.assertEqual(file.read(), b"0" * 100_000 + b"1" * 100_000)
                closed = os.path.join(self.backing, f"{name}-closed")
                if lost == (1,):
                    with open(closed, "rb") as file:
                        self.assertEqual(file.read(), b"c" * 100_000)
                elif os.path.exists(closed):
                    with open(closed, "rb") as file:
                        self.assertIn(file.read(), (b"", b"c" * 100_000))
            self.nothing_is_left()

    def test_all_nodes_drain_where_the_buffer_of_one_is_in_memory(self):
        with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
            at = [self.make(f"at-{node}") for node in range(2)]
            buffers = [os.path.join(self.scratch, "buffer-0"), os.path.join(memory, "buffer")]
            started = [self.start(rank, 2, rank, "serve", "--at", at[rank], "--buffer", buffers[rank],
                                  self.backing) for rank in range(2)]
            for process in started:
                self.assertIn("is mounted", process.stdout.readline())
            for node in range(2):
                with open(os.path.join(at[node], f"of-{node}"), "wb") as file:
                    file.write(b"synced")
                    file.flush()
                    os.fsync(file.fileno())
                self.assertTrue(os.path.exists(os.path.join(self.backing, f"of-{node}")))
            for process in started:
                process.send_signal(signal.SIGTERM)
            ended = self.ends(started)
            self.assertEqual([status for status, _ in ended], [0, 0], ended)
            said = "".join(said for _, said in ended)
            self.assertEqual(said.count("is in memory: fsync brings"), 1, said)

    # What was closed is there again, on all nodes; the mounts of all are new ones.
    def test_a_killed_server_is_started_again_with_those_of_all_nodes(self):
        program = PROGRAM + """
with open(f"{root}/before-{rank}", "wb") as file: file.write(record(1, rank))
meet("before")
end = time.monotonic() + %d
while not os.path.exists(f"{scratch}/again"):
    assert time.monotonic() < end
    time.sleep(0.02)
for r in range(size): assert open(f"{root}/before-{r}", "rb").read() == record(1, r)
with open(f"{root}/after-{rank}", "wb") as file: file.write(b"after")
meet("after")
for r in range(size): assert open(f"{root}/after-{r}", "rb").read() == b"after"
""" % PATIENCE_S
        started = self.launch(program, ranks=2)
        wait_until("all have written", lambda: len(os.listdir(self.steps)) == 2)
        before = [self.servers_of(node) for node in range(2)]
        self.assertEqual([len(each) for each in before], [1, 1])
        os.kill(*before[1], signal.SIGKILL)

        def is_new(node):
            now = self.servers_of(node)
            return len(now) == 1 and not now & before[node] and os.path.ismount(self.at(node))
        wait_until("all mounts are new", lambda: is_new(0) and is_new(1))
        with open(os.path.join(self.steps, "again"), "w", encoding="ascii"):
            pass
        for status, said in self.ends(started):
            self.assertEqual(status, 0, said)
            self.assertIn("it is started again, with those of all nodes", said)
        self.assertEqual(len(os.listdir(self.backing)), 4)
        self.nothing_is_left()

    def killed_at(self, step, reached):
        """Both ranks of a job write, and all of it is killed at that step of its life."""
        print(f"killed when {step}")
        program = PROGRAM + """
with open(f"{root}/own-{rank}", "wb") as own: own.write(record(0, rank))
meet("written")
while not os.path.exists(f"{scratch}/end"): time.sleep(0.01)
"""
        started = self.launch(program, ranks=2)
        wait_until(step, reached, pause_s=0)
        self.kill_all()
        self.ends(started)

    def test_a_job_that_is_killed_at_any_step_is_started_again(self):
        def names(*path):
            try:
                return os.listdir(os.path.join(self.scratch, *path))
            except OSError:
                return []

        def ends():
            if len(names("steps")) == 2:
                with open(os.path.join(self.steps, "end"), "w", encoding="ascii"):
                    pass
            return len(names("steps")) == 3 and not os.path.ismount(self.at(0))
        for step, reached in (
                ("the ranks meet", lambda: names("backing", ".swale", "meeting")),
                ("the servers meet", lambda: any("servers" in name for name in
                                                 names("backing", ".swale", "meeting"))),
                ("the job has the backing", lambda: any(name.startswith("job-") for name in
                                                        names("backing", ".swale"))),
                ("its names are there", lambda: "tree.json" in names("buffer-1", "names")),
                ("one mount is there", lambda: os.path.ismount(self.at(0)) or os.path.ismount(self.at(1))),
                ("all have written", lambda: len(names("steps")) == 2),
                ("it ends", ends)):
            written = step == "all have written"
            self.killed_at(step, reached)
            for name in names("steps"):
                os.unlink(os.path.join(self.steps, name))
            again = PROGRAM + """
if %s:
    for r in range(size): assert open(f"{root}/own-{r}", "rb").read() == record(0, r)
meet("again")
with open(f"{root}/own-{rank}", "wb") as own: own.write(record(0, rank))
""" % written
            for status, said in self.ends(self.launch(again, ranks=2)):
                self.assertEqual(status, 0, f"killed when {step}: {said}")
            self.assertEqual(sorted(names("backing")), ["own-0", "own-1"])
            self.nothing_is_left()
            for name in names("steps"):
                os.unlink(os.path.join(self.steps, name))
            if not written:  # else only the tree may have shown them
                for name in names("backing"):
                    os.unlink(os.path.join(self.backing, name))

    def seal(self, path):
        return subprocess.run([SWALE, "fs", "seal", path], capture_output=True, text=True, check=False,
                              timeout=PATIENCE_S)

    def test_a_file_that_one_node_seals_is_immutable_on_all_until_one_unseals_it(self):
        started = self.serve()
        one, other = self.at(0, "f"), self.at(1, "f")
        with open(one, "wb") as file:
            file.write(b"AAAAAAAA")
        with open(other, "r+b") as file:
            file.write(b"BB")
            file.flush()
            asked = self.seal(one)
            self.assertIn(f"process {os.getpid()} of node ", asked.stderr)
        self.assertEqual(self.seal(one).stderr, "")
        with open(other, "rb") as reader:
            self.assertEqual(reader.read(), b"BBAAAAAA")
            before = self.stat(1)
            for _ in range(20):
                self.assertEqual(os.pread(reader.fileno(), 100, 0), b"BBAAAAAA")
            # Nor is the root asked for them; a drain in the background may ask it for others.
            self.assertGreater(before["reads"], 0)
            self.assertEqual(self.stat(1)["reads"], before["reads"], "the kernel has not kept what it read")
            for path in (one, other):
                self.assertRaises(PermissionError, os.open, path, os.O_WRONLY)
                self.assertRaises(PermissionError, os.truncate, path, 1)
            os.chmod(other, 0o644)
            for content in (b"CCCC", b"DDDD", b"EEEE"):  # each commit takes the old reader's pages back
                with open(one, "r+b") as file:
                    file.write(content)
                self.assertEqual(os.pread(reader.fileno(), 100, 0), content + b"AAAA")
        for process in started:
            process.send_signal(signal.SIGTERM)
        for status, said in self.ends(started):
            self.assertEqual(status, 0, said)
        self.nothing_is_left()

    def stat(self, node):
        return json.loads(run(SWALE, "fs", "stat", "--json", self.at(node)))

    # It may have kept what an unseal takes back. (A file that the dead one has the name of is not found.)
    def test_no_file_is_unsealed_without_a_node(self):
        names = [f"f{i}" for i in range(10)]
        self.serve()
        for name in names:
            with open(self.at(0, name), "wb") as file:
                file.write(b"bytes")
            self.assertEqual(self.seal(self.at(0, name)).stderr, "")
        for number in self.servers(self.at(1)):
            os.kill(number, signal.SIGKILL)
        refused = 0
        for name in names:
            try:
                os.stat(self.at(0, name))
            except OSError:
                continue
            with self.assertRaises(OSError) as failed:
                os.chmod(self.at(0, name), 0o644)
            self.assertEqual(failed.exception.errno, errno.EIO)
            self.assertRaises(OSError, os.open, self.at(0, name), os.O_WRONLY)
            refused += 1
        self.assertGreater(refused, 0)
        print(f"{refused} files stay sealed")

    # The canary: what one node has is missed.
    def test_a_job_is_not_started_again_without_what_a_node_has(self):
        self.killed_at("all have written", lambda: len(os.listdir(self.steps)) == 2)
        self.forget_memory_of("buffer-1")
        shutil.rmtree(os.path.join(self.scratch, "buffer-1"))
        for status, said in self.ends(self.launch("", ranks=2)):
            self.assertNotEqual(status, 0)
        self.assertIn("that of rank 1 of no job", said)

    def test_a_launcher_that_dies_leaves_servers_that_bring_all_to_the_backing(self):
        program = PROGRAM + """
with open(f"{root}/own-{rank}", "wb") as own: own.write(record(0, rank))
meet("written")
time.sleep(%d)
""" % PATIENCE_S
        started = self.launch(program)
        wait_until("all have written", lambda: len(os.listdir(self.steps)) == 4)
        for process in started:
            process.kill()
        wait_until("the servers have ended", lambda: not self.servers())
        self.assertEqual(sorted(os.listdir(self.backing)), [f"own-{rank}" for rank in range(4)])
        self.nothing_is_left()

    def test_a_rank_that_is_stopped_is_named_and_ends_with_the_others_when_it_goes_on(self):
        program = PROGRAM + """
with open(f"{root}/own-{rank}", "wb") as own: own.write(record(0, rank))
meet("written")
while rank == 1 and not os.path.exists(f"{scratch}/stopped"): time.sleep(0.01)
"""
        started = self.launch(program + f"time.sleep({PATIENCE_S} if rank == 2 else 0)")
        wait_until("all have written", lambda: len(os.listdir(self.steps)) == 4)
        started[1].send_signal(signal.SIGSTOP)
        open(os.path.join(self.steps, "stopped"), "w").close()  # its program ends only now
        said, pipe = [], started[0].stderr.fileno()  # there its node's keeper says it
        os.set_blocking(pipe, False)

        def is_named():
            try:
                said.append(os.read(pipe, 1 << 16).decode())
            except BlockingIOError:
                pass
            return f"process {started[1].pid}, which runs a program of this node, is stopped" in "".join(said)
        wait_until("the rank is named", is_named)
        os.set_blocking(pipe, True)
        self.assertIn(f"kill -CONT {started[1].pid}", "".join(said))
        self.assertIsNone(started[0].poll(), "its node's tree has ended without the rank")
        started[1].send_signal(signal.SIGCONT)
        started[2].kill()  # canary: one that runs as long as the test waits is not named
        ended = self.ends(started)
        self.assertEqual([status for status, _ in ended], [0, 0, -signal.SIGKILL, 0], ended)
        self.assertNotIn("is stopped", "".join(said for _, said in ended))
        self.assertEqual(sorted(os.listdir(self.backing)), [f"own-{rank}" for rank in range(4)])
        self.nothing_is_left()

    def test_a_node_that_never_comes_is_named(self):
        one = self.start(0, 2, 0, "run", "--backing", self.backing, "--at", "%a", "--buffer", "%b", "--",
                         "true", SWALE_JOB_JOIN_DEADLINE_S=1)
        (status, said), = self.ends([one])
        self.assertNotEqual(status, 0)
        self.assertIn("1 (never seen)", said)

    def test_ranks_with_different_options_are_told_both(self):
        ended = self.ends([self.start(rank, 2, rank, "run", "--backing", self.backing, "--at", "%a",
                                      "--buffer", "%b", "--at-end", how, "--", "true")
                           for rank, how in enumerate(("drain", "keep"))])
        for status, said in ended:
            self.assertNotEqual(status, 0)
            self.assertIn('rank 0 opened with --at-end="drain", rank 1 with --at-end="keep"', said)

    def test_two_servers_on_one_node_are_refused(self):
        ended = self.ends([self.start(rank, 2, rank, "serve", "--at", "%a", "--buffer", "%b", self.backing,
                                      SWALE_JOB_NODE="same") for rank in range(2)])
        for status, said in ended:
            self.assertNotEqual(status, 0)
            self.assertIn("ranks 0 and 1 are on one node", said)

    def test_killed_servers_are_recovered_together_and_no_other_job_comes_between(self):
        with open(os.path.join(self.backing, "old"), "wb") as file:
            file.write(b"old bytes")
        started = self.serve("--at-end", "keep")
        other = self.start(0, 1, "other", "serve", "--at", "%a", "--buffer", "%b", self.backing)
        (status, said), = self.ends([other])
        self.assertNotEqual(status, 0)
        self.assertIn("a job has it now", said)
        for node, name in ((0, "new"), (1, "old")):
            with open(self.at(node, name), "r+b" if name == "old" else "wb") as file:
                file.write(b"NEW")
        seen = listing(self.at(0))
        self.assertEqual(listing(self.at(1)), seen)
        for process in started:
            process.kill()
        self.ends(started)
        for node in range(2):
            subprocess.run(["fusermount3", "-u", "-z", self.at(node)], check=True)
        # Its servers are dead: the lock is free.
        other = self.start(0, 1, "other", "serve", "--at", "%a", "--buffer", "%b", self.backing)
        (status, said), = self.ends([other])
        self.assertNotEqual(status, 0)
        self.assertIn("has ended without bringing all to it", said)
        alone = self.start(0, 1, 0, "fs", "recover", "--buffer", "%b", self.backing)
        (status, said), = self.ends([alone])
        self.assertNotEqual(status, 0)
        self.assertIn("is at no rank of this job", said)
        recover = [self.start(rank, 2, 1 - rank, "fs", "recover", "--buffer", "%b", self.backing)
                   for rank in range(2)]
        for status, said in self.ends(recover):
            self.assertEqual(status, 0, said)
        self.assertEqual(listing(self.backing), seen)
        with open(os.path.join(self.backing, "old"), "rb") as file:
            self.assertEqual(file.read(), b"NEW bytes")
        self.nothing_is_left()

    # It holds its node's buffer: nobody starts the job anew beside it, and it cannot wake to another job.
    def test_a_server_that_is_stopped_is_named_before_its_job_is_recovered(self):
        started = self.serve()
        self.assertEqual(json.loads(run(SWALE, "info", "--json", self.backing))["jobs"],
                         [name for name in os.listdir(os.path.join(self.backing, ".swale"))
                          if name.startswith("job-")])
        with open(self.at(1, "new"), "wb") as file:
            file.write(b"of node 1")
        started[1].send_signal(signal.SIGSTOP)
        started[0].kill()
        self.ends(started[:1])
        subprocess.run(["fusermount3", "-u", "-z", self.at(0)], check=True)

        def recover():
            return self.ends([self.start(rank, 2, rank, "fs", "recover", "--buffer", "%b", self.backing)
                              for rank in range(2)])
        for status, said in recover():
            self.assertNotEqual(status, 0)
            self.assertIn("a job has it now: wait until its server has ended", said)
            self.assertIn("buffer-1", said)
        self.assertFalse(os.path.exists(os.path.join(self.backing, "new")))
        started[1].kill()
        self.ends(started[1:])
        self.assertEqual([status for status, _ in recover()], [0, 0])
        with open(os.path.join(self.backing, "new"), "rb") as file:
            self.assertEqual(file.read(), b"of node 1")
        self.nothing_is_left()

    def test_a_drain_that_fails_on_one_node_fails_all(self):
        for name in ("f", "g"):
            with open(os.path.join(self.backing, name), "wb") as file:
                file.write(b"old")
        started = self.serve()
        with open(self.at(1, "f"), "wb") as file:
            file.write(b"ours")
        with open(os.path.join(self.backing, "f"), "wb") as file:
            file.write(b"theirs, longer")
        for process in started:
            process.send_signal(signal.SIGTERM)
        for status, said in self.ends(started):
            self.assertNotEqual(status, 0)
            self.assertIn("others have changed it", said)
        with open(os.path.join(self.backing, "f"), "rb") as file:
            self.assertEqual(file.read(), b"theirs, longer")
        self.nothing_is_left()

    # The first node's mount has ended; its bytes are read until the last has.
    def test_a_node_that_ends_early_is_read_from_until_all_have_ended(self):
        first, second = self.serve("--at-end", "keep")
        with open(self.at(0, "early"), "wb") as file:
            file.write(b"e" * 100_000)
        first.send_signal(signal.SIGTERM)
        wait_until("the first node is unmounted", lambda: not os.path.ismount(self.at(0)))
        with open(self.at(1, "early"), "rb") as file:
            self.assertEqual(file.read(), b"e" * 100_000)
        self.assertFalse(os.path.exists(os.path.join(self.backing, "early")))
        run(SWALE, "fs", "sync", self.at(1))
        self.assertTrue(os.path.exists(os.path.join(self.backing, "early")))
        self.assertEqual(json.loads(run(SWALE, "fs", "stat", "--json", self.at(1)))["fsync"], "node")
        second.send_signal(signal.SIGTERM)
        self.assertEqual([status for status, _ in self.ends([first, second])], [0, 0])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
