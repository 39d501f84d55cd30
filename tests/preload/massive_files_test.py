#!/usr/bin/env python3
"""massive_files_test.py SWALE LIBRARY SUBFILES: subfiles of a massive directory by open, write and close, by
their names once their epoch has ended, and in processes and threads that fork.

SUBFILES prints what each call gave; swale's commands read what was written. Without the library its values
are plain files: the comparison must notice (test_without_the_library).
"""
import collections
import sys
import unittest

import massive_test
from massive_refusals_test import logged

CALLS = {
    'open("x", O_RDWR | O_CREAT | O_APPEND, 0600)': "EINVAL", 'open("x", O_WRONLY | O_CREAT, 0600)': "EINVAL",
    'open("x", APPEND | O_EXCL, 0600)': "EINVAL", 'open("x", APPEND | O_SYNC, 0600)': "EINVAL",
    'open("x", O_RDONLY | O_CREAT, 0600)': "EINVAL", 'open("x", O_RDONLY)': "ENOENT",
    'creat("x", 0600)': "EINVAL",
    "writev(fd, parts, 2)": "OK", 'pwrite(fd, "x", 1, 0)': "ESPIPE", "pwritev(fd, parts, 2, 0)": "ESPIPE",
    "pwritev2(fd, parts, 0, -1, 0)": "OK", "lseek(fd, 0, SEEK_SET)": "ESPIPE",
    "lseek(fd, 5, SEEK_SET)": "ESPIPE", "read(fd, &byte, 1)": "EBADF", "pread(fd, &byte, 1, 0)": "EBADF",
    "ftruncate(fd, 0)": "EPERM", "fchmod(fd, 0600)": "EPERM", "fchown(fd, 1, 1)": "EPERM",
    'fchownat(fd, "", 1, 1, AT_EMPTY_PATH)': "EPERM", "futimens(fd, times)": "EPERM", "fsync(fd)": "EINVAL",
    "fdatasync(fd)": "EINVAL", "flock(fd, LOCK_EX)": "EBADF", "sendfile(fd, fd, NULL, 1)": "EBADF",
    "mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0)": "EBADF",
    'dprintf(fd, "inside the C library")': "EBADF", 'fdopen(fd, "a") == NULL ? -1 : 0': "EINVAL",
    "fcntl(fd, F_SETFL, 0)": "EPERM", "fstat(fd, &found)": "OK", "size": "13", "regular": "1", "flags": "1",
    "same-system": "1", "close(fd)": "EBADF", 'write(fd, "x", 1)': "EBADF", "echo-failed": "1",
    "shell-failed": "1", "open-no-epoch": "EPERM"}
# A line for each of these that the directory refuses; what a placeholder has not, the kernel refuses.
LOGGED = collections.Counter(
    ["open"] * 7 + ["pwrite", "pwritev", "lseek", "ftruncate", "fchmod", "fchown", "fchownat", "futimens",
                    "fsync", "fdatasync", "fdopen", "fcntl"])
VALUES = {"open": b"1", "open64": b"2", "openat": b"3", "openat64": b"4", "open_2": b"5", "open64_2": b"6",
          "openat_2": b"7", "calls": b"one two three", "copies": b"abcde", "range1": b"1", "range2": b"2",
          "large": b"x" * 3_000_000, "parents": b"mine alone"}
NAMES = {
    "stat-0": "ENOENT", "size-0": "5", "stat-1": "OK", "size-1": "11", "mode": "100444", "same": "1",
    'access("name", R_OK | W_OK)': "OK", 'access("name", X_OK)': "EACCES",
    'faccessat(AT_FDCWD, "name", F_OK, 0)': "OK", 'access("none", F_OK)': "ENOENT",
    'stat("none", &found)': "ENOENT", "open": "firstsecond", "none": "ENOENT", "write": "EBADF",
    "fstat": "11", "seek": "second", "fopen": "firstsecond"}
WRITERS, VALUES_EACH = 3, 400  # of subfiles.c


def said(text):
    return dict(line.rsplit(" ", 1) for line in text.splitlines())


class Subfiles(massive_test.Programs):
    def write(self, *words, **more):
        status, out, errors = self.finish(self.start(*words, **more))[0]
        self.assertEqual(status, 0, errors)
        return said(out), errors

    def check_descriptors(self, found):
        self.assertEqual(found, CALLS)
        self.assertEqual(self.values(), {(0, name): [value] for name, value in VALUES.items()})

    def test_descriptors(self):
        found, errors = self.write("descriptors")
        self.check_descriptors(found)
        self.assertEqual(logged(errors), LOGGED)

    def test_truncating_opens_append_if_told_so(self):
        found, _ = self.write("descriptors", SWALE_FS_MASSIVE_TRUNCATE="append")
        self.assertEqual(found['creat("x", 0600)'], "OK")
        self.assertEqual(found['open("x", O_WRONLY | O_CREAT, 0600)'], "EINVAL")

    def test_names_of_epochs_that_have_ended(self):
        found, _ = self.write("names")
        self.assertIn(found.pop("write-again"), ("EPERM", "EACCES"))  # root may open it; nobody writes it
        self.assertEqual(found, NAMES)

    def test_threads_write_while_others_fork(self):
        found, _ = self.write("forks")
        self.assertEqual(found, {"forks": "1"})
        names = [f"{writer}.{i}" for writer in range(WRITERS) for i in range(VALUES_EACH)]
        self.assertEqual(self.values(), {(0, name): [name.encode()] for name in names})

    def test_without_the_library(self):
        """The canary: plain files, and the check fails."""
        done = self.finish(self.start("descriptors", preload=""))[0]
        with self.assertRaises((AssertionError, ValueError)):
            self.check_descriptors(said(done[1]))
        self.assertEqual(self.epochs(), [])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
