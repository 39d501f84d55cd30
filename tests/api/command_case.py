"""What the tests of the `swale` command share: a directory of known content (make_directory.c), and how to
ask.

The programs' paths are the first two arguments: SWALE MAKE_DIRECTORY.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

SWALE, MAKE_DIRECTORY = sys.argv[1:3]
# Of the job that wrote the directory.
DATA, INDEX = (os.path.join("p000", "part-000000.j0001." + kind) for kind in ("data", "index"))
DOCUMENT, EPOCHS, STATS = (os.path.join("jobs", "0001", name)
                           for name in ("manifest.json", "epochs", "stats.jsonl"))
SLOT = 256  # bytes of an epoch in the epoch log, two copies of its record



def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


class CommandCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.mkdtemp(prefix="swale-test-")
        cls.path = os.path.join(cls.scratch, "directory")
        subprocess.run([MAKE_DIRECTORY, cls.path], check=True, timeout=60)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.scratch)

    def run_swale(self, *arguments, expect=0, path=None):
        """Standard output and error of `swale SUBCOMMAND PATH ...`; the exit status is as expected."""
        subcommand, *rest = arguments
        done = subprocess.run([SWALE, subcommand, path or self.path, *rest], capture_output=True, timeout=60)
        self.assertEqual(done.returncode, expect, (arguments, done.stdout, done.stderr))
        return done.stdout.decode("latin-1"), done.stderr.decode()

    def lines(self, *arguments, **keywords):
        return self.run_swale(*arguments, **keywords)[0].splitlines()

    def objects(self, *arguments, **keywords):
        return [json.loads(line) for line in self.lines(*arguments, "--json", **keywords)]

    def copy(self):
        path = tempfile.mkdtemp(dir=self.scratch)
        shutil.copytree(self.path, path, dirs_exist_ok=True)
        return path

    def damage(self, name, offset):
        path = self.copy()
        with open(os.path.join(path, name), "r+b") as file:
            file.seek(offset)
            byte = file.read(1)[0]
            file.seek(offset)
            file.write(bytes([byte ^ 1]))
        return path

    def seal(self, name, old, new):
        """Edits a manifest, and makes its checksum right."""
        with open(name, "rb") as file:
            text = file.read()
        covered = text[:text.rindex(b'"crc32c"')].replace(old, new)
        self.assertIn(new, covered)
        with open(name, "wb") as file:
            file.write(covered + b'"crc32c":"%08x"}\n' % crc32c(covered))

    def run_config(self, *arguments, expect=0, **variables):
        done = subprocess.run([SWALE, "config", *arguments], capture_output=True, text=True, timeout=60,
                              env=dict(os.environ, **variables))
        self.assertEqual(done.returncode, expect, (arguments, done.stdout, done.stderr))
        return done.stdout, done.stderr

    def files_of_a_copy(self):
        path = self.copy()
        names = [os.path.join(folder, name) for folder, _, files in os.walk(path) for name in files]
        return path, sorted(names)
