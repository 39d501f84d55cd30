#!/usr/bin/env python3
"""real.py SWALE OUT [--rounds N] [--cases fsync,osync,end_fsync]: programs that sync, on a real disk that
takes 150 writes a second.

Eight processes write 4 to 64 KiB at random places of a file each, on ext4 on a loop device that the kernel
limits (throttle.py). Sides, in turn: the file system itself; `swale tier mount` with its defaults; with
--policy ssdup+; with --policy ssd. The SSD is the folder OUT. Each run has a mount and a log of its own, on
files that have all their bytes. The clock runs until the last process has ended; `drained_s` goes on until
all bytes are on the limited device, synced (--on-unmount drain).
"""
import argparse
import json
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import throttle  # noqa: E402

WRITES_PER_SECOND = 150
PROCESSES = 8
FILE_BYTES = 32 << 20
PAGE = 4096
PAGES_MAX = 16
SYNC_EVERY = 8
DEVICE_MIB = 2 * 1024
SIDES = {"plain": None, "swale": (), "ssdup+": ("--policy", "ssdup+"), "ssd": ("--policy", "ssd")}
# The share of SSDUP+ is a matter of luck: with random writes alone it sends nothing to the SSD until a stream
# of 128 writes is more random than the one before was, and then everything, so 2 to 6 of 12 streams wait for
# the device. What is compared with SSDUP+ gets more rounds therefore.
DUEL = ("fsync", "swale", "ssdup+")
DUEL_ROUNDS = 3  # for each round of the others
# Writes of each process.
CASES = {"fsync": {"full": 192, "quick": 96}, "osync": {"full": 128, "quick": 80},
         "end_fsync": {"full": 128, "quick": 64}}


def make_files(folder):
    folder.mkdir(parents=True, exist_ok=True)
    block = bytes(1 << 20)
    for number in range(PROCESSES):
        with open(folder / str(number), "wb") as file:
            for _ in range(FILE_BYTES >> 20):
                file.write(block)
            os.fsync(file.fileno())


def write(path, case, writes, seed):
    """One process's writes; the number of bytes."""
    rng = random.Random(seed)
    data = os.urandom(PAGES_MAX * PAGE)
    file = os.open(path, os.O_WRONLY | (os.O_SYNC if case == "osync" else 0))
    written = 0
    for i in range(writes):
        length = rng.randint(1, PAGES_MAX) * PAGE
        offset = rng.randrange((FILE_BYTES - length) // PAGE + 1) * PAGE
        written += os.pwrite(file, data[:length], offset)
        if case == "fsync" and (i + 1) % SYNC_EVERY == 0:
            os.fsync(file)
    if case == "end_fsync":
        os.fsync(file)
    os.close(file)
    return written


def write_all(folder, case, writes, seed):
    """(bytes, seconds) of all processes at once."""
    start, ends = os.pipe(), os.pipe()
    children = []
    for number in range(PROCESSES):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                os.close(start[1])
                os.read(start[0], 1)  # ends when the parent closes it
                written = write(folder / str(number), case, writes, seed * PROCESSES + number)
                os.write(ends[1], written.to_bytes(8, "little"))
                status = 0
            finally:
                os._exit(status)
        children.append(child)
    os.close(start[0])
    os.close(ends[1])
    time.sleep(0.2)  # all of them wait in read
    begin = time.monotonic()
    os.close(start[1])
    failed = [child for child in children if os.waitpid(child, 0)[1] != 0]
    took = time.monotonic() - begin
    told = b""
    while part := os.read(ends[0], 4096):
        told += part
    os.close(ends[0])
    if failed or len(told) != 8 * PROCESSES:
        raise RuntimeError(f"{len(failed)} of {PROCESSES} writers in {folder} failed")
    return sum(int.from_bytes(told[at:at + 8], "little") for at in range(0, len(told), 8)), took


class Side:
    def __init__(self, name, options, device, scratch, swale):
        self.name, self.options, self.device, self.swale = name, options, device, swale
        self.files = device.root / name.replace("+", "-plus")
        self.ssd = scratch / f"ssd-{name.replace('+', '-plus')}"
        self.server = None
        self.mountpoint = scratch / f"mnt-{name.replace('+', '-plus')}"
        make_files(self.files)

    def command(self, *words):
        done = subprocess.run([str(self.swale), *map(str, words)], capture_output=True, text=True,
                              timeout=280)
        if done.returncode != 0:
            raise RuntimeError(f"swale {' '.join(map(str, words))}: {done.stderr.strip()}")
        return done.stdout

    def run(self, case, writes, seed):
        shutil.rmtree(self.ssd, ignore_errors=True)
        shutil.rmtree(self.files / ".swale-tier", ignore_errors=True)
        os.sync()
        if self.options is not None:
            self.mount()
        os.sync()
        self.device.limit(WRITES_PER_SECOND)
        try:
            return self.measure(case, writes, seed)
        finally:
            self.device.limit(None)
            subprocess.run(["fusermount3", "-q", "-u", str(self.mountpoint)], check=False,
                           capture_output=True)

    def measure(self, case, writes, seed):
        begin = time.monotonic()
        if self.options is None:
            written, took = write_all(self.files, case, writes, seed)
            ssd = budget = 0
        else:
            written, took = write_all(self.mountpoint, case, writes, seed)
            stats = json.loads(self.command("tier", "stats", self.mountpoint, "--json"))["stats"]
            ssd, budget = stats["ssd.bytes"]["sum"], stats["ssd.ssdup_plus"]["sum"]
            self.unmount()
        for number in range(PROCESSES):
            file = os.open(self.files / str(number), os.O_WRONLY)
            os.fsync(file)
            os.close(file)
        return {"bytes": written, "seconds": took, "mb_per_s": written / 1e6 / took, "ssd_bytes": ssd,
                "ssdup_plus_bytes": budget,
                "drained_s": time.monotonic() - begin - 0.2}

    def mount(self):
        self.mountpoint.mkdir(exist_ok=True)
        words = (str(self.swale), "tier", "mount", "--foreground", "--on-unmount", "drain", "--ssd",
                 str(self.ssd), "--backing", str(self.files),
                 *self.options, str(self.mountpoint))
        self.server = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        while not os.path.ismount(self.mountpoint):
            if self.server.poll() is not None:
                raise RuntimeError(f"{' '.join(words)}: {self.server.stderr.read().strip()}")
            time.sleep(0.02)

    def unmount(self):
        """Returns when everything is on the limited device."""
        throttle.run("fusermount3", "-u", self.mountpoint)
        text = self.server.communicate(timeout=280)[1]
        if self.server.returncode != 0:
            raise RuntimeError(f"the mount's end: {text.strip()}")


def measure(swale, out, profile, rounds, cases=tuple(CASES), sides=tuple(SIDES)):
    """{"cases": {case: {side: [run of each round]}}}; raises throttle.Unavailable where there is no such
    device.
    """
    out.mkdir(parents=True, exist_ok=True)
    with throttle.Device(out, DEVICE_MIB) as device:
        device.check(WRITES_PER_SECOND)
        scratch = device.folder
        made = [Side(name, SIDES[name], device, scratch, swale) for name in sides]
        found = {case: {side.name: [] for side in made} for case in cases}
        for number in range(rounds * DUEL_ROUNDS):
            for case in cases if number < rounds else [case for case in cases if case == DUEL[0]]:
                shown = made if number < rounds else [side for side in made if side.name in DUEL]
                for i in range(len(shown)):
                    side = shown[(i + number) % len(shown)]
                    run = side.run(case, CASES[case][profile], number + 1)
                    found[case][side.name].append(run)
                    print(f"real.py: round {number + 1} of "
                          f"{rounds if number < rounds else rounds * DUEL_ROUNDS}, {case}, {side.name}: "
                          f"{run['mb_per_s']:.2f} MB/s, {run['ssd_bytes'] / run['bytes']:.1%} to the SSD "
                          f"(SSDUP+ "
                          f"{run['ssdup_plus_bytes'] / run['bytes']:.1%}), drained after "
                          f"{run['drained_s']:.1f} s", file=sys.stderr, flush=True)
    return {"writes_per_second": WRITES_PER_SECOND, "processes": PROCESSES, "cases": found}


def ratios(found, case, name, rival, of="mb_per_s"):
    """Round by round: ours over the rival's, of runs that followed each other."""
    pairs = zip(found["cases"][case][name], found["cases"][case][rival])
    return [ours[of] / theirs[of] if theirs[of] else (1.0 if ours[of] == 0 else float("inf")) for ours,
            theirs in pairs]


def awaited_mb_per_s(run):
    """Bytes that SSDUP+ would have left to the device, of this run's very writes, a second: hardly depends on
    how many they are.
    """
    return (run["bytes"] - run["ssdup_plus_bytes"]) / 1e6 / run["seconds"]


def keys(found):
    """{key: (value, samples)}: medians of the rounds; bytes and draining of the worst case; bytes on the same
    requests of the worst run.
    """
    def median(*words):
        samples = ratios(found, *words)
        return statistics.median(samples), samples

    def worst(name, rival, of):
        samples = {case: ratios(found, case, name, rival, of) for case in found["cases"]}
        return max(statistics.median(values) for values in samples.values()), samples

    def same_requests():
        samples = {case: [run["ssd_bytes"] / run["ssdup_plus_bytes"] if run["ssdup_plus_bytes"]
                          else (1.0 if not run["ssd_bytes"] else float("inf"))
                          for run in runs["swale"]] for case, runs in found["cases"].items()}
        return max(max(values) for values in samples.values()), samples

    def same_share():
        case, name, rival = DUEL
        samples = [awaited_mb_per_s(ours) / awaited_mb_per_s(theirs) for ours,
                   theirs in zip(found["cases"][case][name], found["cases"][case][rival])
                   if awaited_mb_per_s(ours) > 0 and awaited_mb_per_s(theirs) > 0]
        return statistics.median(samples), samples

    # not by older builds
    counted = all("ssdup_plus_bytes" in run for runs in found["cases"].values() for run in runs["swale"])
    duel = counted and DUEL[0] in found["cases"]
    return {"real_fsync_over_plain": median("fsync", "swale", "plain"),
            "real_osync_over_plain": median("osync", "swale", "plain"),
            "real_fsync_over_ssdupplus": median("fsync", "swale", "ssdup+"),
            **({"real_fsync_same_requests": same_share()} if duel else {}),
            "real_ssd_bytes_over_ssdupplus": worst("swale", "ssdup+", "ssd_bytes"),
            **({"real_ssd_bytes_same_requests": same_requests()} if counted else {}),
            "real_drained_over_plain": worst("swale", "plain", "drained_s")}


def text(found):
    sides = list(next(iter(found["cases"].values())))
    lines = ["| case | " + " | ".join(sides) + " | (MB/s; share to the SSD; s until drained: medians) |",
             "|---|" + "---|" * (len(sides) + 1)]
    for case, runs in found["cases"].items():
        cells = []
        for side in sides:
            mid = {of: statistics.median(run[of] for run in runs[side])
                   for of in ("mb_per_s", "ssd_bytes", "bytes", "drained_s")}
            cells.append(f"{mid['mb_per_s']:.2f}; {mid['ssd_bytes'] / mid['bytes']:.1%}; "
                         f"{mid['drained_s']:.1f}")
        lines.append(f"| {case} | " + " | ".join(cells) + " | |")
    case, *duellists = DUEL
    rounds = found["cases"].get(case, {})
    if all(name in rounds and all("ssdup_plus_bytes" in run for run in rounds[name]) for name in duellists):
        lines += ["", f"Each round of {case}, in MB/s: what SSDUP+ leaves to the device depends on luck, "
                  f"and so does the speed; the bytes that it would "
                  "leave there of a run's own writes, a second, hardly do.", "",
                  "| | " + " | ".join(f"round {number + 1}" for number in range(len(rounds[duellists[0]])))
                  + " |", "|---|" + "---|" * len(rounds[duellists[0]])]
        for name in duellists:
            lines += [f"| {name}; SSDUP+'s share to the SSD | " + " | ".join(
                          f"{run['mb_per_s']:.1f}; {run['ssdup_plus_bytes'] / run['bytes']:.0%}"
                          for run in rounds[name]) + " |",
                      f"| {name}: left to the device, a second | "
                      + " | ".join(f"{awaited_mb_per_s(run):.2f}" for run in rounds[name]) + " |"]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("swale", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--profile", choices=("full", "quick"), default="full")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--sides", default=",".join(SIDES))
    arguments = parser.parse_args()
    try:
        found = measure(arguments.swale.absolute(), arguments.out.absolute(), arguments.profile,
                        arguments.rounds, arguments.cases.split(","), arguments.sides.split(","))
    except throttle.Unavailable as why:
        print(f"real.py: not measured: {why}", file=sys.stderr)
        return 77
    print(text(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
