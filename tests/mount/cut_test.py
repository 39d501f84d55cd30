#!/usr/bin/env python3
"""cut_test.py SWALE LIBSWALE: the tree of a job on two nodes, of which one is cut off the network, or
stopped: what needs it says so and names it, all else goes on, and nothing waits for ever. One that comes
back after the end of its job changes nothing on the backing.

Each node has a network of its own (a namespace), on a switch that can forget its port: frames vanish without
a word to either end.
"""
import errno
import os
import shutil
import signal
import subprocess
import sys
import time
import unittest

from mounted import listing, run
from nodes_test import NodesCase, PATIENCE_S, wait_until

SILENCE_S = 15  # until a silent node counts as dead
NODES = 2


def no_networks():
    """Why networks of nodes cannot be made here."""
    for program in ("ip", "nsenter", "unshare"):
        if not shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin:/sbin"):
            return f"no {program}"
    tried = subprocess.run(["unshare", "--net", "true"], capture_output=True, text=True, check=False)
    return tried.stderr.strip()


class Cut(NodesCase):
    def setUp(self):
        super().setUp()
        why = no_networks()
        if why:
            self.skipTest(f"no namespaces of hosts here: {why}")
        self.holders = [self.hold_network() for _ in range(NODES + 1)]  # the last one is the switch
        switch = self.holders[NODES]
        self.ip(switch, "link add name hub type bridge")
        self.ip(switch, "link set hub up")
        for node in range(NODES):
            holder = self.holders[node].pid
            self.ip(switch, f"link add name port{node} type veth peer name eth0 netns {holder}")
            self.ip(switch, f"link set port{node} master hub up")
            self.ip(self.holders[node], f"addr add 10.78.0.{node + 1}/24 dev eth0")
            self.ip(self.holders[node], "link set eth0 up")
            self.ip(self.holders[node], "link set lo up")

    def tearDown(self):
        super().tearDown()
        for holder in getattr(self, "holders", []):
            holder.kill()
            holder.wait()

    def hold_network(self):
        holder = subprocess.Popen(["unshare", "--net", "sleep", "100000"])
        own = os.readlink("/proc/self/ns/net")
        wait_until("a network is there", lambda: os.readlink(f"/proc/{holder.pid}/ns/net") != own)
        return holder

    def ip(self, holder, words):
        run("nsenter", "--net", "--target", str(holder.pid), "ip", *words.split(),
            env={**os.environ, "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"})

    def cut(self, node):
        self.ip(self.holders[NODES], f"link set port{node} nomaster")

    def mend(self, node):
        self.ip(self.holders[NODES], f"link set port{node} master hub")

    def words_before(self, node):
        return ["nsenter", "--net", "--target", str(self.holders[node].pid)]

    def serve_both(self, *options):
        return self.serve(*options, nodes=NODES, SWALE_NET_SILENCE_DEADLINE_S=SILENCE_S,
                          SWALE_NET_HEARTBEAT_INTERVAL_S=1)

    def write(self, node, name, content):
        with open(self.at(node, name), "wb") as file:
            file.write(content)

    def read(self, node, name):
        """The bytes, or the errno."""
        try:
            with open(self.at(node, name), "rb") as file:
                return file.read()
        except OSError as failed:
            return failed.errno

    def fill(self):
        """Files of each node, of which each knows the other's; roots are where the hash puts them."""
        names = {node: [f"of-{node}-{i}" for i in range(8)] for node in range(NODES)}
        for node in range(NODES):
            for name in names[node]:
                self.write(node, name, name.encode() * 100)
        for node in range(NODES):
            for name in names[1 - node]:
                self.assertEqual(self.read(node, name), name.encode() * 100)
        return names

    def ended(self, process):
        """Exit status and messages, of one that must end."""
        _, said = process.communicate(timeout=PATIENCE_S)
        return process.returncode, said

    def names_only_the_other(self, node, names):
        """What a node that hears nothing of the other one answers: the bytes, or EIO, never older bytes."""
        found = {name: self.read(node, name) for of in names.values() for name in of}
        for name, got in found.items():
            self.assertIn(got, (name.encode() * 100, errno.EIO, errno.ENOTCONN), name)
        lost = [name for name in names[1 - node] if found[name] == errno.EIO]
        self.assertEqual(lost, names[1 - node], "bytes that only the other node has")
        return [name for name in names[node] if found[name] == name.encode() * 100]

    def recover_without(self, node):
        process = self.start(0, 1, 1 - node, "fs", "recover", "--buffer", "%b", "--without", str(node),
                             "--accept-losses", self.backing)
        return self.ended(process)

    def test_a_node_that_is_cut_off_is_named_and_changes_nothing_after_its_jobs_end(self):
        servers = self.serve_both("--at-end", "drain")
        names = self.fill()
        self.cut(1)
        kept = [len(self.names_only_the_other(node, names)) for node in range(NODES)]
        # The first node comes to its end: it says which node is missing, and what it could bring is there.
        servers[0].send_signal(signal.SIGTERM)
        status, said = self.ended(servers[0])
        self.assertNotEqual(status, 0)
        self.assertRegex(said, "(rank|node) 1|host-1")
        self.assertIn("run swale fs recover", said)
        # The other one sleeps over the end of its job, and wakes with its network.
        servers[1].send_signal(signal.SIGSTOP)
        status, said = self.recover_without(1)
        self.assertIn(status, (0, 1), said)
        there = listing(self.backing)
        self.assertFalse(any(name.startswith(".swale/job-") for name in there), there)
        brought = sum(f"of-0-{i}" in there for i in range(8))
        self.mend(1)
        servers[1].send_signal(signal.SIGCONT)
        status, said = self.ended(servers[1])
        self.assertNotEqual(status, 0)
        self.assertIn("changes nothing any more", said)
        self.assertEqual(listing(self.backing), there, "a node that woke late has changed the backing")
        print(f"cut off: {kept} of 8 own files were read on each node; {brought} of 8 were brought without "
              f"the other node")

    # The canary: what is not cut off changes it.
    def test_canary_a_node_that_is_not_cut_off_brings_all(self):
        servers = self.serve_both("--at-end", "drain")
        names = self.fill()
        for server in servers:
            server.send_signal(signal.SIGTERM)
        for server in servers:
            status, said = self.ended(server)
            self.assertEqual(status, 0, said)
        self.assertEqual(sorted(listing(self.backing)), sorted(name for of in names.values() for name in of))

    # At the end each node waits for the other, in a collective call.
    def test_a_node_that_is_stopped_at_the_end_is_named(self):
        servers = self.serve_both("--at-end", "drain")
        self.fill()
        servers[1].send_signal(signal.SIGSTOP)
        servers[0].send_signal(signal.SIGTERM)
        began = time.monotonic()
        status, said = self.ended(servers[0])
        self.assertNotEqual(status, 0)
        self.assertRegex(said, "(rank|node) 1|host-1")
        print(f"stopped: the other node ended after {time.monotonic() - began:.0f} s; a silent one is "
              f"waited for {SILENCE_S} s")
        servers[1].send_signal(signal.SIGCONT)
        servers[1].send_signal(signal.SIGTERM)
        status, said = self.ended(servers[1])
        self.assertNotEqual(status, 0)
        recovered = [self.start(rank, NODES, rank, "fs", "recover", "--buffer", "%b", self.backing)
                     for rank in range(NODES)]
        for process in recovered:
            status, said = self.ended(process)
            self.assertEqual(status, 0, said)
        self.assertEqual(len(listing(self.backing)), 16)
        self.nothing_is_left()


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
