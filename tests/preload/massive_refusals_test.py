#!/usr/bin/env python3
"""massive_refusals_test.py SWALE LIBRARY REFUSALS: what a massive directory refuses: the errno of each call,
one line of the log for it, and nothing that it leaves.

REFUSALS prints what each call gave. Without the library they are calls on plain files: the comparison must
notice (test_without_the_library).
"""
import collections
import os
import re
import sys
import unittest

import massive_test

# Of each group: {what REFUSALS says: (its errno, the call that the log names; None: it is not a refusal)}.
GROUPS = {
    "moves": {
        "rename-into": ("EXDEV", "rename"), "rename-out": ("EXDEV", "rename"), "rename": ("EPERM", "rename"),
        "renameat-into": ("EXDEV", "renameat"), "renameat2": ("EPERM", "renameat2"),
        "unlink": ("EPERM", "unlink"), "unlinkat": ("EPERM", "unlinkat"), "remove": ("EPERM", "remove")},
    "attributes": {name: ("EPERM", name) for name in (
        "chmod", "lchmod", "fchmodat", "chown", "lchown", "fchownat", "utime", "utimes", "lutimes",
        "futimesat", "utimensat", "truncate")},
    "entries": {
        **{name: ("EPERM", name) for name in (
            "link", "linkat", "symlink", "symlinkat", "mkdir", "mkdirat", "mkfifo", "mkfifoat", "mknod",
            "mknodat", "mkdtemp", "mkstemp", "mkostemp", "mkstemps", "mkostemps")},
        "link-out": ("EPERM", "link"), "mkdir-slash": ("EPERM", "mkdir"), "beside": ("OK", None)},
    "opens": {
        "open-both": ("EINVAL", "open"), "open-write": ("EINVAL", "open"), "openat-both": ("EINVAL", "open"),
        "fopen-w": ("EINVAL", "fopen"), "fopen-r+": ("EINVAL", "fopen"), "fopen-a+": ("EINVAL", "fopen"),
        "fopen-r": ("ENOENT", None), "fseek": ("ESPIPE", "fseek"), "ftell": ("ESPIPE", None),
        "fileno": ("EBADF", None), "closedir": ("OK", None), "fopen-no-epoch": ("EPERM", "fopen"),
        "plain-unlink": ("OK", None)}}
OWN_ENTRIES = ["clusters", "jobs", "p000", "swale.json"]
REFUSAL = re.compile(r"^swale preload: .*: (\w+) of a subfile of a massive directory: .+$", re.MULTILINE)


def logged(errors):
    """How many refusals of each call."""
    return collections.Counter(REFUSAL.findall(errors))


class Refusals(massive_test.Programs):
    def refuse(self, group, **more):
        """{call: errno}, and the refusals that were logged"""
        status, out, errors = self.finish(self.start(group, **more))[0]
        self.assertEqual(status, 0, errors)
        return dict(line.split() for line in out.splitlines()), errors

    def check(self, group, found, errors):
        wanted = GROUPS[group]
        self.assertEqual(found, {call: errno for call, (errno, _) in wanted.items()})
        self.assertEqual(logged(errors),
                         collections.Counter(call for _, call in wanted.values() if call is not None))

    def test_each_call_is_refused_and_logged(self):
        for group in GROUPS:
            with self.subTest(group=group):
                self.check(group, *self.refuse(group))
                self.assertEqual(sorted(os.listdir(self.directory)), OWN_ENTRIES)
        self.assertEqual(self.values(), {(3, "a"): [b"kept"]})  # opens is the fourth of the groups

    def test_truncating_open_appends_if_told_so(self):
        found, errors = self.refuse("opens", SWALE_FS_MASSIVE_TRUNCATE="append")
        self.assertEqual(found["fopen-w"], "OK")
        self.assertEqual(logged(errors)["fopen"], 3)

    def test_a_value_that_nobody_knows_is_said_once(self):
        found, errors = self.refuse("opens", SWALE_FS_MASSIVE_TRUNCATE="yes")
        self.assertEqual(found["fopen-w"], "EINVAL")
        self.assertEqual(errors.count("SWALE_FS_MASSIVE_TRUNCATE=yes: there is no such value"), 1)

    def test_without_the_library(self):
        """The canary: each group differs."""
        for group in GROUPS:
            with self.subTest(group=group), self.assertRaises(AssertionError):
                self.check(group, *self.refuse(group, preload=""))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
