#!/usr/bin/env python3
"""refusals_test.py SWALE PRELOAD: what the tree of a job refuses, with which error, to programs with the
preload library and without it; what its log says of that; and what its mount does not trust.
"""
import json
import os
import subprocess
import sys
import unittest
import unittest.mock

from tree_case import TreeCase

PRELOAD = os.path.abspath(sys.argv[2])
# Each call twice, in a folder of its own: its error, or "done".
PROGRAM = """
import ctypes, errno, fcntl, json, os, socket, stat, struct, sys
os.chdir(sys.argv[1])
FICLONE, COLLAPSE, INSERT, PUNCH, KEEP_SIZE = 0x40049409, 0x08, 0x20, 0x02, 0x01
BLOCK = 4096
ACL = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in (
    (0x01, 6, 2**32 - 1), (0x02, 4, 1234), (0x04, 4, 2**32 - 1), (0x10, 4, 2**32 - 1), (0x20, 4, 2**32 - 1)))
libc = ctypes.CDLL(None, use_errno=True)
libc.fallocate.argtypes = ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long
file, other = (os.open(name, os.O_RDWR | os.O_CREAT, 0o644) for name in ("file", "other"))
for _ in range(64): os.pwrite(file, bytes(BLOCK), 0)
os.pwrite(file, bytes(4 * BLOCK), 0)
os.fsync(file)
def allocate(mode):
    if libc.fallocate(file, mode, BLOCK, BLOCK) != 0: raise OSError(ctypes.get_errno(), "fallocate")
def bind():
    with socket.socket(socket.AF_UNIX) as made: made.bind("socket")
def make(name): os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
calls = {
    "link": lambda: os.link("file", "second"),
    "mkfifo": lambda: os.mkfifo("fifo"),
    "mknod": lambda: os.mknod("device", stat.S_IFCHR | 0o600, os.makedev(1, 3)),
    "bind": bind,
    "chown": lambda: os.chown("file", os.geteuid() + 1, -1),
    "fchown": lambda: os.fchown(file, os.geteuid() + 1, -1),
    "ACL": lambda: os.setxattr("file", "system.posix_acl_access", ACL),
    "ACL by a descriptor": lambda: os.setxattr(file, "system.posix_acl_access", ACL),
    "O_TMPFILE": lambda: os.close(os.open(".", os.O_RDWR | os.O_TMPFILE, 0o600)),
    "FICLONE": lambda: fcntl.ioctl(other, FICLONE, file),
    "collapse": lambda: allocate(COLLAPSE),
    "insert": lambda: allocate(INSERT),
    "punch": lambda: allocate(PUNCH | KEEP_SIZE),
    "a name of 255 bytes": lambda: make("n" * 255),
    "a name of 256 bytes": lambda: make("n" * 256),
    "mkdir of 256 bytes": lambda: os.mkdir("d" * 256),
    "symlink of 256 bytes": lambda: os.symlink("file", "s" * 256),
    "rename to 256 bytes": lambda: os.rename("other", "r" * 256),
    "a write at the end": lambda: os.pwrite(file, b"x", 2**63 - 1),
}
def outcome(call):
    try:
        call()
    except OSError as failed:
        return "EOPNOTSUPP" if failed.errno == errno.EOPNOTSUPP else errno.errorcode[failed.errno]
    return "done"
print(json.dumps({name: outcome(call) for name, call in calls.items()}))
"""
REFUSED = {
    "link": "EPERM", "mkfifo": "EPERM", "mknod": "EPERM", "bind": "EPERM", "chown": "EPERM",
    "fchown": "EPERM",
    "ACL": "EOPNOTSUPP", "ACL by a descriptor": "EOPNOTSUPP", "O_TMPFILE": "EOPNOTSUPP",
    "FICLONE": "EOPNOTSUPP", "collapse": "EOPNOTSUPP", "insert": "EOPNOTSUPP",
    "a name of 256 bytes": "ENAMETOOLONG", "mkdir of 256 bytes": "ENAMETOOLONG",
    "symlink of 256 bytes": "ENAMETOOLONG", "rename to 256 bytes": "ENAMETOOLONG",
    "a write at the end": "EINVAL",  # of the kernel, on all file systems
}
TAKEN = ("punch", "a name of 255 bytes")
# Which of them the log of the server has. The kernel itself refuses the others, and users to chown.
LOGGED = ("link", "mknod", "setxattr of an ACL", *(("chown",) if os.geteuid() == 0 else ()))


class Refusals(TreeCase):
    def outcomes(self, folder, **more):
        os.mkdir(folder)
        return json.loads(subprocess.check_output([sys.executable, "-c", PROGRAM, folder],
                                                  env={**os.environ, **more}, text=True))

    def test_each_is_refused_with_its_error_with_the_preload_and_without_it(self):
        self.serve()
        wanted = {**REFUSED, **{name: "done" for name in TAKEN}}
        for name, more in (("mount", {}), ("preload", {"LD_PRELOAD": PRELOAD}),
                           ("light", {"LD_PRELOAD": PRELOAD, "SWALE_FS_DESCRIPTORS": "light"})):
            found = self.outcomes(os.path.join(self.tree, name), **more)
            self.assertEqual({call: found[call] for call in wanted}, wanted, name)
            left = sorted(os.listdir(os.path.join(self.tree, name)))
            self.assertEqual(left, sorted(["file", "other", "n" * 255]), name)

    def test_canary_a_plain_directory_refuses_less(self):
        found = self.outcomes(os.path.join(self.plain, "folder"))
        for call in ("link", "mkfifo", "bind", *TAKEN):
            self.assertEqual(found[call], "done", call)

    def test_the_first_of_each_kind_is_in_the_log_of_a_server_that_nobody_asked_for_more(self):
        environment = {name: value for name, value in os.environ.items() if name != "SWALE_LOG"}
        with unittest.mock.patch.dict(os.environ, environment, clear=True):
            self.serve()
        for name in ("first", "second"):
            self.outcomes(os.path.join(self.tree, name))
        status, said = self.end()
        self.assertEqual(status, 0, said)
        lines = said.splitlines()
        self.assertEqual(len(lines), len(LOGGED), said)
        for call in LOGGED:
            self.assertEqual(len([line for line in lines if f" {call} of " in line]), 1, said)

    def test_each_can_be_traced(self):
        """The log of level debug has the call, the file and why; names that are not there are no refusals."""
        with unittest.mock.patch.dict(os.environ, SWALE_LOG="debug"):
            self.serve()
        for name in ("first", "second"):
            self.outcomes(os.path.join(self.tree, name))
        for missing in ("missing", "first/file/beneath"):
            self.assertFalse(os.path.exists(os.path.join(self.tree, missing)))
        status, said = self.end()
        self.assertEqual(status, 0, said)
        for call in LOGGED:
            self.assertRegex(said, f" {call} of second(/file)?: .*not (permitted|supported)")
        self.assertNotIn("missing", said)

    def test_the_mount_trusts_no_set_user_id_and_no_devices(self):
        self.serve()
        with open("/proc/self/mountinfo", encoding="utf-8") as mounts:
            options = [line.split()[5].split(",") for line in mounts if line.split()[4] == self.tree]
        self.assertEqual(len(options), 1)
        self.assertLessEqual({"nosuid", "nodev"}, set(options[0]))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
