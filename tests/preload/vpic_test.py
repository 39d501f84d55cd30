#!/usr/bin/env python3
"""vpic_test.py SWALE LIBRARY PROGRAMS: an MPI program that writes a file for each particle (vpic.c), as the
simulation of deltafs-imd-2017, section 3, unmodified: natively, with libswale_preload.so in a massive
directory, and with it in the tree of a job; by Open MPI and MPICH.

PROGRAMS is the folder of vpic-IMPLEMENTATION. The native run leaves a file for each particle, with its values
of all frames. Of the others `swale mount` shows a folder for each frame: one behind the other, cp, tar and
Python find the same bytes there.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

from mounted import NO_MOUNTS, SWALE, run, unmount

LIBRARY, PROGRAMS = map(os.path.abspath, sys.argv[2:4])
LAUNCHERS = {"openmpi": "mpirun.openmpi", "mpich": "mpiexec.mpich"}
RANKS, FRAMES, PARTICLES, VALUE_BYTES = 3, 3, 60, 40
PATIENCE_S = 300
ENVIRONMENT = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                   # Open MPI 4, 5
                   OMPI_MCA_rmaps_base_oversubscribe="1",
                   PRTE_MCA_rmaps_default_mapping_policy=":oversubscribe", OMPI_MCA_mpi_yield_when_idle="1")


def contents(folder):
    return {path.name: path.read_bytes() for path in pathlib.Path(folder).iterdir()}


def joined(frames):
    """The frames' values of each particle, one behind the other, as the native run has them."""
    found = {}
    for frame in frames:
        for name, value in frame.items():
            found[name] = found.get(name, b"") + value
    return found


@unittest.skipIf(NO_MOUNTS, NO_MOUNTS)
class Vpic(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.mkdtemp(prefix="swale-vpic-", dir=os.getcwd())
        self.addCleanup(shutil.rmtree, self.scratch, ignore_errors=True)
        self.mountpoint = f"{self.scratch}/mnt"
        os.mkdir(self.mountpoint)

    def simulate(self, implementation, directory, *before):
        program, launcher = f"{PROGRAMS}/vpic-{implementation}", LAUNCHERS[implementation]
        if not os.path.exists(program) or shutil.which(launcher) is None:
            self.skipTest(f"no mpicc.{implementation} when this was built, or no {launcher}")
        done = subprocess.run([launcher, "-n", str(RANKS), *before, program, directory, str(FRAMES),
                               str(PARTICLES)], env=ENVIRONMENT, cwd=self.scratch, capture_output=True,
                              text=True, timeout=PATIENCE_S, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def natively(self, implementation):
        directory = f"{self.scratch}/native"
        os.mkdir(directory)
        self.simulate(implementation, directory)
        found = contents(directory)
        self.assertEqual(len(found), PARTICLES)
        self.assertEqual({len(value) for value in found.values()}, {FRAMES * VALUE_BYTES})
        return found

    def frames_by_programs(self, directory):
        """What Python finds in the mount, a frame at a time; cp and tar find the same."""
        run(SWALE, "mount", directory, self.mountpoint)
        self.addCleanup(subprocess.run, ["fusermount3", "-uzq", self.mountpoint], check=False)
        self.assertEqual(sorted(os.listdir(self.mountpoint)), [str(i) for i in range(FRAMES)])
        frames = [contents(f"{self.mountpoint}/{i}") for i in range(FRAMES)]
        copied, archive = f"{self.scratch}/copied", f"{self.scratch}/all.tar"
        run("cp", "-a", f"{self.mountpoint}/.", copied)
        run("tar", "-cf", archive, "-C", self.mountpoint, ".")
        with tarfile.open(archive) as tar:
            for i, frame in enumerate(frames):
                self.assertEqual(contents(f"{copied}/{i}"), frame)
                self.assertEqual({name: tar.extractfile(f"./{i}/{name}").read() for name in frame}, frame)
        unmount(self.mountpoint)
        shutil.rmtree(copied)
        return frames

    def compare(self, implementation):
        expected = self.natively(implementation)
        tree = f"{self.scratch}/tree"
        os.mkdir(tree)
        ways = ((f"{self.scratch}/massive", ["env", f"LD_PRELOAD={LIBRARY}"]),
                (f"{tree}/massive", [SWALE, "run", "--preload", "--backing", tree, "--buffer",
                                     f"{self.scratch}/buffer", "--"]))
        for directory, before in ways:
            with self.subTest(directory):
                run(SWALE, "mkdir", "--massive", directory)
                self.simulate(implementation, directory, *before)
                run(SWALE, "verify", directory)
                frames = self.frames_by_programs(directory)
                self.assertEqual(joined(frames), expected)
                self.assertNotEqual(joined(frames[::-1]), expected)  # the comparison sees another order
                self.assertNotEqual(joined(frames[1:]), expected)    # and a lost frame

    def test_open_mpi(self):
        self.compare("openmpi")

    def test_mpich(self):
        self.compare("mpich")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
