"""`swale stage out` of files in memory to a disk, beside cp and sync: one large file and 64 others, half of
the bytes each. Judged is stage with its reading back beside a cp that checks nothing. Beside it the same work
on both sides: cp followed by cmp past the page cache, and stage without reading back. Cp is one process, or
four.
"""
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

import judge

FILES = 64
BLOCK = 1 << 20
PROCESSES = 4


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


def staged(swale, source, copy, *options):
    return timed([swale, "stage", "out", "--from", source, "--to", copy, "--status", f"{copy}.status",
                  *options])


def parallel(script, source, copy):
    """A command of the shell for each file @ of the source $0 and the copy $1."""
    return ["sh", "-c", f'ls "$0" | xargs -P {PROCESSES} -I@ {script}', source, copy]


def cp(source, copy):
    return timed(["cp", "-r", "--reflink=never", source, copy], ["sync", "-f", copy])


def cp_parallel(source, copy):
    copy.mkdir()
    return timed(parallel('cp --reflink=never "$0"/@ "$1"', source, copy), ["sync", "-f", copy])


def compare(source, copy):
    """The quicker of one process and of several, past the page cache."""
    took = []
    for command in (["diff", "-r", source, copy], parallel('cmp "$0"/@ "$1"/@', source, copy)):
        drop(copy)
        took.append(timed(command))
    return min(took)


def measure(swale, memory, scratch, mib, turn):
    """The line of a round; `turn`: whose turn is first."""
    with tempfile.TemporaryDirectory(prefix="swale-bench-stage-", dir=memory) as source, \
            tempfile.TemporaryDirectory(prefix="swale-bench-stage-", dir=scratch) as folder:
        source, folder = pathlib.Path(source), pathlib.Path(folder)
        ways = {"verified": lambda copy: staged(swale, source, copy), "cp": lambda copy: cp(source, copy),
                "unverified": lambda copy: staged(swale, source, copy, "--no-read-back"),
                "cp_parallel": lambda copy: cp_parallel(source, copy)}
        order = list(ways)[turn % len(ways):] + list(ways)[:turn % len(ways)]
        size = fill(source, mib)
        took, compared = {}, []
        for way in order:
            subprocess.run(["sync", "-f", folder], check=True)
            took[way] = ways[way](folder / way)
            compared.append(compare(source, folder / way))  # and checks that the copy is right
            shutil.rmtree(folder / way)
    theirs = min(took["cp"], took["cp_parallel"])
    return {"bytes": size, "seconds": took, "compare_seconds": compared,
            "over_cp": theirs / took["verified"],
            "over_checked_cp": (theirs + min(compared)) / took["verified"],
            "unverified_over_cp": theirs / took["unverified"]}
