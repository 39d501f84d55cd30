"""Whether this machine allows FUSE mounts."""
import ctypes
import os
import tempfile


def no_mounts():
    """Why this machine allows no FUSE mount; "" if it does. As root it is tried: a container may have
    /dev/fuse alone.
    """
    try:
        device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        return str(error)
    libc = ctypes.CDLL(None, use_errno=True)
    with tempfile.TemporaryDirectory() as folder:
        options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
        tried = os.geteuid() == 0
        failed = tried and libc.mount(b"swale-probe", folder.encode(), b"fuse", 0, options) != 0
        why = os.strerror(ctypes.get_errno()) if failed else ""
        if tried and not failed:
            libc.umount2(folder.encode(), 2)  # MNT_DETACH: nobody serves it
        os.close(device)
    return f"mount: {why}" if failed else ""
