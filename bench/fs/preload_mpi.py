"""Programs under Open MPI: one of MPI-IO (OMPIO) with libswale_preload.so, tests/mount/mpi_strided.c, and
ranks that do nothing, with and without `swale run`."""
import os
import pathlib
import shutil
import tempfile

RANKS = 4
# Root in a container; more ranks than processors.
LAUNCH = ["env", "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
          "OMPI_MCA_rmaps_base_oversubscribe=1", "PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe",
          "OMPI_MCA_mpi_yield_when_idle=1", "mpirun.openmpi", "--mca", "io", "ompio", "-n"]


def has_launcher():
    return shutil.which("mpirun.openmpi") is not None


def is_there(programs):
    return os.path.exists(programs / "fs/bench_fs_preload_mpi") and has_launcher()


def measure(runner, programs, scratch, record_bytes):
    """In a tree whose logs have memory for half of what is written, as the library's program has."""
    with tempfile.TemporaryDirectory(prefix="swale-bench-mpi-", dir=scratch) as folder:
        tree, plain = pathlib.Path(folder) / "tree", pathlib.Path(folder) / "plain"
        tree.mkdir()
        plain.mkdir()
        mib = runner.p["tree_mib"]
        runner.keep("preload_mpi", [str(programs.parent / "tools/swale"), "run", "--preload", "--backing",
                                    str(tree), "--buffer", str(pathlib.Path(folder) / "buffer"), "--memory",
                                    f"{mib // 2 + 256}M", "--", *LAUNCH, str(RANKS),
                                    str(programs / "fs/bench_fs_preload_mpi"), str(tree), str(plain),
                                    str(mib), str(record_bytes)])
