"""What a process has open to its neighbours: ports, and shared memory that others may map. Read from /proc,
as an administrator would."""
import os
import re
import stat

LISTENS_TCP = "0A"
ACCEPTS = 0x10000  # a unix socket that listens


def is_private(pid, name):
    """Whether a unix socket is a file to which only its owner may connect. `name`: its words in the table."""
    if not name or not name[0].startswith("/"):
        return False
    try:
        mode = os.stat(name[0].replace("/proc/self/", f"/proc/{pid}/")).st_mode
    except OSError:
        return False
    return mode & (stat.S_IWGRP | stat.S_IWOTH) == 0


def own_inodes(pid):
    """Of the sockets that the process has open."""
    mine = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            inode = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(f"/proc/{pid}/fd/{fd}"))
        except OSError:
            continue
        if inode:
            mine.add(inode[1])
    return mine


def sockets_of(pid):
    """inode -> description, of all sockets through which the network namespace of `pid` can be reached."""
    found = {}
    for protocol in ("tcp", "tcp6", "udp", "udp6", "raw", "raw6"):
        try:
            with open(f"/proc/{pid}/net/{protocol}") as table:
                rows = table.read().splitlines()[1:]
        except OSError:
            continue
        for row in rows:
            words = row.split()
            # A datagram socket has no state of listening: whoever has bound one is reached.
            if not protocol.startswith("tcp") or words[3] == LISTENS_TCP:
                found[words[9]] = f"{protocol} {words[1]}"
    with open(f"/proc/{pid}/net/unix") as table:
        for row in table.read().splitlines()[1:]:
            words = row.split()
            if int(words[3], 16) & ACCEPTS and not is_private(pid, words[7:]):
                found[words[6]] = f"unix {words[7] if len(words) > 7 else '(no name)'}"
    return found


def listeners(pid):
    """Of one process: the ports on which it waits for others."""
    sockets = sockets_of(pid)
    return {sockets[inode] for inode in own_inodes(pid) if inode in sockets}


def bells(pid):
    """The names of its unix datagram sockets that have one: UCX's wake-ups for shared memory. Any user may
    write to them.
    """
    mine = own_inodes(pid)
    with open(f"/proc/{pid}/net/unix") as table:
        rows = [row.split() for row in table.read().splitlines()[1:]]
    return {row[7] for row in rows if len(row) > 7 and row[4] == "0002" and row[6] in mine}


def system_v_segments(pids):
    """Made by one of these processes, or mapped into it."""
    with open("/proc/sysvipc/shm") as table:
        rows = [row.split() for row in table.read().splitlines()[1:]]
    made = {f"segment {row[1]} mode {row[2]}" for row in rows if int(row[4]) in pids}
    for pid in pids:
        with open(f"/proc/{pid}/maps") as maps:
            made |= {line.split()[-2] for line in maps.read().splitlines() if "/SYSV" in line}
    return made


def shared_files(pid):
    """path -> mode, of what the process has open or mapped in /dev/shm."""
    found = {}
    for folder in ("fd", "map_files"):
        try:
            names = os.listdir(f"/proc/{pid}/{folder}")
        except OSError:
            continue
        for name in names:
            path = f"/proc/{pid}/{folder}/{name}"
            try:
                target = os.readlink(path)
                if target.startswith("/dev/shm/"):
                    found[target] = stat.S_IMODE(os.stat(path).st_mode)
            except OSError:
                continue
    return found
