#!/usr/bin/env python3
"""nodes_mpi_test.py SWALE LIBSWALE PROGRAMS [--long]: MPI programs write and read shared files in the tree of
a job of two nodes, by MPI-IO, parallel HDF5 and PnetCDF, through the mount and through the preload library.

PROGRAMS is the folder of mpi_io-IMPLEMENTATION and others (CMakeLists.txt). What they leave is what they
leave in a plain directory, byte for byte. The programs are those of mpi_io_test.py, on ranks of several
nodes: sieving then reads, changes and writes other nodes' bytes under locks across nodes, and shared pointers
stand in files. (nodes_test.py says how the nodes are of one machine.) --long: each by each way in, larger
files, and four nodes.
"""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

from mounted import SWALE, listing
from nodes_test import LIBRARIES, PATIENCE_S, NodesCase

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../launchers"))
import slurm  # noqa: E402

PROGRAMS = os.path.abspath(sys.argv[3])
LONG = "--long" in sys.argv
BLOCK, COUNT = ("16384", "24") if LONG else ("4096", "12")
# Of HDF5's independent reads each is of one number, which is a request to the mount.
ROWS, COLUMNS = ("100", "352") if LONG else ("50", "72")
RANKS = 4
LAUNCHERS = {"openmpi": "mpirun.openmpi", "mpich": "mpiexec.mpich"}
OMPIO = ["openmpi", "--mca", "io", "ompio"]
LOCKED = [*OMPIO, "--mca", "sharedfp", "lockedfile", "--mca", "fs_ufs_lock_algorithm", "3"]
ROMIO = ["openmpi", "--mca", "io", "^ompio"]
MPICH = ["mpich"]
SIEVING = ["unordered", "romio_cb_write=disable", "romio_cb_read=disable", "romio_ds_write=enable",
           "romio_ds_read=enable"]
SMALL_BUFFERS = ["romio_cb_write=enable", "romio_cb_read=enable", "cb_buffer_size=20000"]
# A refusal of the tree is in what a launcher says; MPI tells neither the call nor why.
ENVIRONMENT = dict(os.environ, SWALE_LOG="debug", SWALE_JOB_TRANSPORT="tls", LD_LIBRARY_PATH=LIBRARIES,
                   OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                   # Open MPI 4, 5
                   OMPI_MCA_rmaps_base_oversubscribe="1",
                   PRTE_MCA_rmaps_default_mapping_policy=":oversubscribe", OMPI_MCA_mpi_yield_when_idle="1")
MOUNT, PRELOAD = (), ("--preload",)


class Mpi(NodesCase):
    def setUp(self):
        super().setUp()
        self.plain = self.make("plain")

    def program(self, name, implementation):
        path = os.path.join(PROGRAMS, f"{name}-{implementation[0]}")
        if not os.path.exists(path) or not shutil.which(LAUNCHERS[implementation[0]]):
            self.skipTest(f"{implementation[0]}, or a library for it, was not there when {name} was built")
        return path

    def launched(self, words):
        launched = subprocess.Popen(words, env=ENVIRONMENT, cwd=self.plain, stdout=subprocess.PIPE,
                                    stderr=subprocess.STDOUT, text=True)
        try:
            said, _ = launched.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            launched.terminate()  # it ends its ranks
            self.fail(f"{words} waits for ever: {launched.communicate()[0]}")
        return launched.returncode, said

    def in_tree(self, implementation, program, options, nodes):
        """In the directory that each node has the tree at: so all ranks have the same names of files."""
        name, *of_launcher = implementation
        words = [LAUNCHERS[name], *of_launcher]
        for node in range(nodes):
            words += [*([":"] if node else []), "-n", str(RANKS // nodes), "env",
                      f"SWALE_JOB_NODE=host-{node}", SWALE, "run", "--backing", self.backing, "--at",
                      self.make(f"at-{node}"), "--buffer",
                      os.path.join(self.scratch, f"buffer-{node}"), "--memory", "32M", *options, "--",
                      "sh", "-c", 'cd "$0" && exec "$@"', self.at(node), *program]
        return self.launched(words)

    def same(self, name, implementation, words, ways, nodes=2):
        """Natively, and on the nodes by each way in: the same files."""
        program = [self.program(name, implementation), ".", *words]
        launcher, *of_launcher = implementation
        status, said = self.launched([LAUNCHERS[launcher], *of_launcher, "-n", str(RANKS), *program])
        self.assertEqual(status, 0, said)
        native = listing(self.plain)
        self.assertGreater(len(native), 0)
        for options in ways:
            with self.subTest(name=name, implementation=implementation, words=words, options=options):
                status, said = self.in_tree(implementation, program, options, nodes)
                self.assertEqual(status, 0, said)
                self.assertEqual(listing(self.backing), native)
                self.nothing_is_left(nodes)
            self.empty(self.backing)
        self.empty(self.plain)

    def empty(self, folder):
        for name in os.listdir(folder):
            path = os.path.join(folder, name)
            if os.path.isdir(path):
                shutil.rmtree(path)
            else:
                os.unlink(path)

    def mpi_io(self, implementation, *words, ways=(MOUNT, PRELOAD)):
        words = [BLOCK, COUNT, "nodes", *words]
        self.same("mpi_io", implementation, words, (MOUNT, PRELOAD) if LONG else ways)
        if LONG:
            self.same("mpi_io", implementation, words, (MOUNT,), nodes=4)

    def test_open_mpi_by_ompio(self):
        self.mpi_io(OMPIO)
        self.mpi_io(LOCKED, ways=(MOUNT,))

    def test_open_mpi_by_romio_with_sieving_and_atomic_mode(self):
        self.mpi_io(ROMIO, "atomic", *SIEVING)

    def test_mpich(self):
        self.mpi_io(MPICH, "atomic", ways=(PRELOAD,))
        if LONG:
            self.mpi_io(MPICH, "atomic", *SIEVING)
            self.mpi_io(MPICH, "atomic", *SMALL_BUFFERS)

    def test_parallel_hdf5(self):
        self.same("mpi_hdf5", OMPIO, [ROWS, COLUMNS], (MOUNT, PRELOAD))
        if LONG:
            self.same("mpi_hdf5", ROMIO, [ROWS, COLUMNS], (MOUNT, PRELOAD))

    def test_pnetcdf(self):
        self.same("mpi_pnetcdf", ROMIO, [ROWS, COLUMNS], (MOUNT, PRELOAD))
        if LONG:
            self.same("mpi_pnetcdf", OMPIO, [ROWS, COLUMNS], (MOUNT, PRELOAD))

    # Producers by both launchers and as a step of Slurm's; a consumer in another step.
    def test_steps_of_a_batch_job(self):
        openmpi, mpich = (self.program("mpi_io", [name]) for name in LAUNCHERS)

        def script(root, as_step):
            return "".join(f"{line}\n" for line in (
                "set -e", f"mkdir {root}/one {root}/two {root}/three",
                f"mpirun.openmpi -n 2 {openmpi} {root}/one {BLOCK} {COUNT}",
                f"mpiexec.mpich -n 2 {mpich} {root}/two {BLOCK} {COUNT} atomic",
                f"{as_step} {mpich} {root}/three {BLOCK} {COUNT} atomic",
                f"cd {root}; {'srun -n 1' if 'srun' in as_step else 'env'} cksum */* > sums"))

        native = subprocess.run(["sh"], input=script(self.plain, "mpiexec.mpich -n 2"), capture_output=True,
                                text=True, timeout=PATIENCE_S, env=ENVIRONMENT, check=False)
        self.assertEqual(native.returncode, 0, native.stderr)
        batch = f"#!/bin/sh\n{SWALE} start {self.backing} --buffer {self.scratch}/buffer-0\n(\n" + script(
            self.backing, "srun --mpi=pmi2 -n 2") + ")\nmade=$?\n" + \
            f"mountpoint {self.backing} && {SWALE} stop {self.backing} && exit $made\n"
        folder = tempfile.mkdtemp(prefix="swale-slurm-")
        self.addCleanup(shutil.rmtree, folder)
        said = os.path.join(self.scratch, "said")
        try:
            with slurm.Slurm(f"{folder}/slurm", 1) as cluster:
                done = subprocess.run(
                    [slurm.program("sbatch"), "--wait", "--nodes=1", "--ntasks=2", "--time=60",
                     f"--output={said}"], input=batch, capture_output=True, text=True, timeout=PATIENCE_S,
                    check=False, env=cluster.environment(**ENVIRONMENT))
        except (slurm.NotInstalled, slurm.CannotRun) as why:
            self.skipTest(f"one machine: no Slurm here: {why}")
        with open(said, encoding="utf-8") as text:
            self.assertEqual(done.returncode, 0, text.read() + done.stderr)
        self.assertEqual(listing(self.backing), listing(self.plain))
        self.nothing_is_left(1)

    # Canaries. Without a sync one node does not see what another one has written; and a file that differs.
    def test_canary_the_programs_notice_what_is_not_seen(self):
        program = [self.program("mpi_io", MPICH), ".", BLOCK, COUNT]  # without `nodes`
        status, said = self.in_tree(MPICH, program, MOUNT, 2)
        self.assertNotEqual(status, 0)
        # The launcher may end before it has passed on what a rank said.
        self.assertRegex(said, "size: [0-9]+, expected|found [0-9]+, expected|overwrite\\n$|sizes\\n$")

    def test_canary_a_byte_that_differs(self):
        status, said = self.in_tree(OMPIO, [self.program("mpi_hdf5", OMPIO), ".", ROWS, COLUMNS], MOUNT, 2)
        self.assertEqual(status, 0, said)
        shutil.copytree(self.backing, self.plain, dirs_exist_ok=True)
        self.assertEqual(listing(self.backing), listing(self.plain))
        with open(os.path.join(self.backing, "field.h5"), "r+b") as file:
            file.seek(20_000)
            byte = file.read(1)
            file.seek(20_000)
            file.write(bytes([byte[0] ^ 1]))
        self.assertNotEqual(listing(self.backing), listing(self.plain))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
