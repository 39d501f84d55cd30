#!/usr/bin/env python3
"""preload_test.py SWALE LIBRARY CANARY STEPS HANDLER COUNTING CASE: calls and programs natively, and in the
tree of a job with libswale_preload.so.

What they print, and the files that they leave, must be the same; and with the library writes must have gone
past the kernel. CANARY is a library whose table lacks fork and execl: a child then keeps the short cut, and
the next program begins where the kernel stood. Tests must notice.
"""
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import unittest

from mounted import NO_MOUNTS, SWALE, listing, run

LIBRARY, CANARY, STEPS, HANDLER, COUNTING = map(os.path.abspath, sys.argv[2:7])
PATIENCE_S = 300
SEEDS = 6
CALLS = 700
MANY = 1024
SIGNALS_INSIDE = 20  # of handler_steps.c
BUFFERED = 1 << 20  # written by a stream, in lines of 64 bytes
# Shared by commands below: some MB of lines.
MAKE_LINES = "seq 1 200000 | awk '{ print $1 * 7919 % 200003, \"line\" }' > lines"
SHELL = {
    "redirections": """
        for i in 1 2 3; do echo "round $i"; ls -d . ; done > list 2>&1
        { echo first; ( echo nested; echo more >&2 ) 2>> list; cat list; } > both
        exec 5> five; echo one >&5; ( echo two >&5 ); sh -c 'echo three >&5'; exec 5>&-
        cat five both list""",
    "pipelines": MAKE_LINES + """
        sort -n lines | uniq | tee teed | tail -50000 > sorted
        sort -n -S 1M -T . -o sorted-in-parts lines
        cmp teed sorted-in-parts; tail -3 sorted; wc -l lines sorted teed
        grep -c 7 lines >> sorted; split -n 5 lines part-; cat part-* | cmp - lines && echo the same""",
    "dd": MAKE_LINES + """
        dd if=lines of=copy bs=4k status=none
        dd if=lines of=parts bs=1000 seek=3 count=700 conv=notrunc status=none
        dd if=lines of=parts bs=512 seek=100 skip=9 count=99 conv=notrunc,fsync status=none
        dd if=copy bs=64k status=none | dd of=piped bs=1k iflag=fullblock status=none
        cmp lines copy; cmp copy piped; cksum parts""",
    "tar and cp": MAKE_LINES + """
        mkdir one; split -a 3 -n 40 lines one/p; cp -a one two; cp lines two/lines
        tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -cf all.tar one two
        mkdir three; tar -C three -xf all.tar; diff -r one three/one && diff -r two three/two && echo the same
        cksum all.tar; truncate -s 100000 lines; install -m 600 lines four
        sed -i s/line/LINE/ four; cksum four""",
}
PYTHON = """
import json, multiprocessing, os, subprocess, sys, tempfile
def fill(part):
    with open("array", "r+b", buffering=0) as file:
        for i in range(200):
            file.seek((i * 4 + part) * 1000)
            file.write(bytes([part + 1]) * 1000)
    return part
if __name__ == "__main__":
    open("array", "wb").close()
    with multiprocessing.Pool(4) as pool:
        print(pool.map(fill, range(4)))
    with open("log", "wb", buffering=0) as log:
        for i in range(80):
            log.write(b"%d\\n" % i)
        subprocess.run(["echo", "by a child"], stdout=log, check=True)
        log.write(b"after\\n")
        subprocess.run("cat; echo two", shell=True, input=b"input\\n", stdout=log, check=True)
        print(log.tell(), os.lseek(log.fileno(), 0, os.SEEK_CUR))
    with open("text", "w") as text:
        for i in range(50000):
            text.write(f"line {i}\\n")
        text.seek(1000)
        text.write("CHANGED")
    with tempfile.TemporaryFile(dir=".") as hidden:
        hidden.write(b"x" * 100000)
        hidden.seek(50000)
        print(len(hidden.read()))
    json.dump(list(range(10000)), open("made.json", "w"))
    print(sum(json.load(open("made.json"))))
"""

# What the C library writes of a stream: "fopen w" and so on. Two files, so that the first freopen has one.
STREAM = """
import ctypes, os, sys
call, mode = sys.argv[1].split()
libc = ctypes.CDLL(None)
for name in ("fopen", "fdopen", "freopen"): getattr(libc, name).restype = ctypes.c_void_p
libc.freopen.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p]
libc.fputs.argtypes, libc.fclose.argtypes = [ctypes.c_char_p, ctypes.c_void_p], [ctypes.c_void_p]
def writes():
    with open("/proc/self/io", encoding="ascii") as counts:
        return next(int(line.split()[1]) for line in counts if line.startswith("syscw"))
os.close(os.open("stream", os.O_WRONLY | os.O_CREAT | os.O_TRUNC))
if call == "fopen": stream = libc.fopen(b"stream", mode.encode())
if call == "fdopen": stream = libc.fdopen(os.open("stream", os.O_RDWR), mode.encode())
if call == "freopen": stream = libc.freopen(b"stream", mode.encode(), libc.fopen(b"before", b"w"))
line = b"x" * 63 + b"\\n"
before = writes()
for i in range(%d // 64):
    if libc.fputs(line, stream) < 0: sys.exit("fputs")
if libc.fclose(stream) != 0: sys.exit("fclose")
print(writes() - before)
""" % BUFFERED


def database(folder):
    """SQL on a file: rows of a fixed content."""
    return f"""
import sqlite3
for mode in ("delete", "wal"):
    base = sqlite3.connect("{folder}/" + mode + ".db")
    base.execute("pragma journal_mode=" + mode)
    base.execute("create table t (i integer primary key, text)")
    for commit in range(5):
        with base:
            base.executemany("insert into t values (?, ?)",
                             [(commit * 200 + i, "row %d" % i * 9) for i in range(200)])
        with base:
            base.execute("delete from t where i % 7 = ?", (commit,))
    print(base.execute("select count(*), sum(i) from t").fetchall())
    print(base.execute("pragma integrity_check").fetchall())
    base.close()
"""


class Commands(unittest.TestCase):
    """`swale check`, and `swale run --preload`."""

    def setUp(self):
        self.scratch = tempfile.mkdtemp(prefix="swale-preload-", dir=os.getcwd())
        self.addCleanup(shutil.rmtree, self.scratch)

    def check(self, program):
        done = subprocess.run([SWALE, "check", "--json", program], capture_output=True, text=True,
                              check=False)
        said = json.loads(done.stdout)
        self.assertEqual(done.returncode, 0 if said["preloads"] else 1)
        return said["preloads"], " ".join(said["remarks"])

    def copy(self, name, change=lambda content: content, mode=0o755):
        path = os.path.join(self.scratch, name)
        with open(STEPS, "rb") as program, open(path, "wb") as copy:
            copy.write(change(program.read()))
        os.chmod(path, mode)
        return path

    def test_check_looks_at_programs(self):
        self.assertEqual(self.check(STEPS)[0], True)
        self.assertIn("streams", self.check(STEPS)[1])
        self.assertIn("set-user-ID", self.check(self.copy("set-id", mode=0o4755))[1])
        script = os.path.join(self.scratch, "script")
        with open(script, "w", encoding="ascii") as file:
            file.write("#!/usr/bin/env sh\nexit 0\n")
        self.assertEqual(self.check(script)[0], True)
        for size in range(0, 20_000, 997):  # cut off
            self.check(self.copy("cut", lambda content, end=size: content[:end]))
        self.assertEqual(self.check(self.copy("text", lambda content: b"text"))[0], False)

    def test_check_finds_a_static_program(self):
        source = os.path.join(self.scratch, "static.c")
        with open(source, "w", encoding="ascii") as file:
            file.write("int main(void) { return 0; }\n")
        path = os.path.join(self.scratch, "static")
        run("cc", "-static", "-nostdlib", "-e", "main", source, "-o", path)
        self.assertIn("statically", self.check(path)[1])

    def test_check_says_whether_it_is_preloaded(self):
        for library, status in ((LIBRARY, 0), ("", 1)):
            done = subprocess.run([SWALE, "check"], env=dict(os.environ, LD_PRELOAD=library), check=False,
                                  stdout=subprocess.DEVNULL)
            self.assertEqual(done.returncode, status)

    def test_run_preloads_a_program(self):
        if NO_MOUNTS:
            self.skipTest(f"no FUSE mounts here: {NO_MOUNTS}")
        tree = os.path.join(self.scratch, "tree")
        os.mkdir(tree)
        done = subprocess.run([SWALE, "run", "--preload", "--backing", tree, "--", "sh", "-c",
                               f"{STEPS} fork . && {SWALE} fs stat --json ."],
                              cwd=tree, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertGreater(json.loads(done.stdout.splitlines()[-1])["program_writes"], 0)

    def test_canary_a_library_that_is_not_loaded(self):
        folder = os.path.join(self.scratch, "bin")
        os.mkdir(folder)
        shutil.copy(SWALE, folder)
        os.mkdir(os.path.join(self.scratch, "tree"))

        def words(folder):
            return [os.path.join(folder, "swale"), "run", "--preload", "--backing",
                    os.path.join(self.scratch, "tree"), "--", "true"]
        done = subprocess.run(words(folder), capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        self.assertIn("install all of Swale", done.stderr)
        with open(os.path.join(folder, "libswale_preload.so"), "w", encoding="ascii") as file:
            file.write("no library")
        done = subprocess.run(words(folder), capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("go on without --preload", done.stderr)


class Preload(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if NO_MOUNTS:
            raise unittest.SkipTest(f"no FUSE mounts here: {NO_MOUNTS}; in a container, add --device "
                                    f"/dev/fuse --cap-add SYS_ADMIN")

    def setUp(self):
        # /tmp may be without extended attributes
        self.scratch = tempfile.mkdtemp(prefix="swale-preload-", dir=os.getcwd())
        self.plain = os.path.join(self.scratch, "plain")
        self.tree = os.path.join(self.scratch, "tree")
        os.mkdir(self.plain)
        os.mkdir(self.tree)
        self.server = subprocess.Popen([SWALE, "serve", self.tree], stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE, text=True)
        self.assertIn("is mounted", self.server.stdout.readline())

    def tearDown(self):
        try:
            self.server.send_signal(signal.SIGTERM)
            _, said = self.server.communicate(timeout=PATIENCE_S)
            self.assertEqual((self.server.returncode, said), (0, ""))
        finally:
            if self.server.poll() is None:
                self.server.kill()
                self.server.wait()
            subprocess.run(["fusermount3", "-u", "-z", self.tree], stderr=subprocess.DEVNULL, check=False)
            shutil.rmtree(self.scratch)

    def program_writes(self):
        return json.loads(run(SWALE, "fs", "stat", "--json", self.tree))["program_writes"]

    def outcome(self, folder, words, library):
        environment = dict(os.environ, LC_ALL="C", COUNTED_CALLS=os.path.join(self.scratch, "counted"),
                           SIGNALS_INSIDE=os.path.join(self.scratch, "signals"))
        if library:
            environment["LD_PRELOAD"] = library
        done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True,
                              timeout=PATIENCE_S, check=False)
        return done.returncode, done.stdout, done.stderr.replace(folder, "")

    def same(self, *words, library=LIBRARY, by_log=True):
        """Natively and in the tree: the same; by_log: and some writes went past the kernel."""
        before = self.program_writes()
        native = self.outcome(self.plain, words, None)
        self.assertEqual(native[0], 0, native)
        self.assertEqual(self.outcome(self.tree, words, library), native)
        self.assertEqual(listing(self.tree), listing(self.plain))
        if by_log:
            self.assertGreater(self.program_writes(), before, "all writes went through the mount")

    def steps(self, name, *numbers, **how):
        with self.subTest(name=name, numbers=numbers):
            self.same(STEPS, name, ".", *map(str, numbers), **how)

    def test_random_calls(self):
        before = self.program_writes()
        for seed in range(SEEDS):
            self.steps("random", seed, CALLS, by_log=False)
        self.assertGreater(self.program_writes(), before)

    def test_descriptions_that_another_process_comes_to(self):
        for name in ("fork", "exec", "spawn", "pass"):
            self.steps(name)

    def test_threads_write_while_others_fork(self):
        self.steps("threads")

    def handler_writes(self, *words):
        """How many signals came inside a write of the library's."""
        self.same(HANDLER, ".", *words)
        with open(os.path.join(self.scratch, "signals"), encoding="ascii") as file:
            said = file.read()
        print(f"{said.strip()} came inside a write")
        self.assertGreaterEqual(int(said.split()[0]), SIGNALS_INSIDE)

    def test_a_signal_handler_writes_inside_a_write(self):
        self.handler_writes()

    def test_canary_signals_that_come_after_each_write(self):
        with self.assertRaisesRegex(AssertionError, "0 not greater"):
            self.handler_writes("outside")

    def writes_of_a_stream(self, way, library):
        """Calls of write that reach the kernel."""
        environment = dict(os.environ, **({"LD_PRELOAD": library} if library else {}))
        return int(run(sys.executable, "-c", STREAM, way, cwd=self.tree, env=environment))

    def test_streams_that_write_have_a_large_buffer(self):
        for way in ("fopen w", "fopen a", "fopen r+", "fopen w+", "fdopen w", "fdopen r+", "freopen w",
                    "freopen a"):
            with self.subTest(way=way):
                writes = self.writes_of_a_stream(way, LIBRARY)
                print(f"{way}: {writes} writes")
                self.assertLess(writes, BUFFERED // 100_000)
                self.assertEqual(os.stat(os.path.join(self.tree, "stream")).st_size, BUFFERED)

    def test_canary_a_stream_without_the_library(self):
        self.assertGreater(self.writes_of_a_stream("fopen w", None), BUFFERED // 100_000)

    def test_streams_and_numbers(self):
        for name in ("streams", "numbers"):
            self.steps(name)

    def test_many_files(self):
        self.steps("many", 1, MANY)

    def test_beside_another_preload_library(self):
        """Whichever comes first, the program is right; the other one sees calls."""
        for libraries in (f"{COUNTING}:{LIBRARY}", f"{LIBRARY}:{COUNTING}"):
            self.steps("fork", library=libraries)
            self.steps("numbers", library=libraries)
            with open(os.path.join(self.scratch, "counted"), encoding="ascii") as file:
                self.assertGreater(int(file.read()), 0)
            os.remove(os.path.join(self.scratch, "counted"))

    def test_a_program_with_address_sanitizer(self):
        """Its library must be the first one: so it wraps what ours wraps, too."""
        program = os.path.join(self.scratch, "sanitized")
        source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "steps.c")
        run("gcc", "-std=c11", "-g", "-fsanitize=address", "-pthread", source, "-o", program)
        library = f"{os.path.realpath(run('gcc', '-print-file-name=libasan.so').strip())}:{LIBRARY}"
        for name in ("fork", "streams", "numbers"):
            with self.subTest(name=name):
                self.same(program, name, ".", library=library)

    def test_a_killed_process(self):
        """What its writes have returned is there."""
        expected = self.killed(self.plain, None)
        self.assertEqual(self.killed(self.tree, LIBRARY), expected)

    def killed(self, folder, library):
        environment = dict(os.environ, **({"LD_PRELOAD": library} if library else {}))
        with subprocess.Popen([STEPS, "killed", "."], cwd=folder, env=environment, text=True,
                              stdout=subprocess.PIPE) as process:
            self.assertEqual(process.stdout.readline(), "written\n")
            process.kill()
        return listing(folder)

    def test_shell_programs(self):
        for name, script in SHELL.items():
            with self.subTest(name=name):
                self.same("sh", "-c", "set -e\n" + script, by_log=name == "pipelines")

    def test_python(self):
        self.same(sys.executable, "-c", PYTHON)
        self.same(sys.executable, "-c", database("."))
        base = sqlite3.connect(os.path.join(self.tree, "wal.db"))
        self.assertEqual(base.execute("pragma integrity_check").fetchall(), [("ok",)])
        base.close()

    def test_canary_a_fork_or_an_exec_that_keeps_the_short_cut(self):
        self.same(STEPS, "streams", ".", library=CANARY)  # it is a library that works
        for name in ("fork", "threads", "exec"):
            with self.subTest(name=name), self.assertRaises(AssertionError):
                self.same(STEPS, name, ".", library=CANARY)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[7:], verbosity=2)
