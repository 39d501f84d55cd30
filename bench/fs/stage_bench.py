"""`swale stage out` of files in memory to a disk, beside cp and sync: one large file and 64 others, half of
the bytes each. What stage copies it has read back from the disk and compared; what cp copies nobody has
looked at. For comparison only, a third way does both: cp, sync, and cmp past the page cache.
"""
import filecmp
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

import judge

FILES = 64
BLOCK = 1 << 20
CP_PROCESSES = 4


def fill(folder, mib):
    """Bytes that differ from block to block."""
    base = os.urandom(2 * BLOCK)
    names = ["large"] + [f"f{i}" for i in range(FILES)]
    shares = [mib // 2] + [max(1, mib // 2 // FILES)] * FILES
    for number, (name, blocks) in enumerate(zip(names, shares)):
        with open(folder / name, "wb") as file:
            for i in range(blocks):
                at = (i * 4093 + number * 517) % BLOCK
                file.write(base[at:at + BLOCK])
    return sum(shares) * BLOCK


def timed(*commands):
    began = time.monotonic()
    for command in commands:
        subprocess.run(command, check=True, timeout=judge.TIMEOUT_S, stdout=subprocess.DEVNULL)
    return time.monotonic() - began


def drop(folder):
    for path in folder.iterdir():
        file = os.open(path, os.O_RDONLY)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)


def ours(swale, source, copy):
    return timed([swale, "stage", "out", "--from", source, "--to", copy, "--status", f"{copy}.status"])


def cp(source, copy):
    return timed(["cp", "-r", "--reflink=never", source, copy], ["sync", "-f", copy])


def cp_parallel(source, copy):
    copy.mkdir()
    script = f'ls "$0" | xargs -P {CP_PROCESSES} -I@ cp --reflink=never "$0"/@ "$1"'
    return timed(["sh", "-c", script, source, copy], ["sync", "-f", copy])


def cp_and_cmp(source, copy):
    took = cp(source, copy)
    drop(copy)
    return took + timed(["diff", "-r", source, copy])


def measure(swale, memory, scratch, mib, turn):
    """The line of a round; `turn`: whose turn is first."""
    ways = {"ours": lambda copy: ours(swale, source, copy), "cp": lambda copy: cp(source, copy),
            "cp_parallel": lambda copy: cp_parallel(source, copy),
            "cp_and_cmp": lambda copy: cp_and_cmp(source, copy)}
    order = list(ways)[turn % len(ways):] + list(ways)[:turn % len(ways)]
    with tempfile.TemporaryDirectory(prefix="swale-bench-stage-", dir=memory) as source, \
            tempfile.TemporaryDirectory(prefix="swale-bench-stage-", dir=scratch) as folder:
        source, folder = pathlib.Path(source), pathlib.Path(folder)
        size = fill(source, mib)
        took = {}
        for way in order:
            subprocess.run(["sync", "-f", folder], check=True)
            took[way] = ways[way](folder / way)
            if not all(filecmp.cmp(path, folder / way / path.name, shallow=False)
                       for path in source.iterdir()):
                raise RuntimeError(f"{way}: the copy is not what was copied")
            shutil.rmtree(folder / way)
    best = min(took["cp"], took["cp_parallel"])
    return {"bytes": size, "seconds": took, "ratio": best / took["ours"],
            "verified_ratio": took["cp_and_cmp"] / took["ours"]}
