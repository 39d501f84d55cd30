"""Trees that `swale start` starts, for tests; the program's arguments: SWALE LIBSWALE [MPIRUN].

MPIRUN is Open MPI's.
"""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from mounted import NO_MOUNTS, SWALE

PATIENCE_S = 300  # for what must happen, on a machine however slow
LIBRARIES = os.path.dirname(os.path.abspath(sys.argv[2]))  # of libswale-tls.so
MPIRUN = sys.argv[3:4]  # Open MPI's

LAUNCHED = {"LD_LIBRARY_PATH": LIBRARIES, "SWALE_JOB_TRANSPORT": "tls", "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
            "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}


# A launcher of "nodes" of one machine: NODE in a word becomes the rank.
NODE_WORDS = """#!/bin/sh
rank=$OMPI_COMM_WORLD_RANK
export SWALE_JOB_NODE=node$rank
for word; do
  shift
  set -- "$@" "$(printf %s "$word" | sed "s/-NODE/-$rank/g")"
done
exec "$@"
"""


def wait_until(what, done, pause_s=0.05):
    end = time.monotonic() + PATIENCE_S
    while not done():
        if time.monotonic() > end:
            raise AssertionError(f"waited {PATIENCE_S} s until {what}")
        time.sleep(pause_s)


def parent_of(process):
    with open(f"/proc/{process}/stat", encoding="utf-8") as status:
        return int(status.read().rpartition(")")[2].split()[1])


def children_of(process):
    found = []
    for number in os.listdir("/proc"):
        try:
            if number.isdigit() and parent_of(number) == process:
                found.append(int(number))
        except OSError:
            continue
    return found


class Started(unittest.TestCase):
    def setUp(self):
        if NO_MOUNTS:
            self.skipTest(f"no FUSE mounts here: {NO_MOUNTS}; in a container, add --device /dev/fuse "
                          f"--cap-add SYS_ADMIN")
        # /tmp may be without extended attributes
        self.scratch = tempfile.mkdtemp(prefix="swale-start-", dir=os.getcwd())
        self.backing = self.make("backing")
        self.buffer = f"{self.scratch}/buffer"
        self.started = []

    def make(self, name):
        path = os.path.join(self.scratch, name)
        os.mkdir(path)
        return path

    def tearDown(self):
        if not hasattr(self, "scratch"):
            return
        for mountpoint in self.started or [self.backing]:
            self.swale("stop", mountpoint)
        wait_until("the servers have ended", lambda: not self.processes())
        self.assertEqual(self.folders(), [], "something is left in memory")
        shutil.rmtree(self.scratch)

    def swale(self, *words, **environment):
        return subprocess.run([SWALE, *words], capture_output=True, text=True, timeout=PATIENCE_S,
                              env={**os.environ, **LAUNCHED, **environment}, check=False)

    def start(self, *words, at=None):
        done = self.swale("start", self.backing, "--buffer", self.buffer, *words,
                          *(["--at", at] if at else []))
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        self.started.append(at or self.backing)
        return done

    def stop(self, exit_code=0):
        done = self.swale("stop", self.started.pop())
        self.assertEqual(done.returncode, exit_code, done.stderr + done.stdout)
        return done

    def status(self, mountpoint, exit_code=0):
        done = self.swale("status", mountpoint, "--json")
        self.assertEqual(done.returncode, exit_code, done.stderr + done.stdout)
        return json.loads(done.stdout)

    def processes(self):
        """{pid: words} of this test's servers and keepers."""
        found = {}
        for number in os.listdir("/proc"):
            try:
                with open(f"/proc/{number}/cmdline", "rb") as words:
                    line = words.read().decode(errors="replace")
            except OSError:
                continue
            ours = self.scratch in line and line.startswith(SWALE)
            if ours and number.isdigit() and int(number) != os.getpid():
                found[int(number)] = line
        return found

    def folders(self):
        """Of keepers whose documents name this test's folder, and those without one."""
        found = []
        for name in os.listdir("/dev/shm"):
            if not name.startswith(f"swale-start-{os.geteuid()}-"):
                continue
            try:
                with open(f"/dev/shm/{name}/started.json", encoding="utf-8") as document:
                    if self.scratch in document.read():
                        found.append(name)
            except OSError:
                continue
        return found

    def write(self, folder, name, text):
        with open(f"{folder}/{name}", "w", encoding="utf-8") as file:
            file.write(text)

    def read(self, folder, name):
        with open(f"{folder}/{name}", encoding="utf-8") as file:
            return file.read()

    def server(self):
        """A child of `swale run`, whose words it has, too."""
        found = {each: line for each, line in self.processes().items() if "\0run\0" in line}
        return next(each for each, line in found.items() if found.get(parent_of(each)) == line)

    def stat(self, mountpoint):
        """What the server says of itself."""
        done = self.swale("fs", "stat", "--json", mountpoint)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def kill_all(self):
        """At once, as a scheduler with control groups does at a job's end: none hears of another one's."""
        found = {}
        while set(self.processes()) - set(found):
            for process in set(self.processes()) - set(found):
                os.kill(process, signal.SIGSTOP)
                found[process] = children_of(process)
        for process in {*found, *(child for children in found.values() for child in children)}:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                continue
        wait_until("all are gone", lambda: not self.processes())
