#!/usr/bin/env python3
"""light_test.py SWALE LIBRARY CANARY STEPS TABLE: files that programs open past the kernel
(SWALE_FS_DESCRIPTORS=light), beside the same program through the mount and in a plain directory.

What the program prints and the files that it leaves must be the same; and files must have been made past the
kernel. CANARY is a library whose table lacks fork: a child then has its parent's placeholders. TABLE:
calls.txt.
"""
import contextlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from mounted import NO_MOUNTS, SWALE, listing, run

LIBRARY, CANARY, STEPS, TABLE = map(os.path.abspath, sys.argv[2:6])
PATIENCE_S = 300
NAMES = 200
MANY = 1024
MOST = 100_000
DATA = set("""write pwrite writev pwritev pwritev2 read readv pread pread_chk preadv preadv2 read_chk
    lseek open openat open_2 openat_2 close close_range closefrom dup dup2 dup3 fcntl fopen fstat fxstat
    fstatat fxstatat statx fstatfs fstatvfs fsync fdatasync ftruncate fchmod fchown futimens futimes
    futimesat fdopen freopen fdopendir fgetxattr flistxattr fsetxattr fremovexattr flock lockf
    first leaves third both first_third ioctl mmap real reals syscall""".split())
NOT_DATA = set("""creat mkstemp mkostemp mkstemps mkostemps umask fclose opendir closedir names rename
    renameat renameat2 unlink unlinkat remove chmod fchmodat chown lchown fchownat utime utimes utimensat
    lchmod lutimes link linkat symlink symlinkat mkdir mkdirat mkdtemp mkfifo mkfifoat mknod mknodat
    xmknod xmknodat truncate all program spawned rmdir sendmsg sendmmsg stat lstat xstat lxstat access
    faccessat readdir readdir_r seekdir telldir rewinddir dirfd readlink readlinkat readlink_chk
    readlinkat_chk realpath realpath_chk canonicalize_file_name statfs statvfs scandir scandirat
    getdents64 glob ftw nftw fts_open getxattr lgetxattr listxattr llistxattr setxattr lsetxattr
    removexattr lremovexattr bind""".split())
# They need a terminal, a queue or rights that a test does not have, or several requests.
NOT_CALLED = set("""login_tty fanotify_mark eventfd_read eventfd_write open_by_handle_at aio_fsync aio_fsync64
    aio_cancel aio_cancel64 lio_listio lio_listio64""".split())
# What the mount says otherwise than a plain directory, with light descriptors or without.
OF_THE_MOUNT = {"calls": {"epoll_ctl"}}


class Light(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        if NO_MOUNTS:
            raise unittest.SkipTest(f"no FUSE mounts here: {NO_MOUNTS}; in a container, add --device "
                                    f"/dev/fuse --cap-add SYS_ADMIN")

    def setUp(self):
        # /tmp may be without extended attributes
        self.scratch = tempfile.mkdtemp(prefix="swale-light-", dir=os.getcwd())
        self.plain = os.path.join(self.scratch, "plain")
        self.tree = os.path.join(self.scratch, "tree")
        os.mkdir(self.plain)
        os.mkdir(self.tree)
        self.server = subprocess.Popen([SWALE, "serve", self.tree], stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE, text=True)
        self.assertIn("is mounted", self.server.stdout.readline())
        self.ends_well = True

    def tearDown(self):
        try:
            self.server.send_signal(signal.SIGTERM)
            _, said = self.server.communicate(timeout=PATIENCE_S)
            if self.ends_well:
                self.assertEqual((self.server.returncode, said), (0, ""))
        finally:
            if self.server.poll() is None:
                self.server.kill()
                self.server.wait()
            subprocess.run(["fusermount3", "-u", "-z", self.tree], stderr=subprocess.DEVNULL, check=False)
            shutil.rmtree(self.scratch)

    def stats(self):
        return json.loads(run(SWALE, "fs", "stat", "--json", self.tree))

    def environment(self, library):
        environment = dict(os.environ, LC_ALL="C", SWALE_FS_DESCRIPTORS="light")
        if library:
            environment["LD_PRELOAD"] = library
        return environment

    def outcome(self, folder, words, library):
        os.mkdir(folder)
        done = subprocess.run([STEPS, words[0], folder, *map(str, words[1:])], stdin=subprocess.DEVNULL,
                              env=self.environment(library), capture_output=True, text=True,
                              timeout=PATIENCE_S, check=False)
        return done.returncode, done.stdout, done.stderr.replace(folder, "")

    def same(self, *words, library=LIBRARY):
        """Past the kernel and through the mount: the same; as in a plain directory, if the mount is."""
        name = "-".join(map(str, words))
        plain, mount, light = (os.path.join(root, f"{name}-{way}") for root, way in
                               ((self.plain, "native"), (self.tree, "mount"), (self.tree, "light")))
        native = self.outcome(plain, words, None)
        self.assertEqual(native[0], 0, native)
        by_mount = self.outcome(mount, words, None)
        made = self.stats()["light_creates"]
        by_light = self.outcome(light, words, library)
        self.assertGreater(self.stats()["light_creates"], made, "all files were made through the kernel")
        self.said = by_light[1]
        self.assertEqual(by_light, by_mount)
        self.assertEqual(listing(light), listing(mount))
        own = OF_THE_MOUNT.get(words[0], set())
        self.assertEqual([line for line in by_mount[1].splitlines() if line.split(":")[0] not in own],
                         [line for line in native[1].splitlines() if line.split(":")[0] not in own])
        self.assertEqual(listing(mount), listing(plain))
        self.assertEqual(self.nothing_is_open(), 0)

    def nothing_is_open(self):
        """The server hears of an end soon."""
        end = time.monotonic() + PATIENCE_S
        while self.stats()["light_open"] > 0 and time.monotonic() < end:
            time.sleep(0.05)
        return self.stats()["light_open"]

    def test_opens_that_make_files_or_are_refused(self):
        self.same("errors")

    def test_opens_of_files_that_are_there(self):
        for bound in (0, 1):
            before = self.stats()["light_opens"]
            self.same("opens", bound)
            opens = self.stats()["light_opens"] - before
            print(f"{opens} opens of files past the kernel")
            self.assertGreater(opens, 400)

    def test_writes_and_reads(self):
        self.same("data")

    def test_writes_and_reads_need_no_other_open(self):
        code, said, errors = self.outcome(os.path.join(self.tree, "stays"), ("data", 1), LIBRARY)
        self.assertEqual((code, errors), (0, ""))
        light, seen = map(int, said.splitlines()[-1].split(" of "))
        print(f"{light} of {seen} descriptors stayed placeholders")
        self.assertGreater(light, 0.9 * seen)
        self.assertGreater(self.stats()["program_writes"], 0)

    def test_threads_write_while_one_forks(self):
        self.same("forks")

    def test_looks_at_paths(self):
        for bound in (0, 1):
            before = self.stats()["light_looks"]
            self.same("looks", bound)
            looks = self.stats()["light_looks"] - before
            print(f"{looks} looks at paths past the kernel")
            self.assertGreater(looks, 400)
            self.assertNotIn("NOT AS THE KERNEL", self.said)

    def test_statx_looks_past_the_kernel(self):
        before = self.stats()["light_looks"]
        self.same("statx")
        self.assertGreaterEqual(self.stats()["light_looks"] - before, 100)

    def test_each_call_on_a_descriptor(self):
        self.same("calls")

    def test_each_call_of_the_table_is_called(self):
        called = set(run(STEPS, "names", ".").split())
        handlers, names = set(), set()
        with open(TABLE, encoding="ascii") as table:
            for line in table:
                words = line.split()
                if words[:1] not in (["take"], ["before"]):
                    continue
                handlers.add(words[1])
                if words[1] in DATA:
                    names |= set(words[2:])
        self.assertEqual(handlers, DATA | NOT_DATA)
        self.assertEqual(names - called, NOT_CALLED)

    def test_other_processes_and_other_names(self):
        self.same("others")

    def test_numbers(self):
        self.same("numbers")

    def test_no_number_is_free(self):
        self.same("limit")

    def test_one_of_several_makes_a_file(self):
        self.same("exclusive", NAMES)

    def test_threads(self):
        self.same("threads")

    def test_many_files(self):
        self.same("many", MANY)

    # As many as the machine allows; the skip says so if these are fewer.
    def test_very_many_files(self):
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        if limit < MOST + 200:
            with contextlib.suppress(ValueError, OSError):  # root may have more
                resource.setrlimit(resource.RLIMIT_NOFILE, (MOST + 200, MOST + 200))
                limit = MOST + 200
        count = min(MOST, limit - 200)
        folder = os.path.join(self.tree, "most")
        done = self.outcome(folder, ("many", count), LIBRARY)
        self.assertEqual(done, (0, f"many0: 7 written\nmany: {count} \n", ""))
        self.assertEqual(len(os.listdir(folder)), count + 1)
        self.assertGreaterEqual(self.stats()["light_creates"], count - 10)
        self.assertEqual(self.nothing_is_open(), 0)
        if count < MOST:
            self.skipTest(f"light: no {MOST} open files here: {count} were; this user may have {limit}")

    def waiting(self):
        folder = os.path.join(self.tree, "waiting")
        os.mkdir(folder)
        process = subprocess.Popen([STEPS, "waits", folder], env=self.environment(LIBRARY), text=True,
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(process.stdout.readline(), "waits\n")
        self.assertEqual(self.stats()["light_open"], 1)
        return process

    def test_a_killed_process(self):
        process = self.waiting()
        process.kill()
        process.communicate()
        self.assertEqual(self.nothing_is_open(), 0)
        self.assertEqual(sorted(os.listdir(os.path.join(self.tree, "waiting"))), ["first", "waits"])

    def test_the_server_dies(self):
        process = self.waiting()
        self.ends_well = False
        self.server.kill()
        self.server.wait()
        said, errors = process.communicate("\n", timeout=PATIENCE_S)
        self.assertEqual((process.returncode, errors), (0, ""))
        subprocess.run(["fusermount3", "-u", "-z", self.tree], check=True)
        run(SWALE, "fs", "recover", self.tree)
        self.assertEqual(sorted(os.listdir(os.path.join(self.tree, "waiting"))), ["first", "waits"])
        self.assertEqual(said.splitlines(), ["fstat: -1 EBADF", "fcntl: -1 EBADF", "write: -1 EBADF",
                                             "lseek: -1 EBADF", "dup: -1 EBADF", "open: -1 ENOTCONN",
                                             "close: 0 "])

    def made_by_the_kernel(self, library=LIBRARY, value="light"):
        """Nothing is made past it; what the process says."""
        made = self.stats()["light_creates"]
        folder = os.path.join(self.tree, f"plainly-{os.path.basename(library)}")
        os.mkdir(folder)
        done = subprocess.run([STEPS, "many", folder, "10"], capture_output=True, text=True, check=False,
                              env=dict(os.environ, LD_PRELOAD=library, SWALE_FS_DESCRIPTORS=value),
                              timeout=PATIENCE_S)
        self.assertEqual((done.returncode, done.stdout), (0, "many0: 7 written\nmany: 10 \n"))
        self.assertEqual(self.stats()["light_creates"], made)
        return done.stderr

    def test_another_value_is_said_once(self):
        errors = self.made_by_the_kernel(value="Light")
        self.assertRegex(errors, r"^swale preload: SWALE_FS_DESCRIPTORS=Light: there is no such value.*\n$")

    def beside(self, name):
        path = os.path.join(self.scratch, name)
        run("gcc", "-shared", "-x", "c", "/dev/null", "-o", path)
        return f"{LIBRARY}:{path}"

    def test_beside_a_library_that_makes_its_own_calls(self):
        for name in ("liburing.so.2", "libaio.so.1"):
            with self.subTest(name=name):
                errors = self.made_by_the_kernel(self.beside(name))
                self.assertRegex(errors, rf"^swale preload: .*process with {name}, which makes calls.*\n$")

    def test_canary_beside_another_library(self):
        with self.assertRaises(AssertionError):
            self.made_by_the_kernel(self.beside("libother.so.1"))

    def test_canary_a_fork_that_keeps_placeholders(self):
        self.same("limit", library=CANARY)  # it is a library that works
        with self.assertRaises(AssertionError):
            self.same("others", library=CANARY)

    def test_canary_without_the_option(self):
        """Nothing is made past the kernel, and the test says so."""
        self.environment = lambda library: dict(os.environ, LC_ALL="C", LD_PRELOAD=library or "")
        with self.assertRaisesRegex(AssertionError, "through the kernel"):
            self.same("limit")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[6:], verbosity=2)
