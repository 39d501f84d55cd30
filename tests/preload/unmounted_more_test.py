#!/usr/bin/env python3
"""unmounted_more_test.py SWALE PYTHON: trees that are mounted nowhere: attributes, walks and synchronous
writes of programs, beside a plain directory; servers that are killed in a storm of creates; `swale start
--no-mount` and `swale fs`. It needs no FUSE.
"""
import json
import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import unittest

from mounted import SWALE, listing

PYTHON = os.path.abspath(sys.argv[2])
PATIENCE_S = 300
ATTRIBUTES = """
import os
def say(call, *words, **more):
    try:
        got = call(*words, **more)
        print(call.__name__, words[1:], sorted(got) if isinstance(got, list) else got)
    except OSError as failed:
        print(call.__name__, words[1:], failed.strerror)
with open("f", "w") as out:
    out.write("content")
os.mkdir("d")
os.symlink("f", "link")
held = os.open("f", os.O_RDWR)
for path in ("f", held, "link", "d", "none"):
    say(os.setxattr, path, "user.one", b"1")
    say(os.setxattr, path, "user.one", b"again", os.XATTR_CREATE)
    say(os.setxattr, path, "user.two", b"", os.XATTR_REPLACE)
    say(os.setxattr, path, "user.empty", b"")
    say(os.getxattr, path, "user.one")
    say(os.getxattr, path, "user.empty")
    say(os.getxattr, path, "user.none")
    say(os.listxattr, path)
    say(os.removexattr, path, "user.one")
    say(os.removexattr, path, "user.one")
say(os.setxattr, "f", "user.kept", bytes(range(256)) * 4)
say(os.setxattr, "link", "user.link", b"x", follow_symlinks=False)
os.close(held)
print(len(os.getxattr("f", "user.kept")), open("f").read())
"""
# What a callback of nftw is told, and where it is called.
WALK = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
class Place(ctypes.Structure):
    _fields_ = [("base", ctypes.c_int), ("level", ctypes.c_int)]
Called = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(Place))
Simple = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int)
os.makedirs("a/b/c")
for name in ("a/one", "a/b/two", "a/b/c/three", "beside"):
    with open(name, "w") as out:
        out.write(name)
os.symlink("../beside", "a/to-file")
os.symlink("..", "a/b/up")
os.symlink("nowhere", "a/dangling")
PHYS, MOUNT, CHDIR, DEPTH, ACTION = 1, 2, 4, 8, 16
def walk(path, flags, answer=lambda path: 0):
    said = []
    def call(at, found, kind, place):
        here = os.path.relpath(os.getcwd(), top)
        said.append((at.decode(), kind, place[0].base, place[0].level, here))
        return answer(at.decode())
    top = os.getcwd()
    result = libc.nftw(path.encode(), Called(call), 8, flags)
    failed = os.strerror(ctypes.get_errno()) if result == -1 else ""
    print(path, flags, result, failed, os.path.relpath(os.getcwd(), top))
    for each in sorted(said):
        print("  ", *each)
    order = [each[0] for each in said]
    print(all(order.index(each) > order.index(os.path.dirname(each)) if not flags & DEPTH else
              order.index(each) < order.index(os.path.dirname(each)) for each in order
              if os.path.dirname(each) in order))
for path in ("a", "./a/", os.path.abspath("a") and "a/b", "beside", "none", "a/dangling", "a/to-file", "."):
    for flags in (0, PHYS, PHYS | DEPTH, PHYS | CHDIR, CHDIR | DEPTH, MOUNT | PHYS):
        walk(path, flags)
walk("a", PHYS | ACTION, lambda path: 2 if path == "a/b" else 0)
def stopped(flags, answer, where):  # in which order a directory is read is not said
    calls = []
    def call(at, found, kind, place):
        calls.append(at.decode())
        return answer if at.decode() == where else 0
    result = libc.nftw(b"a", Called(call), 8, flags)
    print(result, calls.index(where) == len(calls) - 1)
    return calls
stopped(PHYS, 7, "a/b/two")
stopped(PHYS | ACTION, 1, "a/b/c")
print("a/b/c" in stopped(PHYS | ACTION, 3, "a/b"))
said = []
def simple(at, found, kind):
    said.append((at.decode(), kind))
    return 0
print(libc.ftw(b"a", Simple(simple), 4), sorted(said))
"""
# A server that is killed leaves a call that may have changed something with EIO.
STORM = """
import errno, os, sys
def again(call, *words):
    try:
        call(*words)
    except OSError as failed:
        if failed.errno != errno.EIO:
            raise
        return True
count, told = int(sys.argv[1]), os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
for i in range(count):
    name = f"c{i}"
    for text in (f"first {i} " * 20, f"again {i} " * (i % 50)):
        out = os.open(name, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o644)
        if text:
            os.write(out, text.encode())
        os.close(out)
        if i % 4 != 0:
            break
    while i % 5 == 0 and not os.path.exists(f"r{i}"):
        again(os.rename, name, f"r{i}")
    if i % 7 == 0 and again(lambda: open(f"empty{i}", "x").close()):
        open(f"empty{i}", "a").close()
    os.write(told, b"%d\\n" % i)
"""


def stormed(i):
    """{name: content} of step i."""
    text = f"again {i} " * (i % 50) if i % 4 == 0 else f"first {i} " * 20
    files = {f"r{i}" if i % 5 == 0 else f"c{i}": text}
    if i % 7 == 0:
        files[f"empty{i}"] = ""
    return files


def children_of(process):
    found = subprocess.run(["pgrep", "-P", str(process)], capture_output=True, text=True, check=False)
    return [int(child) for child in found.stdout.split()]


class Unmounted(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.scratch = tempfile.mkdtemp(prefix="swale-unmounted-", dir=os.getcwd())
        self.plain, self.tree, self.buffer = (
            os.path.join(self.scratch, name) for name in ("plain", "tree", "buffer"))
        for folder in (self.plain, self.tree):
            os.mkdir(folder)
        self.ends = []
        self.started = False

    def tearDown(self):
        for process in self.ends:
            if process.poll() is None:
                process.kill()
                process.wait()
        if self.started:
            self.swale("stop", self.tree)
        shutil.rmtree(self.scratch, ignore_errors=True)

    def swale(self, *words, **more):
        return subprocess.run([SWALE, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=PATIENCE_S, check=False, **more)

    def words(self, *words, more=()):
        return [SWALE, "run", "--no-mount", "--buffer", self.buffer, "--backing", self.tree, *more, "--",
                *words]

    def popen(self, words, **more):
        process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, **more)
        self.ends.append(process)
        return process

    def same(self, script):
        done = [subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=into,
                               timeout=PATIENCE_S, check=False)
                for words, into in (([PYTHON, "-c", script], self.plain),
                                    (self.words(PYTHON, "-c", script), self.tree))]
        native, ours = done
        self.assertEqual(native.returncode, 0, native.stderr)
        self.assertEqual(ours.stdout, native.stdout, ours.stderr)
        self.assertEqual((ours.returncode, ours.stderr), (0, ""))
        self.assertEqual(listing(self.tree), listing(self.plain))
        return ours.stdout

    def test_attributes(self):
        said = self.same(ATTRIBUTES)
        self.assertGreater(len(said.splitlines()), 50)
        names = [sorted(os.listxattr(os.path.join(root, "f"))) for root in (self.plain, self.tree)]
        self.assertEqual(names[0], names[1])

    def test_walks(self):
        self.assertGreater(len(self.same(WALK).splitlines()), 200)

    def test_synchronous_writes_are_durable_when_they_return(self):
        script = ("import os, sys; out = os.open('s', os.O_CREAT | os.O_WRONLY | os.O_DSYNC, 0o600)\n"
                  "os.write(out, b'one'); os.pwrite(out, b'X', 1); os.pwritev(out, [b'behind'], 5)\n"
                  "also = os.open('s', os.O_WRONLY | os.O_APPEND | os.O_SYNC); os.write(also, b'end')\n"
                  "plain = os.open('s', os.O_RDWR); os.pwrite(plain, b'later', 20)\n"
                  "print('held', flush=True); sys.stdin.readline()")
        process = self.popen(self.words(PYTHON, "-c", script, more=("--fsync", "backing")), cwd=self.tree)
        self.assertEqual(process.stdout.readline(), "held\n")
        with open(os.path.join(self.tree, "s"), "rb") as file:
            self.assertEqual(file.read(), b"oXe\0\0behindend")
        _, said = process.communicate("\n", timeout=PATIENCE_S)
        self.assertEqual((process.returncode, said), (0, ""))
        with open(os.path.join(self.tree, "s"), "rb") as file:
            self.assertEqual(file.read(), b"oXe\0\0behindend" + b"\0" * 6 + b"later")

    def check_storm(self, told, count):
        with open(told, encoding="ascii") as lines:
            done = len(lines.readlines())
        self.assertGreaterEqual(done, count)
        wrong = []
        for i in range(done):
            for name, text in stormed(i).items():
                try:
                    with open(os.path.join(self.tree, name), encoding="ascii") as file:
                        if file.read() != text:
                            wrong.append(name)
                except OSError as failed:
                    wrong.append(f"{name}: {failed}")
        self.assertEqual(wrong, [])
        return done

    def server_of(self, process):
        for child in children_of(process.pid):
            with open(f"/proc/{child}/cmdline", encoding="ascii") as words:
                if SWALE in words.read().split("\0")[0]:
                    return child
        return None

    def test_servers_that_are_killed_in_a_storm_lose_nothing(self):
        rng = random.Random(os.environ.get("SWALE_SEED", "1"))
        told = os.path.join(self.scratch, "told")
        count = 3000
        process = self.popen(self.words(PYTHON, "-c", STORM, str(count), told), cwd=self.tree)
        kills = 0
        while process.poll() is None and kills < 3:
            time.sleep(rng.uniform(0.1, 0.6))
            server = self.server_of(process)
            if server is not None and os.path.exists(told):
                os.kill(server, signal.SIGKILL)
                kills += 1
        out, said = process.communicate(timeout=PATIENCE_S)
        self.assertEqual(process.returncode, 0, out + said)
        self.assertGreater(kills, 0)
        self.check_storm(told, count)
        self.assertEqual(os.listdir(self.buffer), [])
        print(f"{kills} servers were killed")

    def test_a_storm_that_is_killed_whole_is_recovered(self):
        told = os.path.join(self.scratch, "told")
        process = self.popen(self.words(PYTHON, "-c", STORM, "100000", told), cwd=self.tree)
        end = time.monotonic() + PATIENCE_S
        while not os.path.exists(told) or os.path.getsize(told) < 2000:
            self.assertLess(time.monotonic(), end)
            time.sleep(0.05)
        victims = [process.pid, *children_of(process.pid)]
        for each in victims:
            os.kill(each, signal.SIGSTOP)
        for each in victims:
            os.kill(each, signal.SIGKILL)
        process.communicate()
        done = self.swale("fs", "recover", self.tree, "--buffer", self.buffer)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.check_storm(told, 400)

    # ---- commands

    def start(self, *more):
        self.started = True
        done = self.swale("start", "--no-mount", "--buffer", self.buffer, *more, self.tree)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        return done

    def status(self, exit_code=0):
        done = self.swale("status", "--json", self.tree)
        self.assertEqual(done.returncode, exit_code, done.stderr)
        return json.loads(done.stdout)

    def on_backing(self):
        return {name for name in os.listdir(self.tree) if name != ".swale"}

    def test_steps_come_and_go_in_a_tree_that_was_started(self):
        self.start()
        for words in (("run", "--no-mount", "--"), ("run", "--no-mount", "--backing", self.tree, "--"),
                      ("run", "--no-mount", "--backing", self.tree + "/.", "--")):
            done = self.swale(*words, "sh", "-c", "echo step >> steps; wc -l < steps", cwd=self.tree)
            self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        self.assertEqual(done.stdout.split(), ["3"])
        self.assertEqual([tree["state"] for tree in self.status()], ["without a mount"])
        self.assertNotIn("steps", self.on_backing())
        stopped = self.swale("stop", self.tree)
        self.started = False
        self.assertEqual((stopped.returncode, stopped.stderr), (0, ""), stopped.stdout)
        with open(os.path.join(self.tree, "steps"), encoding="ascii") as file:
            self.assertEqual(file.read(), "step\n" * 3)
        self.assertEqual(self.status(1), [])
        self.assertNotEqual(self.swale("fs", "stat", self.tree).returncode, 0)

    def test_without_a_tree_it_says_so(self):
        hide = 'mount -t tmpfs none /dev/shm && exec "$@"'  # those of others, too
        alone = ["unshare", "--mount", "sh", "-c", hide, "sh"]
        if subprocess.run([*alone, "true"], capture_output=True, check=False).returncode != 0:
            return print("no namespace of mounts here: trees of others may be there")
        none = subprocess.run([*alone, SWALE, "run", "--no-mount", "--", "true"], capture_output=True,
                              text=True, timeout=PATIENCE_S, check=False)
        self.assertEqual((none.returncode, none.stdout), (3, ""), none.stderr)
        self.assertIn("swale start --no-mount", none.stderr)

    def test_ranks_of_a_step_find_it(self):
        if shutil.which("mpirun") is None:
            return print("no mpirun here: no ranks of a step find a tree")
        self.start()
        own = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                   OMPI_MCA_rmaps_base_oversubscribe="1",
                   PRTE_MCA_rmaps_default_mapping_policy=":oversubscribe")
        done = subprocess.run(["mpirun", "-n", "3", SWALE, "run", "--no-mount", "--", "sh", "-c",
                               "echo $$ > rank-$$"], cwd=self.tree, env=own, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.on_backing(), set())
        self.assertEqual(self.swale("stop", self.tree).returncode, 0)
        self.started = False
        self.assertEqual(len(self.on_backing()), 3)

    def test_commands_find_the_tree_by_its_socket(self):
        self.start()
        made = self.swale("run", "--no-mount", "--", "sh", "-c", "mkdir d; echo x > d/f", cwd=self.tree)
        self.assertEqual(made.returncode, 0, made.stderr)
        link = os.path.join(self.scratch, "link")
        os.symlink("tree", link)
        for way in (self.tree, link, f"{self.tree}/d"):
            shown = self.swale("fs", "stat", "--json", way)
            self.assertEqual((shown.returncode, shown.stderr), (0, ""))
            self.assertEqual(json.loads(shown.stdout)["drained_files"], 0)
        held = self.popen([SWALE, "run", "--no-mount", "--", "sh", "-c",
                           "exec 3>> d/f; echo held; read line"], cwd=self.tree)
        self.assertEqual(held.stdout.readline(), "held\n")
        busy = self.swale("fs", "seal", f"{link}/d/f")
        self.assertEqual(busy.returncode, 3, busy.stderr)
        self.assertIn("has it open", busy.stderr)
        held.communicate("\n", timeout=PATIENCE_S)
        for _ in range(2):
            sealed = self.swale("fs", "seal", f"{link}/d/f")
            self.assertEqual((sealed.returncode, sealed.stderr), (0, ""))
        written = self.swale("run", "--no-mount", "--", "sh", "-c", "echo y >> d/f", cwd=self.tree)
        self.assertNotEqual(written.returncode, 0)
        drained = self.swale("fs", "drain", "--json", self.tree)
        self.assertEqual((drained.returncode, json.loads(drained.stdout)["undrained_files"]), (0, 0))
        self.assertEqual(self.swale("fs", "sync", self.tree).returncode, 0)
        self.assertEqual(stat.S_IMODE(os.stat(f"{self.tree}/d/f").st_mode) & 0o222, 0)
        with open(f"{self.tree}/d/f", encoding="ascii") as file:
            self.assertEqual(file.read(), "x\n")
        elsewhere = self.swale("fs", "stat", self.scratch)
        self.assertNotEqual(elsewhere.returncode, 0)

    def test_a_killed_server_of_a_started_tree_is_started_again(self):
        self.start()
        keeper = self.status()[0]["keeper"]
        launched = children_of(keeper)[0]
        server = next(child for child in children_of(launched)
                      if "sh" not in os.readlink(f"/proc/{child}/exe"))
        held = self.popen([SWALE, "run", "--no-mount", "--", "sh", "-c",
                           "exec 3> f; echo one >&3; echo held; read line; echo two >&3; echo g > g"],
                          cwd=self.tree)
        self.assertEqual(held.stdout.readline(), "held\n")
        os.kill(server, signal.SIGKILL)
        _, said = held.communicate("\n", timeout=PATIENCE_S)
        self.assertEqual((held.returncode, said), (0, ""))
        self.assertEqual(self.swale("stop", self.tree).returncode, 0)
        self.started = False
        self.assertEqual(self.on_backing(), {"f", "g"})
        with open(f"{self.tree}/f", encoding="ascii") as file:
            self.assertEqual(file.read(), "one\ntwo\n")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=2)
