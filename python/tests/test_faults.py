"""Damage, interrupts, leaks."""
from __future__ import annotations

import multiprocessing
import operator
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import EPOCHS, damaged_copy

import swale


def answers(path: str) -> dict[str, object]:
    """Everything that a directory answers, in a form that can be compared."""
    with swale.open(path) as d:
        table = d.scan()
        return {
            "epochs": repr(d.epochs),  # NaN of one reading equals no NaN of another
            "schema": str(d.schema),
            "get": [d[key].tobytes() for key in (0, 3, 17)],
            "scan": {name: table[name].tobytes() for name in table},
            "many": d.get_many(range(0, 50, 7))["x"].tobytes(),
            "top": d.top("x", 5)["key"].tolist(),
            "keys": sorted(d.keys()),
        }


def test_every_damage_is_told_or_harmless(tmp_path: Path) -> None:
    """Each byte of a small directory flipped: every answer is right, or an error that names the place."""
    path = tmp_path / "small"
    particle = np.dtype([("x", "f8"), ("id", "u4")])
    with swale.create(path, schema=particle, key="u64", extrema=["x"]) as out:
        for epoch in range(2):
            rows = np.zeros(60, dtype=particle)
            rows["x"], rows["id"] = np.arange(60) * 1.5 + epoch, np.arange(60)
            out.append_many(np.arange(60, dtype="u8"), rows)
            out.epoch_end(epoch)
    right = answers(str(path))
    told = harmless = 0
    for file in sorted(each for each in path.rglob("*") if each.is_file()):
        original = file.read_bytes()
        used = [i for i in range(len(original)) if original[i] or i % 64 == 0]
        step = 1 if os.environ.get("SWALE_FLIPS") else max(1, len(used) // 60)
        for at in used[::step]:
            data = bytearray(original)
            data[at] ^= 1 << (at % 8)
            file.write_bytes(data)
            try:
                assert answers(str(path)) == right, f"{file.name}: byte {at}"
                harmless += 1
            except swale.SwaleError as error:
                told += 1
                assert str(error) and "\n" not in str(error)
        file.write_bytes(original)
    print(f"{told + harmless} flipped bytes: {told} errors, {harmless} right answers")
    assert told > 50 and harmless > 10
    assert answers(str(path)) == right


def test_corruption_names_file_and_offset(run: str, tmp_path: Path) -> None:
    data = max(Path(run).rglob("*.data"), key=lambda each: each.stat().st_size)
    path = damaged_copy(run, tmp_path / "copy", str(data.relative_to(run)), 4096 + 100)
    with swale.open(path) as d:
        for ask in (d.scan, lambda: [d[key] for key in range(500)], lambda: list(d.stream())):
            with pytest.raises(swale.CorruptionError) as told:
                ask()
            assert told.value.path == str(Path(path) / data.relative_to(run))
            assert told.value.offset == 4096
            assert isinstance(told.value, swale.SwaleError)


LONG_SCAN = """
import sys, time, threading, os, signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job has it ignored
import swale
d = swale.open(sys.argv[1])
what = sys.argv[2]
def interrupt():
    time.sleep(0.3)
    global sent
    sent = time.monotonic()
    os.kill(os.getpid(), signal.SIGINT)
if what == "arrow":
    import pyarrow  # before the interrupt, which a module that is being imported may turn into something else
sent = 0.0
def ask():
    if what == "scan":
        d.scan(where=" + ".join(["sqrt(x * x)"] * 200) + " < -1", threads=1)
    elif what == "stream":
        for batch in d.stream(batch_rows=1000): pass
    elif what == "arrow":
        pyarrow.RecordBatchReader.from_stream(d.stream(where="x < -1", threads=1)).read_all()
    elif what == "keys":
        d.keys()
    else:
        d.get_many(range(200000), epochs=0)
try:
    threading.Thread(target=interrupt, daemon=True).start()
    while True:
        try:
            ask()
        except OSError as error:  # pyarrow's own; the KeyboardInterrupt comes right after it
            assert what == "arrow" and "cancelled" in str(error), error
except KeyboardInterrupt:
    print(time.monotonic() - sent)
"""


@pytest.fixture(scope="session")
def larger(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("larger") / "run"
    dtype = np.dtype([("x", "f8")])
    with swale.create(path, schema=dtype, key="u64") as out:
        for epoch in range(3):
            rows = np.zeros(200_000, dtype=dtype)
            out.append_many(np.arange(len(rows), dtype="u8"), rows)
            out.epoch_end(epoch)
    return str(path)


@pytest.mark.parametrize("what", ["scan", "stream", "arrow", "keys", "many"])
def test_ctrl_c_ends_a_query_soon(larger: str, what: str) -> None:
    done = subprocess.run([sys.executable, "-c", LONG_SCAN, larger, what], capture_output=True, text=True,
                          timeout=60)
    assert done.returncode == 0, done.stderr
    # No claim of speed: without an interrupt the scan would take three times as long as this limit, and the
    # interrupt takes 0.2 s on a quiet machine.
    assert float(done.stdout) < 5.0


QUERIES = """
import os, sys, time
import swale
kept = []

def threads():
    # The kernel lists a thread for a moment after it was joined: what exits (PF_EXITING) is gone; and its
    # own (PF_IO_WORKER), which come and go.
    def is_not_ours(thread):
        try:
            with open(f"/proc/self/task/{thread}/stat") as stat:
                return bool(int(stat.read().rsplit(")", 1)[1].split()[6]) & (4 | 16))
        except OSError:
            return True
    return sum(not is_not_ours(thread) for thread in os.listdir("/proc/self/task"))

def left():
    pages = int(open("/proc/self/statm").read().split()[1])
    return len(os.listdir("/proc/self/fd")), threads(), pages * os.sysconf("SC_PAGE_SIZE")

def work(rounds):
    for _ in range(rounds):
        with swale.open(sys.argv[1]) as d:
            d[17]
            d.scan(threads=2).to_arrow()
            d.top("x")
            stream = d.stream(batch_rows=50)
            next(stream)
            if sys.argv[3] == "leak":
                kept.append((stream, open(os.devnull), b"x" * (1 << 20)))
            del stream
            d.stream().__arrow_c_stream__()
            try:
                d.scan(where="nothing")
            except swale.SwaleError:
                pass
            else:
                raise AssertionError("a column that is not there was scanned")

work(100)
before = left()
work(int(sys.argv[2]))
after = left()
end = time.monotonic() + 10  # a thread that nobody joins may still be ending
while after[1] > before[1] and sys.argv[3] != "leak" and time.monotonic() < end:
    time.sleep(0.01)
    after = left()
print(*before, *after)
"""


def left_behind(run: str, rounds: int, mode: str) -> set[str]:
    """What grew. In a process of its own: the other tests' libraries start and end threads when they like."""
    done = subprocess.run([sys.executable, "-c", QUERIES, run, str(rounds), mode], capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stderr
    numbers = [int(each) for each in done.stdout.split()]
    limits = {"descriptors": 0, "threads": 0, "memory": (16 << 20) - 1}
    return {what for (what, limit), before, after in zip(limits.items(), numbers[:3], numbers[3:])
            if after - before > limit}


def test_queries_leave_nothing_behind(run: str) -> None:
    rounds = 20_000 if os.environ.get("SWALE_FAULT_ROUNDS") else 300
    assert left_behind(run, rounds, "release") == set()
    print(f"{5 * rounds} queries and streams left nothing behind")


def test_canary_what_is_kept_is_seen(run: str) -> None:
    assert left_behind(run, 20, "leak") == {"descriptors", "threads", "memory"}


def test_directories_are_read_by_spawned_processes(run: str) -> None:
    with swale.open(run) as d, multiprocessing.get_context("spawn").Pool(2) as pool:
        rows = pool.starmap(operator.getitem, [(d, key) for key in range(8)])
    assert [row["id"].tolist() for row in rows] == [[key] * EPOCHS for key in range(8)]


def test_a_signal_handler_runs_during_a_query(larger: str) -> None:
    seen: list[float] = []
    before = signal.signal(signal.SIGALRM, lambda *_: seen.append(time.monotonic()))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with swale.open(larger) as d:
            end = time.monotonic() + 10
            while not seen and time.monotonic() < end:
                d.scan(where="x < -1", threads=1)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert len(seen) == 1
