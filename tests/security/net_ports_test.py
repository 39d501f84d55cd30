#!/usr/bin/env python3
"""net_ports_test.py FAULT_WRITER META_RANKS SWALE [LIBSWALE]: a job on one node opens nothing that a
neighbour could reach, one on several nodes nothing but ports of TLS.

Massive directories, the metadata store and I/O servers, as jobs of several processes on this machine. While
they work, /proc is read: no port, no System V segment, no shared memory with another mode than 0600.
"""
import os
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import time
import unittest

import net_openings
import ordinary_user

FAULT_WRITER, META_RANKS, SWALE = (os.path.abspath(path) for path in sys.argv[1:4])
LIBRARY = os.path.abspath(sys.argv[4]) if len(sys.argv) > 4 else None
IOND_CLIENT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "mount", "iond_test.py")
RANKS = 4
PATIENCE_S = 120
STRANGER = 12345  # a user


class Ports(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.mkdtemp(prefix="swale-ports-")
        os.mkdir(f"{self.root}/meet", 0o700)
        self.processes = []

    def tearDown(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.communicate()
        shutil.rmtree(self.root)

    def start(self, programs, node=None, **variables):
        """A job with a rank for each of the programs. `node`: of a rank, for jobs that are to believe in
        several nodes.
        """
        for rank, words in enumerate(programs):
            environment = dict(os.environ, SWALE_JOB_RANK=str(rank), SWALE_JOB_SIZE=str(len(programs)),
                               SWALE_JOB_ID=f"ports{os.getpid()}", SWALE_JOB_RENDEZVOUS=f"{self.root}/meet",
                               **{"SWALE_LOG": "warn", **variables})
            if LIBRARY:
                environment["LD_LIBRARY_PATH"] = os.path.dirname(LIBRARY)  # of libswale-ucx.so
            if node:
                environment["SWALE_JOB_NODE"] = node(rank)
            with open(f"{self.root}/stderr{rank}", "w") as errors:
                self.processes.append(subprocess.Popen(words, env=environment, stdin=subprocess.PIPE,
                                                       stdout=subprocess.PIPE, stderr=errors, text=True))

    def start_writers(self, **more):
        """Ranks that write a massive directory. When this returns, all have met all others, and the last one
        waits.
        """
        self.start([[FAULT_WRITER, f"{self.root}/directory", "3", "2000", "end 1" if rank == RANKS - 1
                     else "none"]
                    for rank in range(RANKS)], **more)
        for line in self.processes[-1].stdout:
            if line.strip() == "end 1":
                return
        self.fail(self.logged())

    def logged(self):
        text = ""
        for rank in range(len(self.processes)):
            with open(f"{self.root}/stderr{rank}") as errors:
                text += errors.read()
        return text

    def finish(self):
        self.processes[-1].stdin.write("g")
        self.processes[-1].stdin.flush()
        for process in self.processes:
            out, _ = process.communicate(timeout=PATIENCE_S)
            self.assertEqual(process.returncode, 0, out + self.logged())

    def openings(self):
        """All that is wrong, of all ranks that live; and how many shared files they have."""
        wrong, files = set(), 0
        for process in self.processes:
            if process.poll() is not None:
                continue
            try:
                wrong |= net_openings.listeners(process.pid)
                wrong |= net_openings.system_v_segments({process.pid})
                shared = net_openings.shared_files(process.pid)
            except OSError:  # it has just ended: /proc says so in several ways
                process.wait(timeout=PATIENCE_S)
                continue
            files += len(shared)
            wrong |= {f"{path} mode {mode:04o}" for path, mode in shared.items() if mode != 0o600}
        return wrong, files

    def expect_none_while(self, running):
        """Looks again and again as long as `running` says; all ranks must have been seen with shared memory.
        """
        most, looks = 0, 0
        until = time.monotonic() + PATIENCE_S
        while running():
            self.assertLess(time.monotonic(), until, self.logged())
            wrong, files = self.openings()
            self.assertEqual(wrong, set())
            most, looks = max(most, files), looks + 1
            time.sleep(0.02)
        self.assertGreaterEqual(most, len(self.processes), f"{looks} looks have seen no shared memory: "
                                f"{self.logged()}")

    def test_a_massive_directory_on_one_node(self):
        self.start_writers()
        wrong, files = self.openings()
        self.assertEqual(wrong, set())
        self.assertGreaterEqual(files, RANKS, "the ranks have no shared memory to talk by")
        self.finish()
        self.assertEqual(self.logged(), "")

    def test_what_the_user_says_of_ucx_opens_no_port_on_one_node(self):
        self.start_writers(UCX_TLS="tcp,sysv,self")
        self.assertEqual(self.openings()[0], set())
        self.finish()
        self.assertEqual(self.logged().count("UCX_TLS=tcp,sysv,self is not used"), 1, self.logged())

    def test_a_node_without_memory_for_the_job_gets_an_error_and_no_port(self):
        small = subprocess.run(["unshare", "--mount", "sh", "-c", "mount -t tmpfs -o size=1M none /dev/shm "
                                "&& df /dev/shm"],
                               capture_output=True, text=True)
        if small.returncode != 0:
            self.skipTest(f"no mounts of one's own here: {small.stderr}")
        before = "mount -t tmpfs -o size=1M none /dev/shm && exec"
        self.start([["unshare", "--mount", "sh", "-c", f"{before} {FAULT_WRITER} {self.root}/directory 1 10 "
                     f"none"]] * 2,
                   node=lambda rank: "here")
        for process in self.processes:
            out, _ = process.communicate(timeout=PATIENCE_S)
            self.assertNotEqual(process.returncode, 0, out)
            self.assertIn("/dev/shm", out, self.logged())

    def test_a_job_that_asks_for_shared_memory_is_told_nothing(self):
        self.start_writers(UCX_TLS="self,posix")
        self.finish()
        self.assertEqual(self.logged(), "")

    def test_a_metadata_store_on_one_node(self):
        self.start([[META_RANKS, f"{self.root}/store", "2", "ring", "200", "1000", "none"]] * RANKS,
                   node=lambda rank: "here")
        self.expect_none_while(lambda: any(process.poll() is None for process in self.processes))
        for process in self.processes:
            self.assertEqual(process.wait(), 0, self.logged())

    @unittest.skipIf(LIBRARY is None, "its clients load the library into Python, which has no sanitizer")
    def test_io_servers_and_their_client_on_one_node(self):
        for server in (0, 1):
            os.mkdir(f"{self.root}/disk{server}")
        ordinary_user.give(self.root)  # an I/O server refuses to run as root
        server = [SWALE, "iond", "--ssd", f"{self.root}/ssd%r", "--backing", f"{self.root}/disk%r", "--size",
                  "16M", "--options", "iond.stripe=65536"]
        client = [ordinary_user.python(), IOND_CLIENT, SWALE, LIBRARY, "--client", "write", "file", "200"]
        self.start([ordinary_user.words(*words) for words in (server, server, client)])
        self.expect_none_while(lambda: self.processes[2].poll() is None)
        for process in self.processes:
            out, _ = process.communicate(timeout=PATIENCE_S)
            self.assertEqual(process.returncode, 0, out + self.logged())

    def test_a_stranger_can_wake_ranks_and_do_no_more(self):
        self.start_writers()
        names = set().union(*(net_openings.bells(process.pid) for process in self.processes))
        self.assertTrue(names, "UCX has no wake-ups: this test has nothing to try")
        stranger = os.fork()
        if stranger == 0:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(STRANGER)
                os.setuid(STRANGER)
            caller = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            caller.setblocking(False)
            try:
                while True:
                    for name in names:
                        try:
                            caller.sendto(os.urandom(512), name.replace("@", "\0"))
                        except BlockingIOError:
                            pass
            finally:
                os._exit(0)
        try:
            time.sleep(0.5)
            self.finish()
        finally:
            os.kill(stranger, signal.SIGKILL)
            os.waitpid(stranger, 0)
        self.assertEqual(self.logged(), "")
        checked = subprocess.run([SWALE, "verify", f"{self.root}/directory"], capture_output=True, text=True)
        self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)

    def test_a_killed_rank_leaves_nothing_open(self):
        self.start_writers(SWALE_NET_SILENCE_DEADLINE_S="3", SWALE_NET_CLOSE_DEADLINE_S="3")
        # Other programs come and go in /dev/shm meanwhile. These are the files of the ranks, and of this job.
        theirs = set().union(*(net_openings.shared_files(process.pid) for process in self.processes))
        self.assertTrue(theirs, "the ranks have no shared memory to talk by")
        self.processes[-1].send_signal(signal.SIGKILL)
        for process in self.processes:
            process.communicate(timeout=PATIENCE_S)
        left = {path for path in theirs if os.path.exists(path)}
        left |= {name for name in os.listdir("/dev/shm") if f"ports{os.getpid()}" in name}
        self.assertEqual(left, set())

    def doors(self):
        """Where the ranks that live wait for others: (family, address, port)."""
        found = set()
        for process in self.processes:
            for listener in net_openings.listeners(process.pid):
                protocol, place = listener.split()
                self.assertIn(protocol, ("tcp", "tcp6"), listener)
                words, port = place.split(":")
                # The kernel prints the words of an address as numbers of this machine's byte order.
                packed = b"".join(struct.pack("=I", int(words[at:at + 8], 16))
                                  for at in range(0, len(words), 8))
                family = socket.AF_INET if protocol == "tcp" else socket.AF_INET6
                found.add((family, socket.inet_ntop(family, packed), int(port, 16)))
        return found

    def test_a_job_on_several_nodes_has_no_port_but_those_of_tls(self):
        self.start_writers(node=lambda rank: f"node{rank % 2}", SWALE_LOG="info")
        self.assertIn("talk by TLS: rank 0 has no RDMA", self.logged())
        doors = self.doors()
        self.assertGreaterEqual(len(doors), RANKS)
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        for family, address, port in doors:
            self.assertNotIn(address, ("127.0.0.1", "::1", "0.0.0.0", "::"), "loopback, or every interface")
            with socket.socket(family) as stranger:
                stranger.connect((address, port))
                # by an alert of TLS, not by a protocol of ours
                with self.assertRaises(ssl.SSLError) as refused:
                    context.wrap_socket(stranger)
                self.assertIn("ALERT", str(refused.exception).upper())
            with socket.socket(family) as stranger:
                stranger.settimeout(PATIENCE_S)
                stranger.connect((address, port))
                stranger.sendall(b"\xff" * 4096)
                try:
                    while stranger.recv(4096):
                        pass
                except ConnectionResetError:
                    pass
        self.finish()
        self.assertIn("is not of this job", self.logged())
        checked = subprocess.run([SWALE, "verify", f"{self.root}/directory"], capture_output=True, text=True)
        self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)

    def test_ucx_without_rdma_and_without_trust_is_refused(self):
        self.start([[FAULT_WRITER, f"{self.root}/directory", "1", "10", "none"]] * 2,
                   node=lambda rank: f"node{rank}", SWALE_JOB_TRANSPORT="ucx")
        for process in self.processes:
            out, _ = process.communicate(timeout=PATIENCE_S)
            self.assertNotEqual(process.returncode, 0, out)
            self.assertIn("job.trust=network", out + self.logged())

    def test_a_trusted_network_is_used_where_it_is_and_not_on_loopback(self):
        self.start_writers(node=lambda rank: f"node{rank % 2}", SWALE_LOG="info", SWALE_JOB_TRUST="network")
        self.assertIn("talk by UCX: the network is trusted", self.logged())
        doors = self.doors()
        self.assertGreaterEqual(len(doors), RANKS)
        self.assertEqual([door for door in doors if door[1] in ("127.0.0.1", "::1", "0.0.0.0", "::")], [])
        self.finish()

    # Canaries: the look sees what it should not see.
    def test_canary_listeners_of_every_kind_are_seen(self):
        me = os.getpid()
        self.assertEqual(net_openings.listeners(me), set())
        sockets = [socket.socket(socket.AF_INET, socket.SOCK_STREAM),
                   socket.socket(socket.AF_INET6, socket.SOCK_STREAM),
                   socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
                   socket.socket(socket.AF_UNIX, socket.SOCK_STREAM),
                   socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)]
        for each, where in zip(sockets, [("127.0.0.1", 0), ("::1", 0), ("127.0.0.1", 0),
                                         f"\0swale-canary-{me}", f"{self.root}/open"]):
            each.bind(where)
            if each.type == socket.SOCK_STREAM:
                each.listen()
        os.chmod(f"{self.root}/open", 0o777)
        kinds = sorted(listener.split()[0] for listener in net_openings.listeners(me))
        self.assertEqual(kinds, ["tcp", "tcp6", "udp", "unix", "unix"])
        os.chmod(f"{self.root}/open", 0o755)
        self.assertNotIn(f"unix {self.root}/open", net_openings.listeners(me), "nobody else may connect")
        for each in sockets:
            each.close()
        self.assertEqual(net_openings.listeners(me), set())

    def test_canary_a_job_that_believes_in_two_nodes_has_ports(self):
        self.start_writers(node=lambda rank: f"node{rank % 2}")
        wrong, _ = self.openings()
        self.assertTrue(any(each.startswith("tcp ") for each in wrong), wrong)
        self.assertFalse(any("segment" in each or "SYSV" in each for each in wrong),
                         "System V is used nowhere")
        self.finish()

    def test_canary_shared_memory_with_another_mode_is_seen(self):
        path = f"/dev/shm/swale-canary-{os.getpid()}"
        with open(path, "w") as file:
            os.chmod(path, 0o640)
            self.assertEqual(net_openings.shared_files(os.getpid()).get(path), 0o640)
            os.unlink(path)
            self.assertEqual(net_openings.shared_files(os.getpid()).get(path + " (deleted)"), 0o640)
            file.write("")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
