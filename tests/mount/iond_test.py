#!/usr/bin/env python3
"""iond_test.py SWALE LIBSWALE [--long]: I/O servers and clients as processes: `swale iond`, and programs that
use swale/swale_iond.h.

Clients stripe files over two servers; one is killed in a write; a server is killed and started again: nothing
that it had acknowledged is missing.
"""
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../security"))
import ordinary_user  # noqa: E402

SWALE = os.path.abspath(sys.argv[1])
LIBRARY = os.path.abspath(sys.argv[2])
LONG = "--long" in sys.argv
STRIPE = 65536
BLOCK = 100_000  # of one write; no multiple of a stripe
UNAVAILABLE, DEADLINE = "unavailable", "deadline exceeded"


class Client:
    """The C interface in a process of its own; `client` below is its main program."""

    def __init__(self):
        self.lib = ctypes.CDLL(LIBRARY)
        self.lib.swale_last_error.restype = ctypes.c_char_p
        self.lib.swale_code_name.restype = ctypes.c_char_p
        self.lib.swale_stats_json.restype = ctypes.c_char_p
        self.job, self.iond = ctypes.c_void_p(), ctypes.c_void_p()

    def call(self, name, *arguments):
        code = getattr(self.lib, "swale_" + name)(*arguments)
        if code != 0:
            raise OSError(self.lib.swale_code_name(code).decode(), self.lib.swale_last_error().decode())

    def open(self):
        self.call("job_open", None, None, ctypes.byref(self.job))
        self.call("iond_open", self.job, 0, f"iond.stripe={STRIPE},iond.deadline_s=20".encode(),
                  ctypes.byref(self.iond))

    def file(self, name, flags=1):
        file = ctypes.c_void_p()
        self.call("iond_file_open", self.iond, name.encode(), flags, 0o640, ctypes.byref(file))
        return file

    def attributes(self, call, *of):
        found = Attributes(struct_bytes=ctypes.sizeof(Attributes))
        self.call(call, *of, ctypes.byref(found))
        return found

    def write(self, file, offset, data):
        self.call("iond_write", file, ctypes.c_uint64(offset), data, ctypes.c_size_t(len(data)))

    def read(self, file, offset, size):
        data, got = ctypes.create_string_buffer(size), ctypes.c_size_t()
        self.call("iond_read", file, ctypes.c_uint64(offset), data, ctypes.c_size_t(size), ctypes.byref(got))
        return data.raw[:got.value]

    def list(self, name):
        names = []
        take = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int)(
            lambda _, entry, kind: names.append(entry.decode()))
        self.call("iond_list", self.iond, name.encode(), take, None)
        return names

    def close(self):
        self.call("iond_close", self.iond)
        self.call("job_close", self.job)


class Attributes(ctypes.Structure):
    """swale_attributes"""
    _fields_ = [("struct_bytes", ctypes.c_size_t), ("size", ctypes.c_uint64),
                ("generation", ctypes.c_uint64), ("mode", ctypes.c_uint32),
                ("sealed", ctypes.c_uint32), ("created_ns", ctypes.c_int64), ("modified_ns", ctypes.c_int64)]


def block(name, number):
    return (f"{name} {number} ".encode() * BLOCK)[:BLOCK]


def tell(**words):
    print(json.dumps(words), flush=True)


def make_folders(mine, top, count):
    """Makes folders with a file each, and renames each to its place below `top`; says how many are there."""
    mine.call("iond_mkdir", mine.iond, top.encode(), 0o755)
    for i in range(count):
        mine.call("iond_mkdir", mine.iond, f"new{i}".encode(), 0o700)
        file = mine.file(f"new{i}/file")
        mine.write(file, 0, block(top, i)[:100])
        mine.call("iond_file_close", file)
        mine.call("iond_rename", mine.iond, f"new{i}".encode(), f"{top}/{i:06}".encode())
        tell(done=i + 1)


def look_at_folders(mine, top, count):
    """The first `count` ones are there as a whole, and at most one more."""
    names = mine.list(top)
    assert names[:count] == [f"{i:06}" for i in range(count)] and len(names) <= count + 1, names
    for i in range(count):
        assert mine.list(f"{top}/{i:06}") == ["file"], i
        file = mine.file(f"{top}/{i:06}/file", flags=0)
        assert mine.read(file, 0, BLOCK) == block(top, i)[:100], i
        mine.call("iond_file_close", file)
    assert mine.attributes("iond_stat", mine.iond, f"{top}/000000".encode()).mode == 0o40700
    tell(done=count)


def client(what, name, count):
    """Writes or checks `count` blocks of file `name`; says how many were acknowledged."""
    done = 0
    mine = Client()
    try:
        mine.open()
        if what in ("folders", "look"):
            (make_folders if what == "folders" else look_at_folders)(mine, name, count)
            mine.close()
            return tell(ended=True)
        file = mine.file(name)
        for i in range(count):
            if what == "check":
                assert mine.read(file, i * BLOCK,
                                 BLOCK) == block(name, i), f"{name}: block {i} is another one"
            else:
                mine.write(file, i * BLOCK, block(name, i))
            done = i + 1
            if what == "slow" or done in (1, count):
                tell(done=done)
        if what == "names":
            mine.call("iond_rename", mine.iond, name.encode(), b"other")
            for found in (mine.attributes("iond_file_stat", file),
                          mine.attributes("iond_stat", mine.iond, b"other")):
                assert found.size == count * BLOCK, found.size
                assert found.mode & 0o740 == 0o600 | found.mode & 0o40 and found.sealed == 0, oct(found.mode)
                assert abs(found.modified_ns / 1e9 - time.time()) < 100, found.modified_ns
            stats = ctypes.c_void_p()
            mine.call("iond_stats", mine.iond, ctypes.byref(stats))
            told = json.loads(mine.lib.swale_stats_json(stats).decode())
            mine.lib.swale_stats_free(stats)
            assert told["ranks"] == 2 and told["stats"]["write.bytes"]["sum"] >= count * BLOCK, told
            mine.call("iond_truncate", file, ctypes.c_uint64(5))
            assert mine.read(file, 0, 100) == block(name, 0)[:5]
            mine.call("iond_sync", file)
            mine.call("iond_drain", mine.iond)
            mine.call("iond_remove", mine.iond, b"other")
        mine.call("iond_file_close", file)
        mine.close()
        tell(done=done, ended=True)
    except OSError as failure:
        tell(done=done, code=failure.args[0], message=failure.args[1])
        os._exit(3)


class IondTest(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.mkdtemp(prefix="iond-", dir=os.getcwd())
        # Not there: who runs the test as root need not own the folders above it.
        self.meet = tempfile.mkdtemp(prefix="iond-meet-")
        self.processes = []
        for server in (0, 1):
            os.mkdir(f"{self.root}/disk{server}")
        self.jobs = 0

    def tearDown(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.communicate()
        shutil.rmtree(self.root)
        shutil.rmtree(self.meet)

    def start(self, *clients, durability="page-cache", tcp=False):
        """Two servers and these clients (what, name, count), as one job. tcp: for a case that kills a rank. A
        rank that dies in the middle of a send through shared memory leaves its receiver deaf
        (docs/design/transport.md, "Limits"). Only there do ranks wait for one that does not come."""
        self.jobs += 1
        started = []
        for rank in range(2 + len(clients)):
            environment = dict(os.environ, SWALE_JOB_RANK=str(rank), SWALE_JOB_SIZE=str(2 + len(clients)),
                               SWALE_JOB_ID=f"iond{os.getpid()}.{self.jobs}", SWALE_JOB_RENDEZVOUS=self.meet,
                               SWALE_NET_CLOSE_DEADLINE_S="1" if tcp else "60",
                               SWALE_NET_SILENCE_DEADLINE_S="15" if tcp else "60",
                               LD_LIBRARY_PATH=os.path.dirname(LIBRARY))  # of libswale-ucx.so
            if tcp:
                # one node has no TCP
                environment.update(UCX_TLS="tcp,self", SWALE_JOB_NODE=f"node{rank % 2}")
            if rank < 2:
                words = [SWALE, "iond", "--ssd", f"{self.root}/ssd%r", "--backing", f"{self.root}/disk%r",
                         "--size", "16M", "--durability", durability, "--options",
                         f"iond.stripe={STRIPE},iond.watch_s=0.2"]
            else:
                what, name, count = clients[rank - 2]
                words = [ordinary_user.python(), os.path.abspath(__file__), SWALE, LIBRARY, "--client", what,
                         name, str(count)]
            started.append(subprocess.Popen(words, env=environment, stdout=subprocess.PIPE,
                                            stderr=subprocess.PIPE, text=True))
        self.processes += started
        return started

    def said(self, process, timeout=120):
        """The last line of a client, and its exit status."""
        out, err = process.communicate(timeout=timeout)
        lines = out.split("\n")
        self.assertGreater(len(lines), 1, err)
        return json.loads(lines[-2]), process.returncode

    def test_clients_write_and_read_files_that_outlive_servers(self):
        servers_and_clients = self.start(("write", "a", 30), ("write", "b", 30), ("names", "c", 10))
        for process in servers_and_clients[2:]:
            words, status = self.said(process)
            self.assertEqual((words.get("ended"), status), (True, 0), words)
        for server in servers_and_clients[:2]:
            _, err = server.communicate(timeout=120)
            self.assertEqual(server.returncode, 0, err)
        for process in self.start(("check", "a", 30), ("check", "b", 30))[2:]:
            words, status = self.said(process)
            self.assertEqual((words.get("ended"), status), (True, 0), words)

    def test_a_client_that_is_killed_in_a_write_hinders_nobody(self):
        first, second, writer, victim = self.start(("write", "a", 60), ("slow", "v", 100_000), tcp=True)
        acknowledged = 0
        while acknowledged < 40:
            acknowledged = json.loads(victim.stdout.readline())["done"]
        victim.send_signal(signal.SIGKILL)
        words, _ = self.said(writer)
        self.assertEqual(words["done"], 60, words)
        for server in (first, second):
            _, err = server.communicate(timeout=120)
            self.assertIn("rank 3", err)
        for process in self.start(("check", "a", 60), ("check", "v", acknowledged))[2:]:
            words, status = self.said(process)
            self.assertEqual((words.get("ended"), status), (True, 0), words)

    def test_a_server_that_is_killed_is_named_and_loses_nothing(self):
        for round_ in range(5) if LONG else (1,):
            first, second, writer = self.start(("slow", f"s{round_}", 100_000), tcp=True)
            while json.loads(writer.stdout.readline())["done"] < 15 + 10 * round_:
                pass
            (second if round_ % 2 else first).send_signal(signal.SIGKILL)
            words, status = self.said(writer)
            self.assertEqual(status, 3, words)
            self.assertIn(words["code"].lower().replace("_", " "), (UNAVAILABLE, DEADLINE), words)
            self.assertIn(f"rank {round_ % 2} (host", words["message"])
            (first if round_ % 2 else second).communicate(timeout=120)
            checker = self.start(("check", f"s{round_}", words["done"]))[2]
            words, status = self.said(checker)
            self.assertEqual((words.get("ended"), status), (True, 0), words)

    def test_the_server_of_the_names_is_killed_and_loses_none(self):
        first, second, maker = self.start(("folders", "top", 100_000), tcp=True)
        made = 0
        while made < 15:
            made = json.loads(maker.stdout.readline())["done"]
        first.send_signal(signal.SIGKILL)
        out, err = maker.communicate(timeout=120)
        lines = [json.loads(line) for line in out.splitlines()]
        self.assertEqual(maker.returncode, 3, err)
        self.assertIn("rank 0 (host", lines[-1]["message"])
        made = max([made] + [line["done"] for line in lines[:-1]])
        second.communicate(timeout=120)
        words, status = self.said(self.start(("look", "top", made))[2])
        self.assertEqual((words.get("ended"), status), (True, 0), words)
        out, err = self.start(("look", "top", made + 2))[2].communicate(timeout=120)  # it can fail
        self.assertIn("AssertionError", err)

    def stats(self, server, *words):
        return subprocess.run([SWALE, "tier", "stats", f"{self.root}/ssd{server}", *words],
                              capture_output=True, text=True, timeout=100)

    def test_a_server_that_runs_says_how_it_stands(self):
        first, _, writer = self.start(("slow", "a", 100_000))
        while json.loads(writer.stdout.readline())["done"] < 10:
            pass
        for server in (0, 1):
            until = time.monotonic() + 60  # it serves requests before it makes its socket
            while (told := self.stats(server, "--json")).returncode != 0 and time.monotonic() < until:
                time.sleep(0.05)
            self.assertEqual(told.returncode, 0, told.stderr)
            found = json.loads(told.stdout)
            found = found["stats"]
            self.assertEqual((found["clients"]["min_rank"], found["clients"]["sum"],
                              found["files.open"]["sum"]), (server, 1, 1))
            self.assertGreater(found["write.bytes"]["sum"], 4 * BLOCK)
            self.assertGreater(found["log.capacity"]["sum"], 15 * 2**20)
            for name in ("ssd.bytes", "random.now", "random.threshold", "flush.active", "flush.paused",
                         "requests.waiting"):
                self.assertIn(name, found)
        text = self.stats(0).stdout
        self.assertIn("random percentage", text)
        self.assertIn("1 ranks with 1 open files", text)
        lines = self.stats(1, "--live", "--every", "0.05", "--rounds", "3").stdout.splitlines()
        self.assertEqual([line.startswith("SSD [") for line in lines], [True] * 3, lines)
        info = subprocess.run([SWALE, "info", f"{self.root}/ssd0"], capture_output=True, text=True,
                              timeout=100)
        self.assertIn(f"swale tier stats {self.root}/ssd0", info.stdout)
        first.send_signal(signal.SIGKILL)
        first.wait(timeout=120)
        told = self.stats(0)
        self.assertNotEqual(told.returncode, 0)
        self.assertIn("was killed", told.stderr)
        told = subprocess.run([SWALE, "tier", "stats", f"{self.root}/disk0"], capture_output=True, text=True,
                              timeout=100)
        self.assertEqual(told.returncode, 2)
        self.assertIn("nor the SSD directory", told.stderr)

    def test_canary_a_block_that_is_not_there_is_found(self):
        self.said(self.start(("write", "a", 3))[2])
        checker = self.start(("check", "a", 4))[2]
        out, err = checker.communicate(timeout=120)
        self.assertNotEqual(checker.returncode, 0)
        self.assertIn("a: block 3 is another one", err)


if __name__ == "__main__":
    if sys.argv[3:4] == ["--client"]:
        client(sys.argv[4], sys.argv[5], int(sys.argv[6]))
    else:  # all of it as an ordinary user
        sys.exit(ordinary_user.run(lambda: unittest.main(argv=sys.argv[:1]
                                                         + [word for word in sys.argv[3:]
                                                            if word != "--long"])))
