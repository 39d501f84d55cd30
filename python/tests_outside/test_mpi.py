"""Ranks of mpi4py write together: `swale.create(comm=MPI.COMM_WORLD)`, under Open MPI and under MPICH."""
from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import swale

RANK = """
import sys
import numpy as np
from mpi4py import MPI
import swale

comm = MPI.COMM_WORLD
row = np.dtype([("rank", "i4"), ("n", "i4")])
with swale.create(sys.argv[1], schema=row, key="u64", comm=comm) as out:
    for epoch in range(2):
        rows = np.zeros(50, dtype=row)
        rows["rank"], rows["n"] = comm.rank, np.arange(50)
        out.append_many(np.arange(comm.rank, 50 * comm.size, comm.size, dtype="u8"), rows)
        out.epoch_end(epoch)
"""


@pytest.mark.parametrize("mpirun", ["mpirun.openmpi", "mpirun.mpich"])
def test_ranks_of_mpi4py(mpirun: str, tmp_path: Path) -> None:
    if shutil.which(mpirun) is None:
        pytest.fail(f"{mpirun} is missing: scripts/install-deps.sh test installs it")
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                   "OMPI_MCA_rmaps_base_oversubscribe": "1"}
    if mpirun == "mpirun.mpich":  # mpi4py's wheel looks for MPICH by the name that Debian does not give it
        [library] = Path("/usr/lib").glob("*/libmpich.so.12")
        (tmp_path / "libmpi.so.12").symlink_to(library)
        environment.update(LD_LIBRARY_PATH=str(tmp_path), MPI4PY_MPIABI="mpich")
    words = [mpirun, "-n", "2", sys.executable, "-c", RANK, str(tmp_path / "run")]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    with swale.open(tmp_path / "run") as d:
        table = d.scan()
        assert len(d) == 200 and (table["key"] == 2 * table["n"] + table["rank"]).all()
