#!/usr/bin/env python3
"""epochs_test.py SWALE: massive directories as files, through the kernel (swale mount).

For golden directories of each format: what find, cp, tar and Python find in the mount is what `swale scan`
prints. Nothing can be changed; a killed mount says what to do; a damaged file is an error for who reads it.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

from mounted import NO_MOUNTS, SWALE, run, unmount

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden"
DIRECTORIES = ["dir-v1", "keys-v1", "large-v1", "indirect-v1", "lossy-v1", "clusters-v1", "attributes-v1",
               "layout-v1/zstd-blocked_bloom"]


def name_of(key, type_):
    """The name that a key's file is to have (the key's rule, written once more)."""
    if type_ == "u64" and len(key) == 8:
        return str(int.from_bytes(key, "little"))
    if type_ == "i64" and len(key) == 8:
        return str(int.from_bytes(key, "little", signed=True))
    highest = 255 if type_ == "text" else 126
    plain = (type_ not in ("u64", "i64") and b"/" not in key
             and all(32 <= byte <= highest and byte != 127 for byte in key))
    if plain and key not in (b".", b"..") and not key.startswith(b"0x"):
        return os.fsdecode(key)
    return "0x" + key.hex()


def expected_of(directory):
    """Path of each file, and its bytes, by swale scan. (It gives one epoch's values of a key in the order of
    their appends only within a run: they are compared sorted.)"""
    type_ = json.loads(run(SWALE, "info", "--json", directory))["key"]
    files = {}
    for line in run(SWALE, "scan", "--json", "--hex", directory).splitlines():
        record = json.loads(line)
        name = f"{record['epoch']}/{name_of(bytes.fromhex(record['key'][2:]), type_)}"
        files.setdefault(name, []).append(bytes.fromhex(record["value"][2:]))
    return files


def is_of(content, values):
    """Whether these are the values, one behind the other, in some order."""
    if not values:
        return content == b""
    return any(content.startswith(value) and is_of(content[len(value):], values[:i] + values[i + 1:])
               for i, value in enumerate(values))


@unittest.skipIf(NO_MOUNTS, NO_MOUNTS)
class EpochsMount(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.mkdtemp(prefix="swale-epochs-", dir=os.getcwd())
        self.addCleanup(shutil.rmtree, self.root, ignore_errors=True)
        self.mountpoint = os.path.join(self.root, "mnt")
        os.mkdir(self.mountpoint)

    def mount(self, directory):
        said = json.loads(run(SWALE, "mount", "--json", str(directory), self.mountpoint))
        self.addCleanup(subprocess.run, ["fusermount3", "-uzq", self.mountpoint], check=False)
        return said

    def test_programs_find_what_a_scan_prints(self):
        for golden in DIRECTORIES:
            with self.subTest(golden):
                expected = expected_of(GOLDEN / golden)
                said = self.mount(GOLDEN / golden)
                self.assertEqual(said["records"], sum(map(len, expected.values())))
                found = run("find", ".", "-type", "f", "-printf", "%P\\0", cwd=self.mountpoint)
                self.assertEqual(sorted(found.split("\0")[:-1]), sorted(expected))
                copied = os.path.join(self.root, "copied")
                run("cp", "-a", self.mountpoint + "/.", copied)
                archive = os.path.join(self.root, "all.tar")
                run("tar", "-cf", archive, "-C", self.mountpoint, ".")
                run("tar", "-df", archive, "-C", copied)
                for name, values in expected.items():
                    content = pathlib.Path(self.mountpoint, name).read_bytes()
                    self.assertTrue(is_of(content, values), name)
                    self.assertEqual(pathlib.Path(copied, name).read_bytes(), content, name)
                unmount(self.mountpoint)
                shutil.rmtree(copied)
        print(f"{len(DIRECTORIES)} directories")

    def test_nothing_can_be_changed(self):
        self.mount(GOLDEN / "dir-v1")
        name = next(iter(expected_of(GOLDEN / "dir-v1")))
        path = os.path.join(self.mountpoint, name)
        for change in (lambda: open(path, "r+b"), lambda: os.unlink(path), lambda: os.truncate(path, 0),
                       lambda: os.mkdir(os.path.join(self.mountpoint, "9")), lambda: os.chmod(path, 0o600),
                       lambda: os.rename(path, path + "x"), lambda: os.setxattr(path, "user.a", b"b")):
            with self.assertRaises(OSError):
                change()
        self.assertEqual(os.getxattr(os.path.join(self.mountpoint, "0"), "user.swale.step"), b"0")

    def test_what_is_damaged_is_an_error(self):
        copy = os.path.join(self.root, "run")
        shutil.copytree(GOLDEN / "keys-v1", copy)
        expected = expected_of(copy)
        for data in pathlib.Path(copy).rglob("*.data"):
            content = bytearray(data.read_bytes())
            content[len(content) // 2] ^= 1
            data.write_bytes(content)
        self.mount(copy)
        failed = 0
        for name, values in expected.items():
            try:
                content = pathlib.Path(self.mountpoint, name).read_bytes()
                self.assertTrue(is_of(content, values), name)
            except OSError:
                failed += 1
        self.assertGreater(failed, 0)
        print(f"{failed} of {len(expected)} files could not be read")

    def test_a_mount_that_cannot_be_says_why(self):
        for words, said in (((self.root, self.mountpoint), "no massive directory there"),
                            ((GOLDEN / "dir-v1", self.root + "/nowhere"), "the mountpoint")):
            done = subprocess.run([SWALE, "mount", *map(str, words)], capture_output=True, text=True,
                                  timeout=60)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(said, done.stderr)
        self.assertFalse(os.path.ismount(self.mountpoint))


class Rules(unittest.TestCase):
    def test_the_comparison_sees_other_bytes(self):
        self.assertTrue(is_of(b"abcab", [b"ab", b"abc"]))
        for content in (b"", b"abc", b"abcabx", b"ababc" + b"c"):
            self.assertFalse(is_of(content, [b"ab", b"abc"]), content)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
