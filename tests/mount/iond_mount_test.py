#!/usr/bin/env python3
"""iond_mount_test.py SWALE LIBSWALE: the files of I/O servers as a directory, by `swale iond mount`: programs
on it, two mounts at a time, a program that it is made for, and a server that is killed.

All of it is an ordinary user's, because an I/O server refuses to run as root. Each process that is started
here is ended here, by its number, and waited for.
"""
import errno
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../security"))
import mounted  # noqa: E402
import ordinary_user  # noqa: E402

SWALE = os.path.abspath(sys.argv[1])
LIBRARY = os.path.abspath(sys.argv[2])
PATIENCE_S = 120
STRIPE = 65536
BLOCK = bytes(range(256)) * 700  # no multiple of a stripe


class Process:
    """A child, with all that it says. `end` waits with a deadline, and kills it."""

    def __init__(self, words, **options):
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        stdin=subprocess.DEVNULL, start_new_session=True, **options)
        self.lines = {"out": [], "err": []}
        self.readers = [threading.Thread(target=self.read, args=(name,), daemon=True) for name in self.lines]
        for reader in self.readers:
            reader.start()

    def read(self, name):
        for line in getattr(self.process, f"std{name}"):
            self.lines[name].append(line)

    def said(self, name="out"):
        return "".join(self.lines[name])

    def wait_for(self, text, name="out"):
        end = time.monotonic() + PATIENCE_S
        while text not in self.said(name):
            if self.process.poll() is not None or time.monotonic() > end:
                raise AssertionError(f"no '{text}' in: {self.said('out')}{self.said('err')}")
            time.sleep(0.02)

    def end(self):
        """The exit status."""
        try:
            status = self.process.wait(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"waited {PATIENCE_S} s: {self.said('out')}{self.said('err')}") from None
        self.close()
        return status

    def close(self):
        for reader in self.readers:
            reader.join(timeout=PATIENCE_S)
        for name in self.lines:
            getattr(self.process, f"std{name}").close()

    def kill(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait(timeout=PATIENCE_S)


class IondMount(unittest.TestCase):
    def setUp(self):
        if mounted.NO_MOUNTS:
            self.skipTest(f"no FUSE mounts here: {mounted.NO_MOUNTS}")
        self.root = tempfile.mkdtemp(prefix="iond-mount-", dir=os.getcwd())
        self.meet = tempfile.mkdtemp(prefix="iond-meet-")
        self.processes = []
        self.jobs = 0
        for name in ("disk0", "disk1", "disk2", "mnt0", "mnt1", "plain"):
            os.mkdir(f"{self.root}/{name}")
        self.mnt, self.plain = f"{self.root}/mnt0", f"{self.root}/plain"

    def of_this_test(self):
        """Processes that have this test's folder among their words, or work in it: ours, and no others'."""
        found = []
        for number in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{number}/cmdline", "rb") as words:
                    ours = self.root.encode() in words.read()
                if int(number) != os.getpid() and (ours or os.readlink(f"/proc/{number}/cwd") == self.root):
                    found.append(int(number))
            except OSError:
                pass  # another user's, or it has ended
        return found

    def tearDown(self):
        end = time.monotonic() + PATIENCE_S
        while left := self.of_this_test():
            self.assertLess(time.monotonic(), end, left)
            for number in left:
                try:
                    os.kill(number, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            for process in self.processes:
                process.process.poll()
            time.sleep(0.05)
        for name in os.listdir(self.root):
            if name.startswith("mnt") or name.endswith(".iond"):
                subprocess.run(["fusermount3", "-u", "-z", f"{self.root}/{name}"], capture_output=True,
                               timeout=PATIENCE_S, check=False)
        for process in self.processes:
            process.kill()
            process.close()
        subprocess.run(["chmod", "-R", "u+rwX", self.root], check=False, timeout=PATIENCE_S)
        shutil.rmtree(self.root)
        shutil.rmtree(self.meet)

    def environment(self, **more):
        return dict(os.environ, SWALE_JOB_RENDEZVOUS=self.meet, SWALE_NET_SILENCE_DEADLINE_S="15",
                    SWALE_NET_CLOSE_DEADLINE_S="1" if "UCX_TLS" in more else "60",
                    LD_LIBRARY_PATH=os.path.dirname(LIBRARY), **more)

    def run_process(self, *words, **more):
        self.processes.append(Process(words, env=self.environment(**more), cwd=self.root))
        return self.processes[-1]

    def start(self, servers=2, mounts=1, tcp=False):
        """The servers and the mounts, as one job. tcp: for a case that kills a rank (iond_test.py)."""
        self.jobs += 1
        started = []
        for rank in range(servers + mounts):
            place = dict(SWALE_JOB_RANK=str(rank), SWALE_JOB_SIZE=str(servers + mounts),
                         SWALE_JOB_ID=f"iond-mount{os.getpid()}.{self.jobs}")
            if tcp:
                place.update(UCX_TLS="tcp,self", SWALE_JOB_NODE=f"node{rank % 2}")
            if rank < servers:
                words = ["iond", "--ssd", f"{self.root}/ssd%r", "--backing", f"{self.root}/disk%r", "--size",
                         "16M", "--options", f"iond.stripe={STRIPE},iond.watch_s=0.2"]
            else:
                words = ["iond", "mount", "--foreground", "--options",
                         f"iond.stripe={STRIPE},iond.deadline_s=20", f"{self.root}/mnt{rank - servers}"]
            started.append(self.run_process(SWALE, *words, **place))
        for mount in started[servers:]:
            mount.wait_for("I/O servers\n")
        return started

    def stop(self, started, mounts=1):
        """A mount is ended by umount or by SIGTERM; then the servers end."""
        for number, mount in enumerate(started[-mounts:]):
            if number % 2:
                mount.process.terminate()
            else:
                mounted.unmount(f"{self.root}/mnt{number}")
        for process in reversed(started):
            self.assertEqual(process.end(), 0, process.said("err"))

    def programs(self, folder):
        """What programs do in a folder."""
        shell = """set -e
            umask 022; mkdir -p src/deep; ln -s deep/one src/link; ln -s nowhere src/broken
            seq 20000 > src/deep/one; ln src/deep/one src/two; dd if=src/two of=src/part bs=777 skip=3 count=5
            tar -cf all.tar src; mkdir out; tar -xpf all.tar -C out; cp -a src copy; mv copy/two copy/three
            chmod 400 copy/three; chmod 555 copy/deep; touch -d 2001-02-03T04:05:06.789 copy/part
            sort -r < out/src/two > sorted; truncate -s 300000 sorted; printf tail >> sorted
            mv -T src/deep moved; rm src/broken; rmdir out/src/deep 2>/dev/null || true; rm -r out
            test ! -e src/link; test "$(readlink src/link)" = deep/one; cmp copy/three moved/one
            find . -type f -links +1 | sort > links; sync; sync -f ."""
        done = subprocess.run(["sh", "-c", shell], cwd=folder, capture_output=True, text=True,
                              timeout=PATIENCE_S, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        for name, value in (("user.a", b"one"), ("user.b", b"\0" * 1000)):
            os.setxattr(f"{folder}/sorted", name, value)
        os.removexattr(f"{folder}/sorted", "user.a")

    def looked(self, folder):
        found = mounted.listing(folder)
        times = {name: os.stat(f"{folder}/{name}").st_mtime_ns for name in ("copy/part",)}
        attributes = {name: os.getxattr(f"{folder}/sorted", name) for name in os.listxattr(f"{folder}/sorted")
                      if not name.startswith("security")}
        return {name: what for name, what in found.items() if name != "all.tar"}, times, attributes

    def test_programs_use_it_as_a_directory_and_all_is_there_the_next_time(self):
        self.programs(self.plain)
        expected = self.looked(self.plain)
        started = self.start()
        with open("/proc/mounts", encoding="utf-8") as mounts:
            options = next(line.split()[3] for line in mounts if line.split()[1] == self.mnt)
        self.assertLessEqual({"nosuid", "nodev"}, set(options.split(",")))
        self.programs(self.mnt)
        self.assertEqual(self.looked(self.mnt), expected)
        disk, here = os.statvfs(self.root), os.statvfs(self.mnt)
        self.assertAlmostEqual(here.f_blocks * here.f_frsize / (2 * disk.f_blocks * disk.f_frsize), 1, 1)
        with self.assertRaises(PermissionError):  # by the kernel, by a mode that the servers keep beside
            open(f"{self.mnt}/copy/three", "w", encoding="utf-8")
        with self.assertRaises(PermissionError):
            open(f"{self.mnt}/copy/deep/new", "w", encoding="utf-8")
        self.stop(started)
        self.assertEqual(os.listdir(self.mnt), [])
        started = self.start()
        self.assertEqual(self.looked(self.mnt), expected)
        os.rename(f"{self.mnt}/sorted", f"{self.mnt}/other")
        self.assertNotEqual(mounted.listing(self.mnt), expected[0])  # the comparison can fail
        subprocess.run(["chmod", "-R", "u+w", self.mnt], check=True, timeout=PATIENCE_S)
        shutil.rmtree(f"{self.mnt}/copy")
        self.stop(started)

    def test_two_mounts_see_what_the_other_has_done(self):
        started = self.start(servers=3, mounts=2)
        one, two = self.mnt, f"{self.root}/mnt1"
        with open(f"{one}/f", "wb", buffering=0) as file:
            for i in range(30):
                file.write(BLOCK)
                self.assertEqual(os.stat(f"{two}/f").st_size, (i + 1) * len(BLOCK))
            with open(f"{two}/f", "rb") as other:
                self.assertEqual(other.read(), BLOCK * 30)
                os.rename(f"{two}/f", f"{two}/g")
                file.write(b"more")
                self.assertEqual(other.read(), b"more")
        self.assertEqual(os.listdir(one), ["g"])
        os.mkdir(f"{one}/g.d")
        with self.assertRaises(FileExistsError):
            os.mkdir(f"{two}/g.d")
        os.unlink(f"{one}/g")
        self.assertFalse(os.path.exists(f"{two}/g"))
        self.stop(started, mounts=2)

    def test_a_program_that_it_is_made_for_has_its_exit_status(self):
        words = [SWALE, "run", "--ssd", "ssd", "--backing", "disk0", "--size", "16M", "--at-end", "drain",
                 "--", SWALE, "iond", "mount", "mnt0", "--"]
        done = self.run_process(*words, "sh", "-c", "seq 1000 > mnt0/f; sync mnt0/f; exit 7")
        self.assertEqual(done.end(), 7, done.said("err"))
        with open(f"{self.root}/disk0/f", encoding="utf-8") as file:  # one server: a plain file
            self.assertEqual(file.read(), "".join(f"{i}\n" for i in range(1, 1001)))
        done = self.run_process(*words, "wc", "-l", "mnt0/f")
        self.assertEqual((done.end(), done.said().split("\n")[0]), (0, "1000 mnt0/f"), done.said("err"))
        done = self.run_process(  # in the background, until it is unmounted
            *words[:words.index(SWALE, 1)], "sh", "-c",
            f"{SWALE} iond mount mnt0 && cp mnt0/f mnt0/g && cmp mnt0/f mnt0/g && fusermount3 -u mnt0")
        self.assertEqual((done.end(), done.said().split("\n")[0]), (0, "mnt0: the files of 1 I/O servers"),
                         done.said("err"))
        self.assertEqual(sorted(os.listdir(f"{self.root}/disk0")), [".swale-tier", "f", "g"])
        done = self.run_process(*words, f"{self.root}/no-such-program")
        self.assertEqual(done.end(), 127, done.said("err"))
        done = self.run_process(SWALE, "run", "--ssd", "ssd", "--backing", "disk0", "--", SWALE, "iond",
                                "mount", "nowhere", "--", "true")
        self.assertEqual(done.end(), 3)
        self.assertIn("nowhere", done.said("err"))

    def tree(self, *program, servers=2, **more):
        """`swale run` of a program in a tree whose backing is the servers."""
        return self.run_process(
            SWALE, "run", "--servers", str(servers), "--ssd", "ssd%s", "--backing", "iond:disk%s", "--size",
            "16M", "--options", f"iond.stripe={STRIPE},iond.watch_s=0.2,iond.deadline_s=10", "--at", "mnt0",
            "--buffer", "buffer", "--memory", "64M", "--", *program, **more)

    def on_servers(self, *program):
        """A program beside which the servers are mounted where a tree has them."""
        return self.run_process(
            SWALE, "run", "--servers", "2", "--ssd", "ssd%s", "--backing", "disk%s", "--size", "16M",
            "--options", f"iond.stripe={STRIPE}", "--", SWALE, "iond", "mount", "--options",
            f"iond.stripe={STRIPE}", "buffer.iond", "--", *program)

    def test_one_job_has_the_servers_files_whatever_node_it_is_on(self):
        started = self.start(mounts=2)
        for name in ("at0", "at1"):
            os.mkdir(f"{self.root}/{name}")
        words = [[SWALE, "run", "--backing", f"mnt{node}", "--at", f"at{node}", "--buffer", f"buffer{node}",
                  "--memory", "64M", "--"] for node in (0, 1)]
        first = self.run_process(*words[0], "sh", "-c",
                                 "echo one > at0/f; touch written; until test -e go; do sleep 0.1; done")
        self.wait_until(lambda: os.path.exists(f"{self.root}/written"), first)
        second = self.run_process(*words[1], "touch", "at1/g")
        self.assertNotEqual(second.end(), 0)
        self.assertIn("has it", second.said("err"))
        open(f"{self.root}/go", "w", encoding="utf-8").close()
        self.assertEqual(first.end(), 0, first.said("err"))
        second = self.run_process(*words[1], "sh", "-c", "cat at1/f; touch at1/g")
        self.assertEqual((second.end(), second.said()), (0, "one\n"), second.said("err"))
        self.assertEqual(sorted(os.listdir(self.mnt)), ["f", "g"])
        self.stop(started, mounts=2)
        refused = self.run_process(SWALE, "run", "--ssd", "ssd%s", "--backing", "iond:disk%s", "--", "true")
        self.assertNotEqual(refused.end(), 0)
        self.assertIn("--buffer", refused.said("err"))

    def wait_until(self, done, process):
        end = time.monotonic() + PATIENCE_S
        while not done():
            self.assertIsNone(process.process.poll(), process.said("err"))
            self.assertLess(time.monotonic(), end, process.said("err"))
            time.sleep(0.05)

    def test_a_tree_stands_on_servers(self):
        writer = """
import os, sys
assert os.path.ismount("mnt0")
os.makedirs("mnt0/a/b")
shared = os.open("mnt0/a/b/shared", os.O_RDWR | os.O_CREAT, 0o640)
if not os.fork():
    for i in range(1, 200, 2): os.pwrite(shared, bytes([i]) * 7000, i * 7000)
    os._exit(0)
for i in range(0, 200, 2): os.pwrite(shared, bytes([i]) * 7000, i * 7000)
os.wait()
os.symlink("b/shared", "mnt0/a/link")
open("mnt0/old", "w").write("first")
os.rename("mnt0/old", "mnt0/new")
os.setxattr("mnt0/new", "user.a", b"b")
os.chmod("mnt0/new", 0o440)
sys.exit(int(sys.argv[1]))
"""
        reader = """
import os
whole = b"".join(bytes([i]) * 7000 for i in range(200))
assert open("mnt0/a/link", "rb").read() == whole
assert open("mnt0/new").read() == "first" and os.stat("mnt0/new").st_mode & 0o777 == 0o440
assert os.getxattr("mnt0/new", "user.a") == b"b" and sorted(os.listdir("mnt0")) == ["a", "new"]
print("the same")
"""
        done = self.tree(ordinary_user.python(), "-c", writer, "5")
        self.assertEqual(done.end(), 5, done.said("err"))
        self.assertNotIn("swale:", done.said("err"))
        self.assertEqual(os.listdir(self.mnt), [])
        # The servers have it, without the tree; then a tree has it again.
        started = self.start()
        done = self.run_process(ordinary_user.python(), "-c", reader)
        self.assertEqual((done.end(), done.said()), (0, "the same\n"), done.said("err"))
        self.stop(started)
        done = self.tree(ordinary_user.python(), "-c", reader)
        self.assertEqual((done.end(), done.said().split("\n")[0]), (0, "the same"), done.said("err"))
        done = self.tree(ordinary_user.python(), "-c", reader.replace("first", "second"))  # it can fail
        self.assertEqual(done.end(), 1)
        self.assertIn("AssertionError", done.said("err"))

    def test_a_tree_of_two_nodes_stands_on_servers(self):
        program = """
import os, sys, time
rank = int(sys.argv[1])
at, steps = f"mnt{rank // 2}", sys.argv[2]
assert os.path.ismount(at)
def meet(step):
    open(f"{steps}/{step}-{rank}", "w").close()
    end = time.monotonic() + 100
    while not all(os.path.exists(f"{steps}/{step}-{r}") for r in range(4)):
        assert time.monotonic() < end, step
        time.sleep(0.02)
shared = os.open(f"{at}/shared", os.O_RDWR | os.O_CREAT, 0o644)
for i in range(50): os.pwrite(shared, bytes([4 * i + rank]) * 5000, (4 * i + rank) * 5000)
os.close(shared)
open(f"{at}/own-{rank}", "w").write(f"{rank}")
meet("written")
assert open(f"{at}/shared", "rb").read() == b"".join(bytes([i]) * 5000 for i in range(200))
assert sorted(os.listdir(at)) == ["own-0", "own-1", "own-2", "own-3", "shared"]
meet("read")
if rank == 3: os.rename(f"{at}/own-0", f"{at}/renamed")
"""
        os.mkdir(f"{self.root}/steps")
        ranks = [self.run_process(
            SWALE, "run", "--servers", "2", "--ssd", "ssd%s", "--backing", "iond:disk%s", "--size", "16M",
            "--options", f"iond.stripe={STRIPE},iond.watch_s=0.2", "--at", f"mnt{rank // 2}", "--buffer",
            f"buffer{rank // 2}", "--memory", "64M", "--", ordinary_user.python(), "-c", program, str(rank),
            f"{self.root}/steps", SWALE_JOB_RANK=str(rank), SWALE_JOB_SIZE="4", SWALE_JOB_ID="two-nodes",
            SWALE_JOB_NODE=f"host-{rank // 2}", SWALE_JOB_TRANSPORT="tls") for rank in range(4)]
        for rank in ranks:
            self.assertEqual(rank.end(), 0, "".join(each.said("err") for each in ranks))
        started = self.start()
        with open(f"{self.mnt}/shared", "rb") as file:
            self.assertEqual(file.read(), b"".join(bytes([i]) * 5000 for i in range(200)))
        self.assertEqual(sorted(os.listdir(self.mnt)), ["own-1", "own-2", "own-3", "renamed", "shared"])
        self.stop(started)

    def join(self, rank, size, *program, files="", job="joined", **more):
        """A program in a tree over servers that are ranks of its job already."""
        return self.run_process(
            SWALE, "run", "--backing", f"iond:{files}", "--options",
            f"iond.stripe={STRIPE},iond.deadline_s=20", "--at", f"mnt{rank // 2}", "--buffer",
            f"buffer{rank // 2}", "--memory", "64M", "--", *program,
            SWALE_JOB_RANK=str(rank), SWALE_JOB_SIZE=str(size), SWALE_JOB_ID=f"{job}{os.getpid()}", **more)

    def test_trees_join_servers_that_run_between_their_ranks(self):
        program = """
import os, sys, time
rank = int(os.environ["SWALE_JOB_RANK"])
assert (os.environ["SWALE_JOB_SIZE"], rank) == ("2", int(sys.argv[1])), os.environ
assert os.path.ismount(f"mnt{rank}")
shared = os.open(f"mnt{rank}/shared", os.O_RDWR | os.O_CREAT, 0o644)
for i in range(rank, 100, 2): os.pwrite(shared, bytes([i]) * 9000, i * 9000)
os.close(shared)
open(f"written{rank}", "w").close()
while not os.path.exists(f"written{1 - rank}"): time.sleep(0.02)
assert open(f"mnt{rank}/shared", "rb").read() == b"".join(bytes([i]) * 9000 for i in range(100))
"""
        joined = dict(SWALE_JOB_SIZE="4", SWALE_JOB_ID=f"joined{os.getpid()}")
        servers = [self.run_process(
            SWALE, "iond", "--ssd", f"{self.root}/ssd{i}", "--backing", f"{self.root}/disk{i}", "--size",
            "16M", "--options", f"iond.stripe={STRIPE},iond.watch_s=0.2", "--at-end", "drain",
            SWALE_JOB_RANK=str(rank), SWALE_JOB_TRANSPORT="tls", **joined) for i, rank in enumerate((0, 2))]
        ranks = [self.join(rank, 4, ordinary_user.python(), "-c", program, str(rank // 2),
                           SWALE_JOB_NODE=f"host-{rank}", SWALE_JOB_TRANSPORT="tls") for rank in (1, 3)]
        for process in ranks + servers:
            self.assertEqual(process.end(), 0, "".join(each.said("err") for each in ranks + servers))
        started = self.start()
        with open(f"{self.mnt}/shared", "rb") as file:
            self.assertEqual(file.read(), b"".join(bytes([i]) * 9000 for i in range(100)))
        self.stop(started)

    def test_a_tree_joins_the_servers_of_a_run_around_it(self):
        for words, said in ((["sh", "-c", "seq 100000 > mnt0/f; mkdir mnt0/d"], ""),
                            (["sh", "-c", "wc -l < mnt0/f; ls mnt0"], "100000\nd\nf\n")):
            done = self.run_process(
                SWALE, "run", "--servers", "2", "--ssd", "ssd%s", "--backing", "disk%s", "--size", "16M",
                "--options", f"iond.stripe={STRIPE}", "--", SWALE, "run", "--backing", "iond:", "--options",
                f"iond.stripe={STRIPE}", "--at", "mnt0", "--buffer", "buffer", "--memory", "64M", "--",
                *words)
            self.assertEqual(done.end(), 0, done.said("err"))
            self.assertTrue(done.said().startswith(said), done.said())
            self.assertEqual(os.listdir(self.mnt), [])

    def test_a_tree_that_has_no_servers_to_join_is_refused(self):
        alone = self.join(0, 1, "true")
        self.assertNotEqual(alone.end(), 0)
        self.assertIn("SWALE_JOB_ID", alone.said("err"))
        elsewhere = self.join(0, 2, "true", files="disk0")
        self.assertNotEqual(elsewhere.end(), 0)
        self.assertIn("--ssd", elsewhere.said("err"))
        self.assertFalse([name for name in os.listdir(self.root) if name.endswith(".iond")])
        nobody = [self.join(rank, 2, "touch", "ran", job="nobody") for rank in (0, 1)]
        for rank in nobody:
            self.assertNotEqual(rank.end(), 0)
        self.assertIn("start swale iond as ranks", nobody[0].said("err"))
        self.assertFalse(os.path.exists(f"{self.root}/ran"))

    def servers_of(self, run):
        """The I/O servers that a `swale run` has started: its children that are `swale run` still."""
        found = []
        for number in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{number}/stat", encoding="utf-8") as is_:
                    parent = int(is_.read().rsplit(")", 1)[1].split()[1])
                with open(f"/proc/{number}/cmdline", "rb") as words:
                    is_run = words.read().split(b"\0")[1:2] == [b"run"]
            except OSError:
                continue
            if parent == run.process.pid and is_run:
                found.append(int(number))
        return sorted(found)

    def test_a_server_is_killed_under_a_tree_and_the_next_run_brings_all(self):
        for victim in (0, 1):
            program = ("seq 100000 > mnt0/f; mv mnt0/f mnt0/g; mkdir mnt0/d; seq 9 > mnt0/d/h; touch written;"
                       "until test -e killed; do sleep 0.1; done; cmp mnt0/g expected")
            subprocess.run(["sh", "-c", "seq 100000 > expected; rm -f written killed"], cwd=self.root,
                           check=True, timeout=PATIENCE_S)
            done = self.tree("sh", "-c", program, SWALE_JOB_COLLECTIVE_DEADLINE_S="20", UCX_TLS="tcp,self",
                             SWALE_JOB_TRANSPORT="ucx")
            self.wait_until(lambda: os.path.exists(f"{self.root}/written"), done)
            servers = self.servers_of(done)
            self.assertEqual(len(servers), 2, servers)
            os.kill(servers[victim], signal.SIGKILL)
            open(f"{self.root}/killed", "w", encoding="utf-8").close()
            self.assertNotEqual(done.end(), 0)  # the program saw its bytes; the drain has failed
            said = done.said("err")
            self.assertIn(f"rank {1 + victim} (host", said)
            self.assertNotIn("differ", said)
            if victim == 0:  # by another run in the tree, or without one
                done = self.tree("cmp", "mnt0/g", "expected")
            else:
                done = self.on_servers(SWALE, "fs", "recover", "buffer.iond", "--buffer", "buffer")
            self.assertEqual(done.end(), 0, done.said("err") + said)
            started = self.start()
            with open(f"{self.root}/expected", "rb") as expected, open(f"{self.mnt}/g", "rb") as found:
                self.assertEqual(found.read(), expected.read())
            self.assertEqual(sorted(os.listdir(self.mnt)), ["d", "g"])
            shutil.rmtree(f"{self.mnt}/d")
            os.unlink(f"{self.mnt}/g")
            self.stop(started)

    def test_a_killed_server_is_eio_and_named_and_loses_nothing(self):
        for victim in (1, 0):
            started = self.start(tcp=True)
            written = 0
            failed = None
            name = f"{self.mnt}/f{victim}"
            file = os.open(name, os.O_WRONLY | os.O_CREAT)
            try:
                while written < 100_000:
                    if written == 20:
                        started[victim].kill()
                    os.write(file, BLOCK)
                    written += 1
            except OSError as error:
                failed = error.errno
            self.assertEqual(failed, errno.EIO)
            with self.assertRaises(OSError):  # nobody knows whether all was kept
                os.close(file)
            with self.assertRaises(OSError) as listed:
                os.stat(name)
            self.assertEqual(listed.exception.errno, errno.EIO)
            started[-1].process.terminate()
            self.assertNotEqual(started[-1].end(), 0)  # its goodbye reaches one server less
            self.assertIn(f"rank {victim} (host", started[-1].said("err"))
            started[1 - victim].end()
            started = self.start()
            with open(name, "rb") as file:
                for i in range(written):
                    self.assertEqual(file.read(len(BLOCK)), BLOCK, i)
            with open(name, "r+b") as file:  # the comparison can fail
                file.seek(STRIPE + 5)
                file.write(b"x")
            with open(name, "rb") as file:
                self.assertNotEqual(file.read(len(BLOCK)), BLOCK)
            self.stop(started)
            self.assertGreaterEqual(written, 20)


if __name__ == "__main__":
    if not mounted.NO_MOUNTS:
        ordinary_user.let_users_mount()
    sys.exit(ordinary_user.run(lambda: unittest.main(argv=sys.argv[:1] + sys.argv[3:])))
