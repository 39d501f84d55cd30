#!/usr/bin/env python3
"""mpi_io_test.py SWALE PROGRAMS [--long]: MPI programs write and read shared files on a mount of the tiered
write buffer, by MPI-IO.

PROGRAMS is the folder of mpi_io-IMPLEMENTATION and others (CMakeLists.txt). Open MPI with its own MPI-IO
(OMPIO) and with ROMIO, and MPICH (ROMIO): independent and collective calls, views with vectors, tiles and
holes, preallocation, shared pointers, atomic mode; also with what they do otherwise: sieving, which needs
locks, and shared pointers in locked files. What they leave is what they leave in a plain directory, byte for
byte, also in the backing directory after a drain. So does parallel HDF5. Then the mount is killed under them.
--long: larger files, more settings.
"""
import os
import signal
import subprocess
import sys
import time
import unittest

from mounted import Mounted, listing, unmount

PROGRAMS = os.path.abspath(sys.argv[2])
LONG = "--long" in sys.argv
RANKS = 4  # MPICH's ranks spin: more than cores take minutes
BLOCK, COUNT = ("16384", "24") if LONG else ("4096", "12")
HAMMERED = 3000 if LONG else 200  # blocks of each rank before the mount is killed
PATIENCE_S = 600
CASES = ["segments-alone", "segments-together", "interleaved-alone", "interleaved-together", "tiles",
         "regions-alone", "regions-together", "overwrite", "sizes", "visible-after-sync", "nonblocking",
         "shared-in-order", "shared"]
OMPIO = ["openmpi", "--mca", "io", "ompio"]
ROMIO = ["openmpi", "--mca", "io", "^ompio"]
MPICH = ["mpich"]
SIEVING = ["unordered", "romio_cb_write=disable", "romio_cb_read=disable", "romio_ds_write=enable",
           "romio_ds_read=enable"]
SMALL_BUFFERS = ["romio_cb_write=enable", "romio_cb_read=enable", "cb_buffer_size=20000"]
LAUNCHERS = {"openmpi": "mpirun.openmpi", "mpich": "mpiexec.mpich"}
ENVIRONMENT = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                   # Open MPI 4, 5
                   OMPI_MCA_rmaps_base_oversubscribe="1",
                   PRTE_MCA_rmaps_default_mapping_policy=":oversubscribe", OMPI_MCA_mpi_yield_when_idle="1")


class MpiIo(Mounted):
    def command(self, program, implementation, *words):
        name, *options = implementation
        path = os.path.join(PROGRAMS, f"{program}-{name}")
        if not os.path.exists(path):
            self.skipTest(f"mpicc.{name}, or a library for it, was not there when {program} was to be built")
        self.needs(LAUNCHERS[name])
        return [LAUNCHERS[name], *options, "-n", str(RANKS), path, *words]

    def start(self, program, implementation, *words):
        return subprocess.Popen(self.command(program, implementation, *words), env=ENVIRONMENT,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def run_mpi(self, program, implementation, *words):
        process = self.start(program, implementation, *words)
        try:
            out, _ = process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.terminate()  # the launcher ends its ranks
            self.fail(f"{process.args} waits for ever: {process.communicate()[0]}")
        return process.returncode, out

    def run_cases(self, folder, implementation, words):
        """The names of the files that it leaves, with what they are."""
        os.mkdir(folder)
        expected = [case for case in CASES if case != "shared-in-order" or "unordered" not in words]
        expected += ["atomic"] * ("atomic" in words)
        status, out = self.run_mpi("mpi_io", implementation, folder, BLOCK, COUNT, *words)
        self.assertEqual(status, 0, out)
        self.assertEqual([line for line in out.splitlines() if line in expected + ["names"]],
                         expected + ["names"], out)
        found = listing(folder)
        self.assertEqual(sorted(found), sorted(expected))
        return found

    def cases(self, *variants):
        """(folder, implementation, words of mpi_io): the first one is run in a plain directory, too, and with
        --long each; whatever an implementation does, what it leaves is the same."""
        expected, plain = {}, {}
        for folder, implementation, words in variants:
            if LONG or not plain:
                plain.update(self.run_cases(os.path.join(self.plain, folder), implementation, words))
            found = self.run_cases(os.path.join(self.mounted, folder), implementation, words)
            self.assertEqual(found, {name: plain[name] for name in found})
            expected[folder] = ("directory",)
            expected.update({os.path.join(folder, name): what for name, what in found.items()})
        self.same(expected)

    def test_open_mpi_by_ompio(self):
        locking = [*OMPIO, "--mca", "sharedfp", "lockedfile", "--mca", "fs_ufs_lock_algorithm", "3"]
        self.cases(("default", OMPIO, []), ("locking", locking, []))

    def test_open_mpi_by_romio(self):
        self.cases(("default", ROMIO, ["atomic"]), ("sieving", ROMIO, ["atomic", *SIEVING]))

    def test_mpich_by_romio(self):
        small = [("small", MPICH, SMALL_BUFFERS)] if LONG else []
        self.cases(("default", MPICH, ["atomic"]), ("sieving", MPICH, ["atomic", *SIEVING]), *small)

    def test_parallel_hdf5(self):
        rows, columns = ("2000", "700") if LONG else ("50", "70")
        for folder, implementation in (("ompio", OMPIO), ("romio", ROMIO)):
            for root in (self.plain, self.mounted):
                os.mkdir(os.path.join(root, folder))
                status, out = self.run_mpi("mpi_hdf5", implementation, os.path.join(root, folder), rows,
                                           columns)
                self.assertEqual(status, 0, out)
                self.assertIn("field.h5\n", out)
        found = listing(self.plain)
        self.assertEqual(sorted(found), ["ompio", "ompio/field.h5", "romio", "romio/field.h5"])
        self.same(found)

    def acknowledged(self, folder):
        found = []
        for name in os.listdir(folder):
            with open(os.path.join(folder, name), encoding="ascii") as file:
                found.append(int(file.read() or "0"))
        return found if len(found) == RANKS else [0]

    def hammer(self, implementation):
        """Ranks write; the mount is killed under them; another mount must have all that they were answered
        for.
        """
        acks = os.path.join(self.scratch, "acks")
        os.mkdir(acks)
        ranks = self.start("mpi_hammer", implementation, self.mounted, acks, "1000000")
        until = time.monotonic() + PATIENCE_S
        while min(self.acknowledged(acks)) < HAMMERED:
            self.assertIsNone(ranks.poll(), ranks.poll() is not None and ranks.stdout.read())
            self.assertLess(time.monotonic(), until, "the ranks write too slowly")
            time.sleep(0.02)
        self.process.send_signal(signal.SIGKILL)
        out, _ = ranks.communicate(timeout=PATIENCE_S)
        self.assertNotEqual(ranks.returncode, 0, out)
        self.killed()
        unmount(self.mounted)
        self.mount()
        for root in (self.mounted, self.backing):
            status, out = self.run_mpi("mpi_hammer", implementation, root, acks)
            self.assertEqual(status, 0, out)
            if root == self.mounted:
                self.unmount()
        return acks

    def test_a_mount_that_is_killed_under_its_ranks_loses_nothing(self):
        self.hammer(MPICH)

    def test_canary_a_byte_that_is_wrong_or_missing_is_found(self):
        acks = self.hammer(OMPIO)
        path = os.path.join(self.backing, "hammered")
        with open(path, "r+b") as file:
            file.seek(RANKS * 4096 * 10 + 17)  # of the eleventh block of rank 0
            byte = file.read(1)
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte[0] ^ 1]))
        status, out = self.run_mpi("mpi_hammer", OMPIO, self.backing, acks)
        self.assertNotEqual(status, 0)
        self.assertIn("acknowledged, then killed: offset", out)


unittest.main(argv=sys.argv[:1], verbosity=2)
