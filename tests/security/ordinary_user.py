"""Other users for tests that root runs: an I/O server refuses to run as root, and a neighbour is somebody
else.

The users need no entry in /etc/passwd. Without root there is one user only, and tests of neighbours say that
they are skipped.
"""
import ctypes
import os
import shutil
import stat
import sys
import tempfile

OWNER = 65533  # whose job it is
NEIGHBOUR = 65532


def give(folder, user=OWNER):
    """The folder and all below it, and the way to it, where that is a folder of this test."""
    if os.geteuid() != 0:
        return
    for path, folders, names in os.walk(folder):
        for name in [*folders, *names]:
            os.chown(os.path.join(path, name), user, user, follow_symlinks=False)
    os.chown(folder, user, user)


def drop(user=OWNER):
    """This process becomes that user, for good."""
    if os.geteuid() != 0:
        return
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)


def words(*command, user=OWNER):
    """The command as that user."""
    if os.geteuid() != 0:
        return list(command)
    return ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *command]


def python():
    """An interpreter that this user may run: root's own may lie where nobody else gets in."""
    return sys.executable if os.access(sys.executable,
                                       os.X_OK) else shutil.which("python3",
                                                                  path="/usr/local/bin:/usr/bin:/bin")


def let_users_mount():
    """As root, where mounts are allowed: this process and its children see a /dev/fuse that is everybody's,
    and an /etc/passwd that has the ordinary user, by whose name fusermount3 asks.
    """
    if os.geteuid() != 0:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    clone_newns, ms_bind, ms_rec, ms_private = 0x20000, 0x1000, 0x4000, 0x40000
    folder = tempfile.mkdtemp(prefix="users-", dir=os.getcwd())
    device, names = os.path.join(folder, "fuse"), os.path.join(folder, "passwd")
    os.mknod(device, 0o666 | stat.S_IFCHR, os.stat("/dev/fuse").st_rdev)
    os.chmod(device, 0o666)
    shutil.copy("/etc/passwd", names)
    os.chmod(names, 0o644)
    with open(names, "a", encoding="utf-8") as file:
        file.write(f"swale-test:x:{OWNER}:{OWNER}::/:/bin/false\n")
    for failed in (libc.unshare(clone_newns), libc.mount(b"none", b"/", None, ms_rec | ms_private, None),
                   libc.mount(device.encode(), b"/dev/fuse", None, ms_bind, None),
                   libc.mount(names.encode(), b"/etc/passwd", None, ms_bind, None)):
        if failed:
            raise OSError(ctypes.get_errno(), "a /dev/fuse for users")
    shutil.rmtree(folder)


def run(body):
    """Runs `body` as that user, in a folder of its own, and returns its exit status."""
    scratch = tempfile.mkdtemp(prefix="ordinary-user-", dir=os.getcwd())
    give(scratch)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.chdir(scratch)
            drop()
            body()
            status = 0
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else int(bool(ended.code))
        finally:
            sys.stdout.flush()
            os._exit(status)
    _, state = os.waitpid(child, 0)
    shutil.rmtree(scratch, ignore_errors=True)
    return os.waitstatus_to_exitcode(state)
