"""make_golden.py MAKE_DIRECTORY [GOLDEN]: writes the golden directories of the version that is being
developed anew.

GOLDEN (by default this folder) gets dir-v1, indirect-v1, attributes-v1, cluster-ranks-v2, clusters-v2,
columns-v2, freed-v2, keys-v1, large-v1, layout-v1 and lossy-v1, whose making golden_test.py describes; what
is there of these is removed. Only until version 1 is released: after that they are read for ever, and never
written again. Version 1 of clusters, with logs in their folders, was made before.
MAKE_DIRECTORY is tests/api/make_directory of a build folder, whose `swale` is run, too.
"""
import os
import shutil
import subprocess
import sys
import tempfile

MAKE_DIRECTORY = os.path.abspath(sys.argv[1])
GOLDEN = os.path.abspath(sys.argv[2] if len(sys.argv) > 2 else os.path.dirname(__file__))
LAYOUTS = {  # name: compression, index, more
    "lz4-bloom": ("lz4", "bloom", {}),
    "lz4-sketch": ("lz4", "sketch", {}),
    "none-papers0": ("none", "papers", {"SWALE_IMD_BLOOM_BITS": "0"}),
    "zstd-blocked_bloom": ("zstd", "blocked_bloom", {}),
}


def make(ranks, *arguments, **variables):
    run_ranks(ranks, [MAKE_DIRECTORY, *arguments], variables)


def run_ranks(ranks, command, variables):
    with tempfile.TemporaryDirectory(prefix="swale-golden-") as meet:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SWALE_")}
        environment.update(variables)
        if ranks > 1:
            environment.update(SWALE_JOB_SIZE=str(ranks), SWALE_JOB_ID="golden", SWALE_JOB_RENDEZVOUS=meet)
        started = [
            subprocess.Popen(command,
                             env=dict(environment, **({"SWALE_JOB_RANK": str(rank)} if ranks > 1 else {})))
            for rank in range(ranks)
        ]
        for process in started:
            if process.wait(timeout=60) != 0:
                sys.exit(f"{' '.join(command)} failed")


def main():
    for name, words, variables in (("dir-v1", [], {}), ("large-v1", ["large"], {}),
                                   ("attributes-v1", ["attributes"], {}),
                                   ("indirect-v1", ["large"], {"SWALE_IMD_FORMAT": "indirect"}),
                                   ("lossy-v1", ["large"], {"SWALE_IMD_FORMAT": "lossy"})):
        path = os.path.join(GOLDEN, name)
        shutil.rmtree(path, ignore_errors=True)
        make(2, path, "0", "1", *words, **variables)
        make(1, path, "1", "1", *words)
    clusters = os.path.join(GOLDEN, "clusters-v2")
    shutil.rmtree(clusters, ignore_errors=True)
    shutil.copytree(os.path.join(GOLDEN, "dir-v1"), clusters)
    swale = os.path.join(os.path.dirname(MAKE_DIRECTORY), "..", "..", "tools", "swale")
    subprocess.run([swale, "optimize", clusters], check=True, timeout=60)
    by_ranks = os.path.join(GOLDEN, "cluster-ranks-v2")
    shutil.rmtree(by_ranks, ignore_errors=True)
    shutil.copytree(os.path.join(GOLDEN, "dir-v1"), by_ranks)
    libraries = os.path.join(os.path.dirname(MAKE_DIRECTORY), "..", "..", "src", "capi")
    run_ranks(2, [swale, "optimize", by_ranks], {"LD_LIBRARY_PATH": libraries})
    columns = os.path.join(GOLDEN, "columns-v2")
    shutil.rmtree(columns, ignore_errors=True)
    make(1, columns, "0", "4", "400", SWALE_IMD_COMPRESSION="lz4")
    subprocess.run([swale, "optimize", columns], check=True, timeout=60)
    freed = os.path.join(GOLDEN, "freed-v2")
    shutil.rmtree(freed, ignore_errors=True)
    shutil.copytree(clusters, freed)
    subprocess.run([swale, "optimize", freed, "--free", "--yes"], check=True, timeout=60)
    shutil.rmtree(os.path.join(GOLDEN, "keys-v1"), ignore_errors=True)
    make(1, os.path.join(GOLDEN, "keys-v1"), "0", "1", SWALE_IMD_KEY="u64")
    shutil.rmtree(os.path.join(GOLDEN, "layout-v1"), ignore_errors=True)
    os.mkdir(os.path.join(GOLDEN, "layout-v1"))
    for name, (compression, index, more) in LAYOUTS.items():
        make(1, os.path.join(GOLDEN, "layout-v1", name), "0", "1", "400", SWALE_IMD_COMPRESSION=compression,
             SWALE_IMD_INDEX=index, **more)
    total = sum(os.path.getsize(os.path.join(folder, file)) for folder, _, files in os.walk(GOLDEN)
                for file in files)
    print(f"{total} bytes in {GOLDEN}")


main()
