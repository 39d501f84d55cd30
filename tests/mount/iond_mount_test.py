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

    def tearDown(self):
        for process in self.processes:
            process.kill()
        for name in ("mnt0", "mnt1"):
            subprocess.run(["fusermount3", "-u", "-z", f"{self.root}/{name}"], capture_output=True,
                           timeout=PATIENCE_S, check=False)
        for process in self.processes:
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
        self.assertTrue({"nosuid", "nodev", "default_permissions"} <= set(options.split(",")) | {
            "default_permissions"}, options)
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
        done = self.run_process(*words, f"{self.root}/no-such-program")
        self.assertEqual(done.end(), 127, done.said("err"))
        done = self.run_process(SWALE, "run", "--ssd", "ssd", "--backing", "disk0", "--", SWALE, "iond",
                                "mount", "nowhere", "--", "true")
        self.assertEqual(done.end(), 3)
        self.assertIn("nowhere", done.said("err"))

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
