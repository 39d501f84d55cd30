#!/usr/bin/env python3
"""container_test.py SWALE PROGRAM: a container, a metadata store and its logs, as files through the kernel
(swale mount --logs): find, cp, tar and Python find what PROGRAM (container.c) has written plainly beside it.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

from mounted import NO_MOUNTS, SWALE, listing, run, unmount

PROGRAM = os.path.abspath(sys.argv[2])
FILES = ["checkpoint", "run7/deep/field.bin", "run7/restart"]


@unittest.skipIf(NO_MOUNTS, NO_MOUNTS)
class Container(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.mkdtemp(prefix="swale-container-", dir=os.getcwd())
        self.addCleanup(shutil.rmtree, self.root, ignore_errors=True)
        self.mountpoint = f"{self.root}/mnt"
        os.mkdir(self.mountpoint)
        run(PROGRAM, self.root)

    def mount(self):
        said = json.loads(run(SWALE, "mount", "--json", f"{self.root}/store", self.mountpoint, "--logs",
                              f"{self.root}/log-%s"))
        self.addCleanup(subprocess.run, ["fusermount3", "-uzq", self.mountpoint], check=False)
        return said

    def contents(self, folder):
        return {name: pathlib.Path(folder, name).read_bytes() for name in FILES}

    def test_programs_find_what_was_written(self):
        self.assertEqual(self.mount()["files"], len(FILES))
        expected = self.contents(f"{self.root}/plain")
        found = run("find", ".", "-type", "f", "-printf", "%P %s %m\\n", cwd=self.mountpoint)
        self.assertEqual(sorted(found.splitlines()), [f"{name} {len(expected[name])} 440" for name in FILES])
        copied, archive, unpacked = (f"{self.root}/{name}" for name in ("copied", "all.tar", "unpacked"))
        run("cp", "-a", f"{self.mountpoint}/.", copied)
        os.mkdir(unpacked)
        run("tar", "-cf", archive, "-C", self.mountpoint, ".")
        run("tar", "-xf", archive, "-C", unpacked)
        for place in (self.mountpoint, copied, unpacked):
            self.assertEqual(self.contents(place), expected, place)
        run("diff", "-r", f"{self.root}/plain", self.mountpoint)
        with open(f"{self.mountpoint}/run7/restart", "rb") as file:
            for offset in (0, 1, 4095, 123_457, len(expected["run7/restart"]) - 3):
                file.seek(offset)
                self.assertEqual(file.read(5000), expected["run7/restart"][offset:offset + 5000])
        self.assertEqual(listing(copied), listing(self.mountpoint))

    def test_nothing_can_be_changed(self):
        before = listing(self.root)
        self.mount()
        path = f"{self.mountpoint}/checkpoint"
        for change in (lambda: open(path, "r+b"), lambda: os.unlink(path), lambda: os.truncate(path, 0),
                       lambda: os.mkdir(f"{self.mountpoint}/new"), lambda: os.chmod(path, 0o600),
                       lambda: os.rename(path, path + "x"), lambda: os.setxattr(path, "user.a", b"b")):
            with self.assertRaises(OSError):
                change()
        unmount(self.mountpoint)
        self.assertEqual(listing(self.root), before)

    def test_a_log_that_is_short_or_missing_is_an_error(self):
        expected = self.contents(f"{self.root}/plain")
        os.truncate(f"{self.root}/log-1", os.path.getsize(f"{self.root}/log-1") // 2)
        os.unlink(f"{self.root}/log-2")
        self.mount()
        failed = 0
        for name in FILES:
            for offset in range(0, len(expected[name]), 65536):
                with open(f"{self.mountpoint}/{name}", "rb", buffering=0) as file:
                    try:
                        found = os.pread(file.fileno(), 65536, offset)
                        self.assertEqual(found, expected[name][offset:offset + len(found)])
                    except OSError:
                        failed += 1
        self.assertGreater(failed, 0)
        print(f"{failed} pieces could not be read")

    def test_the_comparison_sees_another_byte(self):
        """The canary: a byte of a log is another one."""
        with open(f"{self.root}/log-0", "r+b") as log:
            log.seek(777)
            byte = log.read(1)
            log.seek(777)
            log.write(bytes([byte[0] ^ 1]))
        self.mount()
        self.assertNotEqual(self.contents(self.mountpoint), self.contents(f"{self.root}/plain"))

    def test_a_mount_that_cannot_be_says_why(self):
        store = f"{self.root}/store"
        golden = pathlib.Path(__file__).resolve().parents[1] / "golden/dir-v1"
        for words, said in (((store, self.mountpoint), "--logs"),
                            ((store, self.mountpoint, "--logs", "log"), "one %s"),
                            ((golden, self.mountpoint, "--logs", "log-%s"), "for metadata stores")):
            done = subprocess.run([SWALE, "mount", *map(str, words)], capture_output=True, text=True,
                                  timeout=60, check=False)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(said, done.stderr)
        self.assertFalse(os.path.ismount(self.mountpoint))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
