#!/usr/bin/env python3
"""random_nodes_test.py SWALE LIBSWALE PRELOAD [--long]: random calls of eight processes on four nodes of a
job's tree, against a model of what must be seen (10,000 calls; --long: 1,000,000).

On each node one process uses the mount and one the preload library too. The calls come one after the other,
so the model knows of each byte what a read may give: what the node has written, else what was committed, or
what another node has written and not committed. Commits are close, fsync, fdatasync, msync, writes of O_DSYNC
and RWF_DSYNC, ftruncate, an unlock (fcntl, OFD, flock), a rename and the end of a process, also by SIGKILL;
names are the same on all nodes at once; appended records never overlap. (nodes_test.py says how the nodes are
of one machine.)
"""
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import unittest

from mounted import listing
from nodes_test import NodesCase

PRELOAD = os.path.abspath(sys.argv[3])
LONG = "--long" in sys.argv
CALLS = 1_000_000 if LONG else 10_000
NODES, FILES, BYTES, RECORD = 4, 5, 20_000, 32
PAGE = 4096  # what a mapping writes of a file
SYNCHRONOUS = 8  # one open of so many
LOCKS = ("fcntl", "flock", "ofd", "none")  # the last: of a canary
WORKER = """
import ctypes, fcntl, json, mmap, os, struct, sys
from ctypes import c_int, c_long, c_size_t, c_void_p
files = {}
libc = ctypes.CDLL(None)  # Python's own mmap closes a descriptor, which is a commit
libc.mmap.restype, libc.mmap.argtypes = c_void_p, (c_void_p, c_size_t, c_int, c_int, c_int, c_long)
libc.msync.argtypes, libc.munmap.argtypes = (c_void_p, c_size_t, c_int), (c_void_p, c_size_t)
def write_mapped(file, value, offset, length, first, end, syncs):
    "Writes through a mapping, and says what then was in its pages."
    size = os.fstat(file).st_size
    if size < offset + length: return ""
    at = libc.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, file, 0)
    assert at != c_void_p(-1).value, "mmap"
    ctypes.memset(at + offset, value, length)
    pages = ctypes.string_at(at + first, min(end, size) - first)
    assert not syncs or libc.msync(at, size, 4) == 0, "msync"  # MS_SYNC
    assert libc.munmap(at, size) == 0, "munmap"
    return pages.hex()
def lock(file, how, kind):
    if how == "fcntl": fcntl.lockf(file, fcntl.LOCK_EX if kind == fcntl.F_WRLCK else fcntl.LOCK_UN)
    elif how == "flock": fcntl.flock(file, fcntl.LOCK_EX if kind == fcntl.F_WRLCK else fcntl.LOCK_UN)
    elif how == "ofd": fcntl.fcntl(file, fcntl.F_OFD_SETLKW, struct.pack("hhqqi4x", kind, 0, 0, 0, 0))
def call(what, name, *more):
    if what == "open": files[name] = os.open(more[0], os.O_RDWR | os.O_CREAT | more[1], 0o644)
    elif what == "close": os.close(files.pop(name))
    elif what == "write": return os.pwrite(files[name], bytes([more[0]]) * more[2], more[1])
    elif what == "read": return os.pread(files[name], more[1], more[0]).hex()
    elif what == "size": return os.fstat(files[name]).st_size
    elif what == "map":
        with mmap.mmap(files[name], 0, prot=mmap.PROT_READ) as mapped: return mapped[more[0]:sum(more)].hex()
    elif what == "sync": (os.fsync if more[0] else os.fdatasync)(files[name])
    elif what == "cut": os.ftruncate(files[name], more[0])
    elif what == "mapped": return write_mapped(files[name], *more)
    elif what == "rwf":
        return os.pwritev(files[name], [bytes([more[0]]) * more[2]], more[1], os.RWF_DSYNC if more[3] else 0)
    elif what == "locked":
        lock(files[name], more[3], fcntl.F_WRLCK)
        os.pwrite(files[name], bytes([more[0]]) * more[2], more[1])
        lock(files[name], more[3], fcntl.F_UNLCK)
    elif what == "append": return os.write(files[name], more[0].encode())
    elif what == "rename": os.rename(name, more[0])
    elif what == "list": return sorted(os.listdir("."))
    elif what == "whole":
        with open(name, "rb") as file: return file.read().hex()
for line in sys.stdin:
    print(json.dumps(call(*json.loads(line))), flush=True)
"""


class Written:
    """A byte that a node has written and not committed."""

    def __init__(self, value, before=None):
        self.value = value
        self.shown = {value} | (before.shown if before else set())  # what other nodes may see
        self.since = frozenset()  # what others have committed since it was written


class Model:
    """Of a file, for each byte: the values that may be committed, and by node what it has written since.

    A server may commit on its own before it must: a drain does. So of two nodes' writes, of which neither was
    committed when the other was written, either may win.
    """

    def __init__(self):
        self.committed = []
        self.own = [{} for _ in range(NODES)]

    def write(self, node, value, offset, length):
        own = self.own[node]
        for at in range(offset, offset + length):
            own[at] = Written(value, own.get(at))

    def commit(self, node):
        own, self.own[node] = self.own[node], {}
        end = max(own, default=-1) + 1
        self.committed.extend([frozenset([0])] * max(0, end - len(self.committed)))
        for at, written in own.items():
            self.committed[at] = written.since | {written.value}
            for other in self.own:
                if at in other:
                    other[at].since |= self.committed[at]

    def size(self, node):
        return max(len(self.committed), max(self.own[node], default=-1) + 1)

    def size_most(self):
        return max(self.size(node) for node in range(NODES))

    def may_be(self, node, at):
        mine = self.own[node].get(at)
        if mine:
            allowed = mine.since | {mine.value}
        else:
            allowed = self.committed[at] if at < len(self.committed) else frozenset([0])
        return allowed.union(*(other[at].shown for other in self.own
                               if other is not self.own[node] and at in other))

    def wrong(self, node, offset, length, found):
        """What is wrong with bytes that were read, or nothing."""
        least = max(0, min(length, self.size(node) - offset))
        most = max(0, min(length, self.size_most() - offset))
        if not least <= len(found) <= most:
            return f"{len(found)} bytes at {offset}, not {least} to {most}"
        for at, byte in enumerate(found, offset):
            if byte not in self.may_be(node, at):
                return f"byte {at} is {byte}, not one of {sorted(self.may_be(node, at))}"
        return None


class RandomNodes(NodesCase):
    def begin(self, seed):
        self.chance = random.Random(seed)
        self.servers_started = self.serve(nodes=NODES)
        self.workers = [self.worker(number) for number in range(2 * NODES)]
        self.opened = [set() for _ in self.workers]
        self.synchronous = set()  # process, file
        self.models = {f"f{i}": Model() for i in range(FILES)}
        self.names = {file: file for file in self.models}  # as they are now
        self.appended = [[] for _ in range(2)]  # records, in files of their own
        self.counts = {}
        for name in self.models:
            self.ask(0, "open", name, name, 0)
            self.ask(0, "close", name)

    def worker(self, number):
        environment = dict(os.environ, **({"LD_PRELOAD": PRELOAD} if number % 2 else {}))
        made = subprocess.Popen([sys.executable, "-c", WORKER], cwd=self.at(number // 2), env=environment,
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(self.forget, made)
        return made

    def forget(self, worker):
        worker.kill()
        worker.wait()
        worker.stdout.close()
        with contextlib.suppress(OSError):  # what it was not asked any more
            worker.stdin.close()

    def ask(self, number, *words):
        self.counts[words[0]] = self.counts.get(words[0], 0) + 1
        worker = self.workers[number]
        worker.stdin.write(json.dumps(words) + "\n")
        worker.stdin.flush()
        answer = worker.stdout.readline()
        self.assertTrue(answer, f"process {number} has ended in {words}")
        return json.loads(answer)

    def commit(self, number, name):
        self.models[name].commit(number // 2)

    def check(self, number, what, name, offset, length):
        found = bytes.fromhex(self.ask(number, what, name, offset, length))
        wrong = self.models[name].wrong(number // 2, offset, length, found)
        if wrong:
            raise AssertionError(f"call {sum(self.counts.values())}: {what} of {name} by process {number}: "
                                 f"{wrong}")

    def step(self):
        number, name = self.chance.randrange(2 * NODES), self.chance.choice(list(self.models))
        model, node, dice = self.models[name], number // 2, self.chance.randrange(1000)
        offset, length = self.chance.randrange(BYTES), 1 + self.chance.randrange(400)
        value = self.chance.randrange(1, 256)
        if dice < 30:
            return self.append(number)
        if dice < 40:
            return self.rename(number, name)
        if dice < 42:
            return self.kill(number)
        if dice < 60:
            names = [*self.names.values(), *(f"a{i}" for i in range(2) if self.appended[i])]
            return self.assertEqual(self.ask(number, "list", "."), sorted(names))
        if name not in self.opened[number]:
            is_synchronous = self.chance.randrange(SYNCHRONOUS) == 0
            return self.open(number, name, os.O_DSYNC if is_synchronous else 0)
        if dice < 370:
            self.write(number, name, value, offset, length)
        elif dice < 700:
            self.check(number, "read", name, offset, length * 4)
        elif dice < 740:
            size = self.ask(number, "size", name)
            if not model.size(node) <= size <= model.size_most():
                self.fail(f"size of {name}: {size}, not {model.size(node)} to {model.size_most()}")
        elif dice < 780:
            self.ask(number, "sync", name, dice % 2)
            self.commit(number, name)
        elif dice < 840:
            self.locked(number, name, value, offset, length, LOCKS[dice % 3])
        elif dice < 860:
            self.rwf(number, name, value, offset, length)
        elif dice < 870:
            if offset + length <= model.size(node):
                self.mapped(number, name, value, offset, length, syncs=dice % 2 == 0)
        elif dice < 930:
            if not any(own for other, own in enumerate(model.own) if other != node):
                self.commit(number, name)
                self.ask(number, "cut", name, offset)
                del model.committed[offset:]
                model.committed.extend([frozenset([0])] * (offset - len(model.committed)))
        elif dice < 940 and number % 2 == 0 and offset + length <= model.size(node):
            self.check(number, "map", name, offset, length)
        else:
            self.close(number, name)

    def open(self, number, name, flags=0):
        self.ask(number, "open", name, self.names[name], flags)
        self.opened[number].add(name)
        if flags & os.O_DSYNC:
            self.synchronous.add((number, name))

    def close(self, number, name):
        self.ask(number, "close", name)
        self.opened[number].remove(name)
        self.synchronous.discard((number, name))
        self.commit(number, name)

    def write(self, number, name, value, offset, length):
        self.ask(number, "write", name, value, offset, length)
        self.models[name].write(number // 2, value, offset, length)
        if (number, name) in self.synchronous:
            self.commit(number, name)

    def rwf(self, number, name, value, offset, length, syncs=True):
        self.ask(number, "rwf", name, value, offset, length, syncs)
        self.models[name].write(number // 2, value, offset, length)
        self.commit(number, name)

    def locked(self, number, name, value, offset, length, how):
        self.ask(number, "locked", name, value, offset, length, how)
        self.models[name].write(number // 2, value, offset, length)
        self.commit(number, name)

    def mapped(self, number, name, value, offset, length, syncs):
        """All bytes of its pages are written again, with what the node has seen of them."""
        model, node = self.models[name], number // 2
        first, end = offset // PAGE * PAGE, -(-(offset + length) // PAGE) * PAGE
        pages = bytes.fromhex(self.ask(number, "mapped", name, value, offset, length, first, end, syncs))
        model.write(node, value, offset, length)
        wrong = model.wrong(node, first, end - first, pages)
        self.assertIsNone(wrong, f"call {sum(self.counts.values())}: pages of {name} by process {number}")
        for at, byte in enumerate(pages, first):
            model.write(node, byte, at, 1)
        if syncs:
            self.commit(number, name)

    def rename(self, number, name):
        """A new name, on all nodes at once; who has it open goes on."""
        new = f"g{sum(self.counts.values())}"
        self.ask(number, "rename", self.names[name], new)
        self.names[name] = new
        self.commit(number, name)

    def append(self, number):
        """A record, committed: all nodes see it, and those before it."""
        which = self.chance.randrange(2)
        record = f"process {number} record {len(self.appended[which])} ".ljust(RECORD, ".")
        self.ask(number, "open", f"a{which}", f"a{which}", os.O_APPEND)
        self.assertEqual(self.ask(number, "append", f"a{which}", record), RECORD)
        self.ask(number, "close", f"a{which}")
        self.appended[which].append(record)
        if self.chance.randrange(10) == 0:
            self.check_records(self.chance.randrange(2 * NODES), which)

    def check_records(self, number, which):
        found = bytes.fromhex(self.ask(number, "whole", f"a{which}")).decode()
        self.assertEqual([found[at:at + RECORD] for at in range(0, len(found), RECORD)], self.appended[which])

    def kill(self, number):
        self.workers[number].send_signal(signal.SIGKILL)
        self.workers[number].wait()
        for name in self.opened[number]:
            self.commit(number, name)
            self.synchronous.discard((number, name))
        self.opened[number] = set()
        self.counts["kill"] = self.counts.get("kill", 0) + 1
        self.workers[number] = self.worker(number)

    def calls(self, count):
        while sum(self.counts.values()) < count:
            self.step()

    def end(self):
        """All is committed: each node has the same, and then the backing."""
        for number, opened in enumerate(self.opened):
            for name in sorted(opened):
                self.close(number, name)
        for name, model in self.models.items():
            for number in range(0, 2 * NODES, 2):
                found = bytes.fromhex(self.ask(number, "whole", self.names[name]))
                self.assertEqual(len(found), len(model.committed))
                self.assertIsNone(model.wrong(number // 2, 0, len(found), found), name)
        for worker in self.workers:
            worker.stdin.close()
            worker.wait()
        seen = listing(self.at(0))
        self.assertEqual([listing(self.at(node)) for node in range(1, NODES)], [seen] * (NODES - 1))
        for process in self.servers_started:
            process.send_signal(signal.SIGTERM)
        for status, said in self.ends(self.servers_started):
            self.assertEqual(status, 0, said)
        self.assertEqual(listing(self.backing), seen)

    def test_random_calls_show_what_they_must(self):
        self.begin(1)
        self.calls(CALLS)
        self.end()
        print(", ".join(f"{name} {count}" for name, count in sorted(self.counts.items())))

    # Canaries: what nobody has committed is not seen everywhere; a write that never was is missed.
    def test_canary_a_model_that_wants_all_to_be_seen_at_once(self):
        self.begin(2)
        for model in self.models.values():
            model.write = lambda node, *what, of=model: (Model.write(of, node, *what), of.commit(node))
        with self.assertRaisesRegex(AssertionError, "of f[0-9]"):
            self.calls(CALLS)

    def test_canary_what_is_no_commit(self):
        """Each commit of the model is left out in turn: another node does not see what was written."""
        self.begin(4)
        canaries = [
            ("O_DSYNC", lambda *what: (self.synchronous.add(what[:2]), self.write(*what))),
            ("RWF_DSYNC", lambda *what: self.rwf(*what, syncs=False)),
            ("unlock", lambda *what: self.locked(*what, "none")),
            ("msync", lambda *what: (self.mapped(*what, syncs=False), self.commit(*what[:2]))),
        ]
        for (what, write), name in zip(canaries, self.models):
            self.open(0, name)
            self.ask(0, "cut", name, PAGE)
            self.models[name].committed = [frozenset([0])] * PAGE
            write(0, name, 7, 100, 100)
            self.open(2, name)
            with self.assertRaisesRegex(AssertionError, "byte 100 is 0", msg=what):
                self.check(2, "read", name, 0, PAGE)

    def test_canary_a_write_that_never_was(self):
        self.begin(3)
        self.calls(500)
        name, number = next((name, number) for number, opened in enumerate(self.opened) for name in opened)
        self.models[name].write(number // 2, 7, 0, 1000)
        self.models[name].write(number // 2, 9, 1000, 1000)
        with self.assertRaisesRegex(AssertionError, "byte [0-9]+ is"):
            self.check(number, "read", name, 0, 2000)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
