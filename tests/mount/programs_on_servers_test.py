#!/usr/bin/env python3
"""programs_on_servers_test.py SWALE LIBSWALE PRELOAD [--long]: the programs of real_programs_test.py in a
tree whose backing two I/O servers are, through its mount and through the preload library.

All of it is an ordinary user's, because an I/O server refuses to run as root.
"""
import os
import shutil
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../security"))
import ordinary_user  # noqa: E402
import real_programs_test as programs  # noqa: E402
from mounted import NO_MOUNTS, SWALE  # noqa: E402
from nodes_test import LIBRARIES, PATIENCE_S, wait_until  # noqa: E402

SERVERS = 2
OPTIONS = "iond.stripe=65536"


class ProgramsOnServers(programs.RealPrograms):
    def setUp(self):
        super().setUp()
        programs.ENVIRONMENT["HOME"] = self.scratch  # git and others look there, and root's is closed
        environment = dict(os.environ, LD_LIBRARY_PATH=LIBRARIES, SWALE_JOB_TRANSPORT="tls",
                           SWALE_JOB_RENDEZVOUS=self.make("meeting"), SWALE_JOB_ID=f"servers{os.getpid()}",
                           SWALE_JOB_SIZE=str(SERVERS + 1))
        self.ranks = []
        for rank in range(SERVERS + 1):
            server = ["iond", "--ssd", self.make(f"ssd{rank}"), "--backing", self.make(f"disk{rank}"),
                      "--size", "64M", "--options", f"{OPTIONS},iond.watch_s=0.2"]
            mount = ["iond", "mount", "--foreground", "--options", OPTIONS, self.backing]
            with open(os.path.join(self.scratch, f"said{rank}"), "w", encoding="utf-8") as said:
                self.ranks.append(subprocess.Popen([SWALE, *(server if rank < SERVERS else mount)],
                                                   env=dict(environment, SWALE_JOB_RANK=str(rank)),
                                                   stdout=said, stderr=said))
        wait_until("the servers are mounted", self.is_mounted)

    def is_mounted(self):
        for rank, process in enumerate(self.ranks):
            self.assertIsNone(process.poll(), self.said(rank))
        return os.path.ismount(self.backing)

    def said(self, rank):
        with open(os.path.join(self.scratch, f"said{rank}"), encoding="utf-8") as said:
            return said.read()

    def tearDown(self):
        ranks = getattr(self, "ranks", [])
        try:
            if len(ranks) == SERVERS + 1:
                ranks[-1].send_signal(signal.SIGTERM)
            for rank, process in enumerate(ranks):  # the servers end when the mount has
                self.assertEqual(process.wait(timeout=PATIENCE_S), 0, self.said(rank))
        finally:
            for process in ranks:
                if process.poll() is None:
                    process.kill()
                process.wait(timeout=PATIENCE_S)
            subprocess.run(["fusermount3", "-u", "-z", self.backing], stderr=subprocess.DEVNULL, check=False,
                           timeout=PATIENCE_S)
            super().tearDown()

    def same(self, steps, ways=("mount", "preload"), **more):
        super().same(steps, ways, **more)

    def empty(self, folder):
        """It stays: it may be a mountpoint."""
        for name in os.listdir(folder):
            path = os.path.join(folder, name)
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path)
            else:
                os.unlink(path)


if __name__ == "__main__":
    if not NO_MOUNTS:
        ordinary_user.let_users_mount()
    sys.exit(ordinary_user.run(lambda: unittest.main(argv=sys.argv[:1], verbosity=2)))
