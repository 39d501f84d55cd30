"""A real block device that the kernel limits: a loop device on a file, with ext4, and a limit on the writes,
and on the bytes, a second by a control group.

Version 1 of control groups limits the device for everybody; version 2 limits the processes of a group that
this module makes, and moves the caller into. Whether the limit holds is measured before anything else is: a
kernel may take the number and do nothing.
"""
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

PROBE_WRITES = 60
PROBE_SLACK = 1.25  # the kernel saves up a part of a tenth of a second


class Unavailable(Exception):
    """Why this machine has no such device, for people."""


def run(*words, check=True):
    return subprocess.run([str(word) for word in words], check=check, capture_output=True, text=True,
                          timeout=120)


def mounted(kind, option):
    """Where a file system of this type with this option is mounted; None: nowhere."""
    for line in pathlib.Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines():
        _, where, found, options = line.split()[:4]
        if found == kind and (option is None or option in options.split(",")):
            return pathlib.Path(where)
    return None


class Limit:
    """Writes, and bytes written, a second of a block device, while it is held."""

    def __init__(self, device):
        number = os.stat(device).st_rdev
        self.device = f"{os.major(number)}:{os.minor(number)}"
        self.group = None
        self.controls = []
        old = mounted("cgroup", "blkio")
        new = mounted("cgroup2", None)
        if old and (old / "blkio.throttle.write_iops_device").exists():
            self.controls = [(old / "blkio.throttle.write_iops_device", "{device} {writes}"),
                             (old / "blkio.throttle.write_bps_device", "{device} {bytes}")]
            self.unlimited = "0"
        elif new and "io" in (new / "cgroup.controllers").read_text(encoding="utf-8").split():
            self._make_group(new)
        else:
            raise Unavailable("no control group of this kernel limits block devices (blkio of version 1, io "
                              "of version 2)")

    def _make_group(self, root):
        self.root = root
        try:
            (root / "cgroup.subtree_control").write_text("+io", encoding="utf-8")
            self.group = root / f"swale-bench-{os.getpid()}"
            self.group.mkdir()
            (self.group / "cgroup.procs").write_text(str(os.getpid()), encoding="utf-8")
        except OSError as failure:
            raise Unavailable(f"{root}: {failure}") from failure
        self.controls = [(self.group / "io.max", "{device} wiops={writes} wbps={bytes}")]
        self.unlimited = "max"

    def set(self, writes_per_second, bytes_per_second=None):
        for control, words in self.controls:
            control.write_text(words.format(device=self.device, writes=writes_per_second or self.unlimited,
                                            bytes=bytes_per_second or self.unlimited), encoding="utf-8")

    def release(self):
        if all(control.exists() for control, _ in self.controls):
            self.set(None)
        if self.group and self.group.exists():
            (self.root / "cgroup.procs").write_text(str(os.getpid()), encoding="utf-8")
            self.group.rmdir()


class Device:
    """with Device(scratch, mib) as device: device.root is the file system, device.limit(n) the writes a
    second (None: no limit), device.limit(n, bytes) those and the bytes. limited=False: without limit().
    """

    def __init__(self, scratch, mib, limited=True):
        self.limited = limited
        self.scratch = pathlib.Path(scratch)
        self.mib = mib
        self.loop = None
        self.limiter = None
        self.is_mounted = False

    def __enter__(self):
        try:
            self._make()
        except Unavailable:
            self.__exit__()
            raise
        except (OSError, subprocess.SubprocessError) as failure:
            self.__exit__()
            raise Unavailable(f"{failure} {getattr(failure, 'stderr', '') or ''}".strip()) from failure
        return self

    def _make(self):
        if os.geteuid() != 0:
            raise Unavailable("only root makes loop devices and limits them")
        missing = [name for name in ("losetup", "mkfs.ext4", "mount", "umount", "fusermount3")
                   if not shutil.which(name)]
        if missing:
            raise Unavailable(f"no {', '.join(missing)}")
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="swale-real-", dir=self.scratch))
        image = self.folder / "image"
        with open(image, "wb") as file:
            os.posix_fallocate(file.fileno(), 0, self.mib << 20)
        self.loop = run("losetup", "-f", "--show", image).stdout.strip()
        run("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", self.loop)
        self.root = self.folder / "device"
        self.root.mkdir()
        run("mount", self.loop, self.root)
        self.is_mounted = True
        if self.limited:
            self.limiter = Limit(self.loop)

    def limit(self, writes_per_second, bytes_per_second=None):
        self.limiter.set(writes_per_second, bytes_per_second)

    def check(self, writes_per_second):
        """Raises Unavailable if the kernel does not keep the limit."""
        path = self.root / "probe"
        file = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
        try:
            os.pwrite(file, bytes(4096 * 2 * PROBE_WRITES), 0)
            os.fsync(file)
            self.limit(writes_per_second)
            begin = time.monotonic()
            for i in range(PROBE_WRITES):  # every other page, so that nothing merges
                os.pwrite(file, b"x" * 4096, 2 * 4096 * i)
            os.fdatasync(file)
            took = time.monotonic() - begin
        finally:
            self.limit(None)
            os.close(file)
            os.unlink(path)
        if PROBE_WRITES / took > writes_per_second * PROBE_SLACK:
            raise Unavailable(f"the kernel takes the limit of {writes_per_second} writes a second, and lets "
                              f"{PROBE_WRITES / took:.0f} pass")

    def __exit__(self, *_):
        if self.limiter:
            self.limiter.release()
        if self.is_mounted:
            for _ in range(50):
                if run("umount", self.root, check=False).returncode == 0:
                    break
                time.sleep(0.2)
        if self.loop:
            run("losetup", "-d", self.loop, check=False)
        if getattr(self, "folder", None):
            shutil.rmtree(self.folder, ignore_errors=True)
