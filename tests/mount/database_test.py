#!/usr/bin/env python3
"""database_test.py SWALE: PostgreSQL on a mount of the tiered write buffer, which is killed under it.

Every transaction that the server has acknowledged is there after a new mount; its own tools find nothing
wrong with tables, indexes and pages; and what the backing directory has after a drain is the same database.
Takes minutes: `make test-long` runs it.
"""
import glob
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import unittest

from mounted import Mounted, run

PROGRAMS = max(glob.glob("/usr/lib/postgresql/*/bin"), default="")
ACKNOWLEDGED = 60  # rows before the mount is killed
PATIENCE_S = 120


class Database(Mounted):
    mount_options = ("--allow-other",) if os.geteuid() == 0 else ()

    def setUp(self):
        program = os.path.join(PROGRAMS, "postgres")
        self.needs(program if PROGRAMS else "postgres")
        # The server refuses to run as root.
        self.as_user = {}
        if os.geteuid() == 0:
            try:
                user = pwd.getpwnam("postgres")
            except KeyError:
                self.skipTest("no user postgres to run the server, which refuses to run as root")
            self.as_user = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        super().setUp()
        os.chmod(self.scratch, 0o755)
        for folder in (self.mounted, self.backing):
            os.chmod(folder, 0o777)
        if subprocess.run(["test", "-w", self.mounted], check=False, **self.as_user).returncode != 0:
            self.skipTest(f"the server's user may not go to {self.mounted}")
        self.sockets = tempfile.mkdtemp(prefix="swale-pg-")
        os.chmod(self.sockets, 0o777)
        self.server = None

    def tearDown(self):
        if getattr(self, "server", None):
            self.server.send_signal(signal.SIGQUIT)
            self.server.wait(timeout=PATIENCE_S)
        if hasattr(self, "sockets"):
            shutil.rmtree(self.sockets)
        super().tearDown()

    def tool(self, name, *words):
        return run(os.path.join(PROGRAMS, name), *words, cwd=self.sockets, **self.as_user)

    def client(self, name, *words):
        return self.tool(name, "-h", self.sockets, "-U", "postgres", *words)

    def rows(self, query):
        return self.client("psql", "-XAtqc", query).split()

    def start(self, root):
        """The server of the database in `root`, when it answers."""
        self.server = subprocess.Popen(
            [os.path.join(PROGRAMS, "postgres"), "-D", os.path.join(root, "db"), "-k", self.sockets, "-c",
             "listen_addresses="],
            cwd=self.sockets, stderr=subprocess.DEVNULL, **self.as_user)
        end = time.monotonic() + PATIENCE_S
        while subprocess.run([os.path.join(PROGRAMS, "pg_isready"), "-qh", self.sockets],
                             check=False).returncode != 0:
            self.assertIsNone(self.server.poll(), "the server has ended")
            self.assertLess(time.monotonic(), end, "the server does not answer")
            time.sleep(0.1)

    def stop(self, how):
        self.server.send_signal(how)
        self.server.wait(timeout=PATIENCE_S)
        self.server = None

    def insert(self, acknowledged):
        """One row a transaction, until the server fails."""
        while True:
            try:
                self.rows(f"insert into acknowledged values ({len(acknowledged)})")
            except AssertionError:
                return
            acknowledged.append(len(acknowledged))

    def dump(self):
        lines = self.client("pg_dump").splitlines()
        # which have random words
        return [line for line in lines if not line.startswith(("\\restrict", "\\unrestrict"))]

    def kill_the_mount_under_the_server(self):
        acknowledged = []
        inserting = threading.Thread(target=self.insert, args=(acknowledged,))
        bench = subprocess.Popen([os.path.join(PROGRAMS, "pgbench"), "-h", self.sockets, "-U", "postgres",
                                  "-n", "-c", "4", "-T", "600"],
                                 cwd=self.sockets, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                 **self.as_user)
        inserting.start()
        end = time.monotonic() + PATIENCE_S
        while len(acknowledged) < ACKNOWLEDGED and time.monotonic() < end:
            time.sleep(0.01)
        self.process.kill()
        self.killed()
        for process in (bench, self.server):
            process.send_signal(signal.SIGQUIT)
            process.wait(timeout=PATIENCE_S)
        self.server = None
        inserting.join()
        run("fusermount3", "-uz", self.mounted)
        self.assertGreaterEqual(len(acknowledged), ACKNOWLEDGED)
        return acknowledged

    def test_postgresql_keeps_what_it_has_acknowledged_when_the_mount_is_killed(self):
        self.tool("initdb", "-D", os.path.join(self.mounted, "db"), "--data-checksums", "-A", "trust", "-U",
                  "postgres", "--no-instructions")
        self.start(self.mounted)
        self.client("pgbench", "-i", "-q", "-s", "2", "postgres")
        self.rows("create extension amcheck; create table acknowledged (n int primary key)")
        for _ in range(2):
            self.rows("truncate acknowledged")
            acknowledged = self.kill_the_mount_under_the_server()
            self.mount()
            # else nothing was put to the test
            self.assertRegex(self.said, "; [1-9][0-9]* bytes were not on ")
            os.remove(os.path.join(self.mounted, "db", "postmaster.pid"))
            self.start(self.mounted)
            found = [int(row) for row in self.rows("select n from acknowledged order by n")]
            # The last one may have been under way.
            self.assertEqual(found[:len(acknowledged)], acknowledged)
            self.assertLessEqual(len(found), len(acknowledged) + 1)
            self.client("pg_amcheck", "--heapallindexed", "postgres")
            balances, history = self.rows("select sum(tbalance) from pgbench_tellers; select sum(delta) "
                                          "from pgbench_history")
            self.assertEqual(balances, history)
        expected = self.dump()
        self.stop(signal.SIGINT)  # a fast shutdown
        self.tool("pg_checksums", "--check", "-D", os.path.join(self.mounted, "db"))
        self.unmount()
        self.start(self.backing)
        self.assertEqual(self.dump(), expected)
        self.stop(signal.SIGINT)
        self.mount()


if __name__ == "__main__":
    unittest.main(argv=["database_test"], verbosity=2)
