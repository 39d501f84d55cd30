#!/usr/bin/env python3
"""calls_test.py LIBRARY TABLE: the table of calls (src/preload/calls.txt) beside the C library of this
machine, and libswale_preload.so beside the table.

Each function that libc exports is taken, passed on, or named as one that has nothing to do with descriptors.
The library exports what the table says, and needs nothing but libc.
"""
import fnmatch
import os
import re
import subprocess
import sys
import unittest

LIBRARY, TABLE = sys.argv[1:3]
HANDLED = ("take", "before")
PROCESSOR = {"x86_64": "ld-linux-x86-64.so.2", "aarch64": "ld-linux-aarch64.so.1"}


def read_table(lines):
    """(handled names, passed names, patterns)"""
    handled, passed, patterns = [], [], []
    for line in lines:
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        kind = words[0]
        if kind in HANDLED:
            handled += words[2:]
        elif kind == "pass":
            passed += words[1:]
        elif kind == "not":
            patterns += words[1:]
        else:
            raise AssertionError(f"{TABLE}: no such class: {line.strip()}")
    return handled, passed, patterns


def functions_of(library):
    said = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True)
    found = set()
    for line in said.stdout.splitlines():
        _, kind, name = line.split(maxsplit=2)
        if kind in "TWi" and "GLIBC_PRIVATE" not in name:
            found.add(name.split("@")[0])
    return found


def path_of_libc():
    with open("/proc/self/maps", encoding="ascii") as maps:
        return next(line.split()[-1] for line in maps if re.search(r"/libc[.-][^/]*$", line.rstrip()))


def unnamed(lines, functions):
    handled, passed, patterns = read_table(lines)
    named = set(handled + passed)
    return sorted(name for name in functions - named
                  if not any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns))


def without(line, name):
    words = line.split()
    names_begin = 2 if words[:1] and words[0] in HANDLED else len(words)
    return " ".join(words[:names_begin] + [word for word in words[names_begin:] if word != name])


class Calls(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with open(TABLE, encoding="ascii") as table:
            cls.lines = table.read().splitlines()
        cls.libc = functions_of(path_of_libc())

    def test_each_function_of_the_c_library_is_named(self):
        self.assertGreater(len(self.libc), 2000)
        self.assertEqual(unnamed(self.lines, self.libc), [])

    def test_each_name_stands_once(self):
        handled, passed, patterns = read_table(self.lines)
        names = handled + passed
        self.assertEqual([name for name in names if names.count(name) > 1], [])
        self.assertEqual([(name, pattern) for name in names for pattern in patterns
                          if fnmatch.fnmatchcase(name, pattern)], [])

    def test_canary_a_missing_alias(self):
        """Each handled name, taken out, is missed: no pattern hides it."""
        handled, _, _ = read_table(self.lines)
        there = [name for name in handled if name in self.libc]
        self.assertGreater(len(there), 80)
        for name in there:
            self.assertEqual(unnamed([without(line, name) for line in self.lines], {name}), [name])

    def test_the_library_exports_the_table(self):
        handled, _, _ = read_table(self.lines)
        self.assertEqual(functions_of(LIBRARY) - {"_init", "_fini"}, set(handled))

    def test_the_library_needs_the_c_library_alone(self):
        said = subprocess.run(["readelf", "-dW", LIBRARY], capture_output=True, text=True, check=True).stdout
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]", said)
        self.assertLessEqual(set(needed), {"libc.so.6", PROCESSOR.get(os.uname().machine, "")})
        self.assertIn("libc.so.6", needed)

    def test_programs_start_with_it(self):
        done = subprocess.run(["/bin/echo", "started"], env=dict(os.environ, LD_PRELOAD=LIBRARY),
                              capture_output=True, text=True, check=True)
        self.assertEqual((done.stdout, done.stderr), ("started\n", ""))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
