#!/usr/bin/env python3
"""unmounted_test.py SWALE CANARY STEPS PYTHON: programs in a tree that is mounted nowhere (swale run
--no-mount), beside the same programs in a plain directory. It needs no FUSE.

What they print, and what they leave, must be the same; and while they have files open, no file of theirs
may be on the backing: each call that makes one must have asked the server. CANARY is a library whose table
lacks some of these calls. PYTHON: one that may have NumPy.
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

from mounted import SWALE, listing, run

CANARY, STEPS, PYTHON = map(os.path.abspath, sys.argv[2:5])
PATIENCE_S = 300
MADE = {"open", "openat", "creat", "fopen", "freopen", "renamed"}  # and one by mkstemp
SCRIPT = """
import json, os, pathlib, shutil, sys
os.makedirs("a/b")
with open("a/b/x.json", "w") as out:
    json.dump({"steps": list(range(1000))}, out)
with open("a/b/x.json") as text:
    print(sum(json.load(text)["steps"]), os.path.getsize("a/b/x.json"))
pathlib.Path("a/y").write_bytes(bytes(range(256)) * 999)
print(sorted(os.listdir("a")), sorted((e.name, e.is_file(), e.stat().st_size) for e in os.scandir("a/b")))
shutil.copytree("a", "c")
shutil.copy2("a/y", "z")
os.replace("z", "a/y")
print([(sorted(d), sorted(f)) for _, d, f in sorted(os.walk("."))])
shutil.rmtree("a")
with open("c/y", "r+b") as out:
    out.seek(100)
    out.write(b"middle")
    out.truncate(200)
print(os.stat("c/y").st_size, os.path.exists("a"), os.path.isfile("c/y"))
try:
    open("a/none")
except OSError as failed:
    print(failed)
import subprocess
with open("by-child", "wb") as out:
    subprocess.run(["sh", "-c", "echo from a child; cat c/b/x.json | wc -c"], stdout=out, check=True)
print(open("by-child").read())
"""
NUMPY = """
import numpy
made = numpy.arange(100000, dtype=float).reshape(100, 1000)
numpy.save("array.npy", made)
numpy.savez("arrays.npz", one=made, two=made * 2)
mapped = numpy.load("array.npy", mmap_mode="r+")
mapped[3, 4] = 5
mapped.flush()
del mapped
print(numpy.load("array.npy").sum(), numpy.load("arrays.npz")["two"].sum())
made.tofile("raw")
print(numpy.fromfile("raw").sum())
"""
SHELL = r"""
set -e
echo one > f; echo two >> f; cat f; cat < f > g; printf '%s\n' b a c | sort > sorted; cat sorted
cp f h; cp -p sorted copied; mv h moved; cmp f moved; ls; test -s f; wc -c < f
mkdir -p d/e; cp -r d d2; cp f d/e/; ln -s d/e/f link; cat link; [ -L link ]; readlink link
find . -type f | sort; grep -l two f g; sed -i s/one/ONE/ f; head -1 f; tail -n 1 f
exec 3> by-number; echo three >&3; exec 3>&-; cat by-number; (cd d/e && cat f && echo in > made && ls)
while read -r line; do echo "line $line"; done < f
tar cf t.tar d f; tar tf t.tar | sort; mkdir out; tar xf t.tar -C out; cmp out/f f; rm -r out t.tar
dd if=/dev/zero of=zeros bs=1000 count=3 2>/dev/null; stat -c '%s %A %F' zeros f d; touch -d @86400 f
stat -c %Y f; chmod 600 f; stat -c %a f; rm g; [ ! -e g ]; echo $? ; ls none 2>&1 || echo "$?"
du -b zeros | cut -f 1; diff f moved || true; split -l 1 moved part-; cat part-a? ; rmdir d2/e d2
"""


class Unmounted(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.scratch = tempfile.mkdtemp(prefix="swale-unmounted-", dir=os.getcwd())
        self.plain, self.tree, self.outside, self.buffer = (
            os.path.join(self.scratch, name) for name in ("plain", "tree", "outside", "buffer"))
        for folder in (self.plain, self.tree, self.outside):
            os.mkdir(folder)
        self.ends = []

    def tearDown(self):
        for process in self.ends:
            if process.poll() is None:
                process.kill()
                process.wait()
        shutil.rmtree(self.scratch, ignore_errors=True)

    def words(self, *words):
        return [SWALE, "run", "--no-mount", "--buffer", self.buffer, "--backing", self.tree, "--", *words]

    def outcome(self, folder, words, into):
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=into,
                              env=dict(os.environ, LC_ALL="C"), timeout=PATIENCE_S, check=False)
        return done.returncode, *(said.replace(folder, "FOLDER") for said in (done.stdout, done.stderr))

    def same(self, *words):
        """In a plain directory, and in the tree; each with something that was there before."""
        for root in (self.plain, self.tree):
            with open(os.path.join(root, "old"), "w", encoding="ascii") as file:
                file.write("was there")
            os.mkdir(os.path.join(root, "folder"))
        native = self.outcome(self.plain, [word.replace("FOLDER", self.plain) for word in words], self.plain)
        self.assertEqual(native[0], 0, native)
        ours = self.outcome(self.tree, self.words(*[word.replace("FOLDER", self.tree) for word in words]),
                            self.tree)
        self.assertEqual(ours[:2], native[:2], ours[2])
        self.assertEqual(listing(self.tree), listing(self.plain))
        self.assertEqual(os.listdir(self.outside), [])
        self.assertEqual(os.listdir(self.buffer), [])
        return ours

    def test_each_call_answers_as_the_kernel(self):
        said = self.same(STEPS, "calls", "FOLDER", self.outside)
        self.assertGreater(len(said[1].splitlines()), 190)
        print(f"{len(said[1].splitlines())} answers of calls are the kernel's")

    def test_modes_bind(self):
        self.same(STEPS, "modes", "FOLDER")

    def test_threads(self):
        said = self.same("sh", "-c", f"{STEPS} threads FOLDER; find . -type f | wc -l")
        self.assertEqual(said[1].split()[0], "360")

    def test_a_shell_and_its_tools(self):
        for shell in ("sh", "bash"):
            with self.subTest(shell=shell):
                self.same(shell, "-c", SHELL)
                self.tearDown()
                self.setUp()

    def test_python(self):
        self.same(PYTHON, "-c", SCRIPT)

    def test_numpy(self):
        if subprocess.run([PYTHON, "-c", "import numpy"], stderr=subprocess.DEVNULL, check=False).returncode:
            return print("no NumPy here: Python's own files are compared alone")
        self.same(PYTHON, "-c", NUMPY)

    def test_a_file_per_particle(self):
        self.same(STEPS, "particles", "FOLDER", "2000")

    def test_two_ranks(self):
        if shutil.which("mpirun") is None:
            return print("no mpirun here: no ranks are compared")
        for root in (self.plain, self.tree):
            os.mkdir(os.path.join(root, "ranks"))
        script = ('import os; r = os.environ["OMPI_COMM_WORLD_RANK"] if "OMPI_COMM_WORLD_RANK" in os.environ '
                  'else os.environ["PMI_RANK"]; open("ranks/rank-" + r, "w").write(r * 1000)')
        own = dict(os.environ)
        os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                          OMPI_MCA_rmaps_base_oversubscribe="1")
        try:
            self.same("mpirun", "-n", "2", PYTHON, "-c", script)
        finally:
            os.environ.clear()
            os.environ.update(own)
        self.assertEqual(sorted(os.listdir(os.path.join(self.tree, "ranks"))), ["rank-0", "rank-1"])

    def held(self, *before):
        process = subprocess.Popen(self.words(*before, STEPS, "held", self.tree), stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.ends.append(process)
        self.assertEqual(process.stdout.readline(), "held\n")
        return process

    def beside(self):
        return {name for name in os.listdir(self.tree) if name != ".swale"}

    def lengths(self):
        return {os.path.getsize(os.path.join(self.tree, name)) for name in self.beside()}

    def test_nothing_is_beside_the_tree(self):
        process = self.held()
        self.assertEqual(self.beside(), set())
        _, said = process.communicate("end\n", timeout=PATIENCE_S)
        self.assertEqual((process.returncode, said), (0, ""))
        names = {name for name in self.beside() if not name.startswith("mkstemp")}
        self.assertEqual((names, len(self.beside())), (MADE, len(MADE) + 1))
        self.assertEqual(self.lengths(), {4})

    def test_canary_calls_that_nobody_takes(self):
        process = self.held("env", f"LD_PRELOAD={CANARY}")
        self.assertEqual(self.beside(), {"fopen", "creat"})
        process.communicate("end\n", timeout=PATIENCE_S)

    def server_of(self, process):
        children = run("pgrep", "-P", str(process.pid)).split()
        for child in children:
            with open(f"/proc/{child}/cmdline", encoding="ascii") as words:
                if SWALE in words.read().split("\0")[0]:
                    return int(child)
        raise AssertionError(f"no server among {children}")

    def test_a_killed_server_is_started_again(self):
        process = self.held()
        os.kill(self.server_of(process), signal.SIGKILL)
        time.sleep(0.5)
        out, said = process.communicate("end\n", timeout=PATIENCE_S)
        self.assertIn("is started again", said)
        self.assertEqual(process.returncode, 0, out + said)
        self.assertEqual(len(self.beside()), len(MADE) + 1)
        self.assertEqual(self.lengths(), {4})

    def test_a_killed_job_is_recovered(self):
        process = self.held()
        server = self.server_of(process)
        os.kill(process.pid, signal.SIGKILL)
        os.kill(server, signal.SIGKILL)
        process.stdin.close()
        process.wait()
        time.sleep(0.5)
        self.assertEqual(self.beside(), set())
        run(SWALE, "fs", "recover", self.tree, "--buffer", self.buffer)
        self.assertEqual(len(self.beside()), len(MADE) + 1)
        self.assertEqual(self.lengths(), {4})

    def test_programs_that_nothing_gets_into_are_refused(self):
        static = os.path.join(self.outside, "static")
        with open(static + ".c", "w", encoding="ascii") as source:
            source.write("int main(void) { return 0; }\n")
        if subprocess.run(["cc", "-static", static + ".c", "-o", static], stderr=subprocess.DEVNULL,
                          check=False).returncode:
            return print("no static C library here: no static program is refused")
        code, _, said = self.outcome(self.tree, self.words(static), self.tree)
        self.assertNotEqual(code, 0)
        self.assertIn("linked statically", said)
        self.assertIn("beside the tree", said)

    def test_calls_past_the_c_library_are_said(self):
        code, _, said = self.outcome(self.tree, self.words(PYTHON, "-c", (
            "import ctypes, os; libc = ctypes.CDLL(None); "
            "os.close(libc.syscall(ctypes.c_long(257 if os.uname().machine == 'x86_64' else 56), "
            "ctypes.c_long(-100), b'past', ctypes.c_long(os.O_CREAT | os.O_WRONLY), ctypes.c_long(0o600)))")),
            self.tree)
        self.assertEqual(code, 0, said)
        self.assertIn("of past works on the backing, beside the tree", said)

    def test_commands_ask_the_tree(self):
        code, out, said = self.outcome(self.tree, self.words(
            "sh", "-c", f"echo x > f; {SWALE} fs sync .; {SWALE} fs stat --json ."), self.tree)
        self.assertEqual((code, said), (0, ""), out)
        self.assertEqual((json.loads(out)["undrained_files"], json.loads(out)["drained_files"]), (0, 1))

    def test_what_is_refused_is_said(self):
        code, out, said = self.outcome(self.tree, self.words(
            "sh", "-c", "echo x > f; mkfifo p 2>&1; ln f g 2>&1; echo $?"), self.tree)
        self.assertEqual((code, out.splitlines()[-1]), (0, "1"), said)
        self.assertIn("mkfifo", out + said)
        self.assertIn("is refused", out + said)
        self.assertEqual(set(listing(self.tree)) - {".swale"}, {"f"})


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
