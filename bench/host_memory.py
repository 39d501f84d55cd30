"""The memory of a virtual machine, before it is measured.

A page that the host has not backed yet costs whoever touches it first 1 to 5 ms a MiB, some 15 times what
the kernel takes to clear one: a ratio then says who came first. A kernel that reports free pages gives them
back to the host within seconds, and each measurement pays again; as root,
`echo 11 > /sys/module/page_reporting/parameters/page_reporting_order` ends that (9 brings it back).
"""
import mmap
import pathlib
import sys

LARGE_PAGE = 2 << 20
SHARE = 0.8  # of the memory that is available
LARGEST_ORDER = 10  # of Linux' blocks of free pages
ORDER = pathlib.Path("/sys/module/page_reporting/parameters/page_reporting_order")
BALLOONS = pathlib.Path("/sys/bus/virtio/drivers/virtio_balloon")


def available_bytes():
    for line in pathlib.Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    return 0


def goes_back():
    """Whether this kernel gives free memory back to a host."""
    if not ORDER.exists() or not any(BALLOONS.glob("virtio*")):
        return False
    return int(ORDER.read_text(encoding="ascii")) <= LARGEST_ORDER


def touch():
    """Has the host back most of the memory that is available; says so if it will not last."""
    count = int(available_bytes() * SHARE) // LARGE_PAGE
    if count > 0:
        with mmap.mmap(-1, count * LARGE_PAGE, flags=mmap.MAP_PRIVATE) as memory:
            memory.madvise(mmap.MADV_HUGEPAGE)
            step = LARGE_PAGE if large_pages() else mmap.PAGESIZE
            for at in range(0, len(memory), step):
                memory[at] = 1
    if goes_back():
        print("free memory of this machine goes back to its host: what touches new memory is slow, and its "
              f"figures are the host's. As root: echo {LARGEST_ORDER + 1} > {ORDER}", file=sys.stderr,
              flush=True)


def large_pages():
    said = pathlib.Path("/sys/kernel/mm/transparent_hugepage/enabled")
    return said.exists() and "[never]" not in said.read_text(encoding="ascii")
