"""Ranks that write together: `swale.create(comm=...)` calls back Allgather, and nothing else of MPI.

The communicators here are threads and processes; tests_outside/test_mpi.py has mpi4py's.
"""
from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import swale

ROW = np.dtype([("rank", "i4"), ("n", "i4")])
# A rank as a process: Allgather by way of rank 0, over a socket.
RANK = """
import sys
from multiprocessing.connection import Client, Listener
import swale

rank, size, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]


class Comm:
    def __init__(self):
        address = folder + "/socket"
        if rank == 0:
            listener = Listener(address, "AF_UNIX", backlog=size)
            print("listening", flush=True)
            found = [listener.accept() for _ in range(size - 1)]
            by_rank = {peer.recv(): peer for peer in found}
            self.peers = [by_rank[each] for each in sorted(by_rank)]
        else:
            self.peers = [Client(address, "AF_UNIX")]
            self.peers[0].send(rank)
    def Get_rank(self):
        return rank
    def Get_size(self):
        return size
    def Allgather(self, send, receive):
        if rank == 0:
            whole = b"".join([bytes(send), *(peer.recv_bytes() for peer in self.peers)])
            for peer in self.peers:
                peer.send_bytes(whole)
        else:
            self.peers[0].send_bytes(send)
            whole = self.peers[0].recv_bytes()
        receive[:] = whole


with swale.create(folder + "/run", key="text", comm=Comm()) as out:
    for epoch in range(2):
        for n in range(100):
            out.append(f"{rank}-{n}", f"{rank} {n} {epoch}".encode())
        out.epoch_end(epoch)
with open("/proc/self/maps") as maps:
    print(sorted({line.split("/")[-1].strip() for line in maps if "libswale-" in line}))
"""


class Threads:
    """Ranks that are threads of this process."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._sent = [b""] * size
        self._barrier = threading.Barrier(size, timeout=60)

    def of(self, rank: int, fail: bool = False) -> object:
        ranks = self

        class Comm:
            def Get_rank(self) -> int:
                return rank

            def Get_size(self) -> int:
                return ranks._size

            def Allgather(self, send: memoryview, receive: memoryview) -> None:
                if fail:
                    ranks._barrier.abort()
                    raise RuntimeError("the network is down")
                assert send.readonly and not receive.readonly and len(receive) == ranks._size * len(send)
                ranks._sent[rank] = bytes(send)
                ranks._barrier.wait()
                receive[:] = b"".join(ranks._sent)
                ranks._barrier.wait()

        return Comm()


def together(size: int, body: Callable[[int], None]) -> list[BaseException | None]:
    """What each rank's thread raised."""
    raised: list[BaseException | None] = [None] * size

    def run(rank: int) -> None:
        try:
            body(rank)
        except BaseException as error:  # noqa: BLE001: the caller judges
            raised[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads)
    return raised


def test_ranks_write_together(tmp_path: Path) -> None:
    comm = Threads(3)

    def body(rank: int) -> None:
        with swale.create(tmp_path / "run", schema=ROW, key="u64", comm=comm.of(rank)) as out:
            out.set_attributes({"title": "three"})
            for epoch in range(3):
                rows = np.zeros(50, dtype=ROW)
                rows["rank"], rows["n"] = rank, np.arange(50)
                out.append_many(np.arange(rank, 150, 3, dtype="u8"), rows)
                out.epoch_end(epoch)

    assert together(3, body) == [None] * 3
    with swale.open(tmp_path / "run") as d:
        assert len(d) == 450 and len(d.epochs) == 3 and d.attributes == {"title": "three"}
        table = d.scan()
        assert (table["key"] == 3 * table["n"] + table["rank"]).all()


def test_what_the_callback_raises_ends_the_call(tmp_path: Path) -> None:
    comm = Threads(2)

    def body(rank: int) -> None:
        swale.create(tmp_path / "run", key="u64", comm=comm.of(rank, fail=rank == 1))

    first, second = together(2, body)
    assert isinstance(second, RuntimeError) and str(second) == "the network is down"
    assert isinstance(first, threading.BrokenBarrierError)


def test_a_rank_that_disagrees_is_told(tmp_path: Path) -> None:
    comm = Threads(2)

    def body(rank: int) -> None:
        swale.create(tmp_path / "run", key="u64" if rank else "text", comm=comm.of(rank)).close()

    assert all(isinstance(each, swale.SwaleError) and "imd.key" in str(each) for each in together(2, body))


def test_processes_load_the_packages_own_network(tmp_path: Path) -> None:
    """The wheel has the module for several ranks, and only they load it."""
    def start(rank: int) -> subprocess.Popen[str]:
        return subprocess.Popen([sys.executable, "-c", RANK, str(rank), "2", str(tmp_path)], text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    first = start(0)
    assert first.stdout is not None and first.stdout.readline() == "listening\n"
    second = start(1)
    for rank in (second, first):
        out, err = rank.communicate(timeout=300)
        assert rank.returncode == 0, err
        assert "libswale-ucx.so" in out
    with swale.open(tmp_path / "run") as d:
        assert len(d) == 400 and "1-99" in d


def test_one_rank_loads_none(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    alone = subprocess.run([sys.executable, "-c", RANK, "0", "1", str(tmp_path / "one")], text=True,
                           capture_output=True, timeout=300)
    assert alone.returncode == 0 and alone.stdout == "listening\n[]\n", alone.stderr


def test_what_is_no_communicator_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AttributeError, match="Allgather"):
        swale.create(tmp_path / "run", comm=1)
