#!/usr/bin/env python3
"""fs.py PROGRAMS OUT [--profile full|quick|tiny] [--memory DIR] [--scratch DIR]: `make bench-fs`: the logs
of a node in the job's file system, their drain to a folder of --scratch, programs in the tree of a job
there, and `swale stage out` of files in memory.

PROGRAMS is build/*/bench; the command beside it is build/*/tools/swale. Without FUSE mounts the figures of
the tree are missing, and their musts are not met. Each round runs the calibration, then each measurement;
inside a measurement rivals take turns, so a ratio divides figures of one moment. The slow backing is a loop
device on a file of --scratch that the kernel limits (throttle.py); without one its figures are missing, too.
Writes OUT/fs.json. Exit
status: 0 if every "must" is met, 1 if one is not, 2 if an answer was wrong or a program failed.
docs/design/file-logs.md and node-files.md have the predictions.
"""
import pathlib
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tier"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "tests" / "mount"))
import calibration  # noqa: E402
import judge  # noqa: E402
import preload_mpi  # noqa: E402
import probe  # noqa: E402
import stage_bench  # noqa: E402
import throttle  # noqa: E402
from keys import Key  # noqa: E402

NO_MOUNTS = probe.no_mounts()

PROFILES = {"full": dict(rounds=5, batches=2000, mib=1024, drain_mib=2048, tree_mib=2048, slow_mib=256,
                         creates=2000, commits=300, requests=20_000, preload_batches=300, remote_mib=128,
                         massive_values=300_000, massive_epochs=5, expected_s=660),
            "quick": dict(rounds=2, batches=600, mib=512, drain_mib=1024, tree_mib=512, slow_mib=256,
                          creates=500, commits=100, requests=5000, preload_batches=100, remote_mib=64,
                          massive_values=200_000, massive_epochs=3, expected_s=130),
            "tiny": dict(rounds=1, batches=4, mib=8, drain_mib=128, tree_mib=8, slow_mib=4, creates=10,
                         commits=5, requests=50, preload_batches=4, remote_mib=4,
                         massive_values=500, massive_epochs=1, expected_s=20)}
SLOW_WRITES, SLOW_BYTES, SLOW_DEVICE_MIB = 150, 60_000_000, 1536  # of the slow backing
LIGHT_DEVICE_MIB = 2048
RANKS = 8  # that `swale run` has, as children of one program or each by itself under a launcher
RECORD = 47_008  # bytes of a strided record of the file-per-process comparison
LEAST_S = 0.001  # a figure of less is noise
SMALL = 64  # a write that is nearly only its segment
# Key and where its figure stands: (measurement, field).
KEYS = (
    (Key("write_4k_over_tmpfs", "pwrite of 4 KiB to tmpfs, pages there, over swale_fs_pwrite to the tree; "
         "both go round in 8 MiB, and the server works between batches", "", 1.3, 2.5, less_is_better=False),
     ("api", "write_4k_over_tmpfs")),
    (Key("log_write_4k_over_tmpfs", "the same over a write to a log alone, without a server's process", "",
         None, None, less_is_better=False), ("write_4k", "ratio")),
    (Key("write_record_over_tmpfs", "a write to a log alone with records of 47,008 bytes", "", None, None,
         less_is_better=False),
     ("write_record", "ratio")),
    (Key("segment_ns", "a write of 64 bytes: reservation, stamp, entry", "ns", None, 150, by="cpu"),
     ("segment", "log_ns")),
    (Key("segment_server_ns", "the server's part of it: checks, order, drop", "ns", None, None,
         by="cpu"),
     ("segment", "server_ns_per_piece")),
    (Key("drain_over_cp", "`cp -r` and `sync -f` of a shared file of strided records and of 64 files, half "
         "of the bytes each, over their drain", "", 1.0, 1.5, less_is_better=False), ("drain", "ratio")),
    (Key("drain_cpu_over_cp", "the same by processor time", "", None, None, less_is_better=False),
     ("drain", "cpu_ratio")),
    (Key("recovery_seconds_per_gib", "logs of a server that is gone, in 4 KiB writes: found, checked, "
         "handed out", "s", 1, 0.5,
         by="cpu"), ("recovery", "s_per_gib")),
    (Key("n1_over_nn", "8 processes in the tree, records of 47,008 bytes and an fsync each: one shared file, "
         "strided, over a file each", "", 1.15, 1.03), ("tree", "n1_over_nn")),
    (Key("nn_over_direct", "the files of their own: a plain directory's time over the tree's", "", 0.9, 1,
         less_is_better=False), ("tree", "nn_over_direct")),
    (Key("nn_first_over_direct", "the same as the first work of a new server, whose memory is new", "", None,
         None, less_is_better=False), ("tree", "nn_first_over_direct")),
    (Key("n1_write_over_direct_mount", "the shared file until all is written, not synced: a plain "
         "directory's time over the tree's", "", 0.8, 1, less_is_better=False),
     ("tree", "n1_write_over_direct_mount")),
    (Key("n1_write_beside_fsync_over_direct_mount", "the same where each process syncs when it has written: "
         "until the last one has; a FUSE file that is synced cannot be written meanwhile", "", None, None,
         less_is_better=False), ("tree", "n1_write_beside_fsync_over_direct_mount")),
    (Key("cpu_over_direct", "the files of their own: processor time of all processes and the server over a "
         "plain directory's", "", 2, 1.3), ("tree", "cpu_over_direct")),
    (Key("commit_over_fdatasync", "47,008 bytes and fsync in the tree over pwrite and fdatasync", "", 2.5,
         1.5),
     ("tree", "commit_over_fdatasync")),
    (Key("create_mount_over_passthrough", "8 processes create and close in one directory: a pass-through's "
         "time over the tree's", "", 0.6, 1, less_is_better=False),
     ("tree", "create_mount_over_passthrough")),
    (Key("read_node_over_cache", "reads of 1 MiB, by the library, of what another process has written, not "
         "synced: a plain file's time, from the page cache, over the tree's", "", 0.7, 1,
         less_is_better=False),
     ("library", "read_node_over_cache")),
    (Key("read_node_over_cache_mount", "the same through the mount", "", 0.7, 1, less_is_better=False),
     ("tree", "read_node_over_cache")),
    (Key("read_remote_over_rpc", "reads of 1 MiB of what another node has committed: an RPC that answers "
         "with 1 MiB, between the same nodes, over the read", "", 0.6, 0.85, less_is_better=False),
     ("remote", "read_remote_over_rpc")),
    (Key("checkpoint_over_slow_backing", f"the shared file and its fsyncs with a backing held to "
         f"{SLOW_WRITES} writes and {SLOW_BYTES // 1_000_000} MB a second, a plain directory's time there "
         "over the tree's", "", 5, 9, less_is_better=False), ("slow", "checkpoint_over_slow_backing")),
    (Key("drain_over_slow_direct", "its drain to that backing over the plain directory's time", "", 1.1, 1.0),
     ("slow", "drain_over_slow_direct")),
    (Key("root_requests_per_storm", "64 processes of 4 nodes open, stat and close a file, simulated: "
         "requests at the server of its name, at most of 50 storms", "", 24, 12), ("storm", "requests_max")),
    (Key("mount_over_passthrough_seq", "writes of 1 MiB: a pass-through's time over the tree's", "", 0.8, 1,
         less_is_better=False), ("tree", "mount_over_passthrough_seq")),
    (Key("mount_over_passthrough_random", "writes of 4 KiB at random places, the same", "", 0.7, 1,
         less_is_better=False), ("tree", "mount_over_passthrough_random")),
    (Key("n1_write_over_direct", "the shared file by the library, until all is written, not synced: pwrite "
         "to a plain one over it", "", 0.9, 1.5, less_is_better=False), ("library", "n1_write_over_direct")),
    (Key("burst_over_direct", "the same of what fits into the memory of the logs, beside a plain file in "
         "memory", "", 1.0, 2, less_is_better=False), ("library", "burst_over_direct")),
    (Key("stage_out_over_cp", "`swale stage out` of files in memory, each byte read back from the disk: `cp` "
         "and `sync`, which check nothing (one process or four, the faster), over it", "", 1.0, 1.5,
         less_is_better=False), ("stage", "over_cp")),
    (Key("stage_out_over_checked_cp", "the same beside `cp`, `sync` and `cmp` past the page cache", "", None,
         None, less_is_better=False), ("stage", "over_checked_cp")),
    (Key("stage_out_unverified_over_cp", "neither side reads back: `cp` and `sync` over `--no-read-back`", "",
         None, None, less_is_better=False), ("stage", "unverified_over_cp")),
    (Key("preload_write_4k_over_tmpfs", "an unmodified program with the preload: pwrite of 4 KiB to tmpfs, "
         "pages there, over its pwrite to the tree; both go round in 8 MiB", "", 1.3, 2.5,
         less_is_better=False),
     ("preload", "write_4k_over_tmpfs")),
    (Key("preload_write_4k_in_cache_over_tmpfs", "the same in 1 MiB, which a processor's own cache holds of "
         "the tmpfs file", "", None, None, less_is_better=False),
     ("preload", "write_4k_in_cache_over_tmpfs")),
    (Key("preload_read_node_over_cache", "with the preload: pread of 4 KiB of a plain file in memory, pages "
         "there, over its pread of what a log of the node has", "", None, None, less_is_better=False),
     ("preload", "read_node_over_cache")),
    (Key("lseek_ns", "its lseek in a file of the tree", "ns", 60, 20, by="cpu"), ("preload", "lseek_ns")),
    (Key("outside_ns", "what the preload adds to a data call on another descriptor", "ns", 15, 5, by="cpu"),
     ("preload", "outside_ns")),
    (Key("exec_added_us", "and to the start of a program", "us", 200, 50, by="cpu"),
     ("preload", "exec_added_us")),
    (Key("imd_posix_ns", "a value of 40 bytes in a massive directory by path, fopen, fwrite and fclose: the "
         "caller's processor time", "ns", 500, 250, by="cpu"), ("massive", "by_stream_ns")),
    (Key("imd_posix_name_12_ns", "the same with names of 12 bytes instead of 8", "ns", None, None, by="cpu"),
     ("massive", "by_stream_12_ns")),
    (Key("imd_posix_descriptor_ns", "the first by open, write and close", "ns", None, None, by="cpu"),
     ("massive", "by_descriptor_ns")),
    (Key("preload_n1_write_over_direct", "with the preload, MPI-IO by OMPIO: one shared file, strided "
         "records, until all is written, not synced: a plain directory's time over the tree's", "", 1.0, 2,
         less_is_better=False), ("preload_mpi", "n1_write_over_direct")),
    (Key("create_over_ext4", "with the preload and SWALE_FS_DESCRIPTORS=light, 8 processes create and close "
         "in one directory: a plain directory's time on the disk over the tree's, the best of four rounds "
         "each, on a fresh ext4", "", 0.6, 2, less_is_better=False), ("light", "create_over_ext4")),
    (Key("create_unmounted_over_mount", "8 processes make, write and close files of 40 bytes in one "
         "directory of a tree without a mount: the time of one with a mount over it, the best of four rounds "
         "each", "", 0.5, 1, less_is_better=False), ("unmounted", "create_unmounted_over_mount")),
    (Key("run_added_s", f"`swale run --backing` of {RANKS} processes that do nothing: more than without; one "
         "run of all, or one each under mpirun, the worse", "s", 1, 0.3, by="wait"), ("run", "added_s")),
    (Key("run_alone_added_s", "the same of one run of all", "s", None, None, by="wait"),
     ("run", "alone_added_s")),
)


def judge_all(lines):
    factors = {}
    for entry in lines:
        if entry["name"] == "calibrate":
            factors.setdefault(entry["round"], []).append(entry["line"])
    factors = {number: calibration.factors(found) for number, found in factors.items()}
    results = {}
    for key, (measurement, field) in KEYS:
        dated = [(entry["round"], entry["line"][field]) for entry in lines if entry["name"] == measurement]
        results[key.name] = judge.judged(key, dated, factors.__getitem__)
    return results


def timed(words):
    began = time.monotonic()
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True,
                          timeout=judge.TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise judge.Failed(f"{' '.join(map(str, words))}: {done.stderr.strip()}")
    return time.monotonic() - began


def run_added(swale, scratch):
    """Seconds that the tree of a job adds to processes that do nothing. Under a launcher each is a run of its
    own: the first one starts the server, and all meet. Without mpirun that figure is missing."""
    programs = {"alone": ([], ["sh", "-c", f"for i in $(seq {RANKS}); do true & done; wait"])}
    if preload_mpi.has_launcher():
        programs["ranks"] = ([*preload_mpi.LAUNCH, RANKS], ["true"])
    seconds = {}
    with tempfile.TemporaryDirectory(prefix="swale-bench-run-", dir=scratch) as folder:
        for name, (launch, program) in programs.items():
            backing = pathlib.Path(folder) / name
            backing.mkdir()
            seconds[name] = [timed([*launch, *program]),
                             timed([*launch, swale, "run", "--backing", backing, "--buffer",
                                    pathlib.Path(folder) / f"{name}-buffer", "--", *program])]
    added = {name: max(took - without, LEAST_S) for name, (without, took) in seconds.items()}
    return {"added_s": max(added.values()), "seconds": seconds,
            **{f"{name}_added_s": more for name, more in added.items()}}


def slow_backing(runner, program, scratch):
    """A checkpoint and its drain, to a device that is held."""
    mib = runner.p["slow_mib"]
    try:
        with throttle.Device(scratch, SLOW_DEVICE_MIB) as device:
            device.check(SLOW_WRITES)
            device.limit(SLOW_WRITES, SLOW_BYTES)
            runner.keep("slow", [str(program), *judge.words({"backing": device.root, "buffer": scratch,
                                                             "mib": mib, "rounds": 1})])
            device.limit(None)
    except throttle.Unavailable as why:
        print(f"fs.py: no slow backing: {why}", file=sys.stderr, flush=True)


def library(runner, programs, scratch, memory):
    """The program in a tree whose logs have memory for a burst."""
    with tempfile.TemporaryDirectory(prefix="swale-bench-library-", dir=scratch) as folder:
        tree, plain = pathlib.Path(folder) / "tree", pathlib.Path(folder) / "plain"
        tree.mkdir()
        plain.mkdir()
        mib = runner.p["tree_mib"]
        words = judge.words({"tree": tree, "plain": plain, "memory": memory, "mib": mib,
                             "burst_mib": max(8, mib // 4), "read_mib": max(4, mib // 4), "rounds": 1})
        runner.keep("library", [str(programs.parent / "tools/swale"), "run", "--backing", str(tree),
                                "--buffer", str(pathlib.Path(folder) / "buffer"),
                                "--memory", f"{mib // 2 + 256}M", "--",
                                str(programs / "fs/bench_fs_library"), *words])


def preload(runner, programs, scratch, memory):
    """The same program with and without libswale_preload.so, in a tree of its own."""
    with tempfile.TemporaryDirectory(prefix="swale-bench-preload-", dir=scratch) as tree:
        batches = runner.p["preload_batches"]
        words = judge.words({"tree": tree, "memory": memory, "batches": batches, "programs": batches})
        runner.keep("preload", [str(programs.parent / "tools/swale"), "run", "--preload", "--backing", tree,
                                "--", str(programs / "fs/bench_fs_preload"), *words])


def fuse_ways():
    """{way: why it is not measured here}, of the ways past FUSE's read and write that newer kernels have."""
    enabled = pathlib.Path("/sys/module/fuse/parameters/enable_uring")
    on = enabled.exists() and enabled.read_text(encoding="ascii").strip() == "Y"
    asked = subprocess.run(["pkg-config", "--modversion", "fuse3"], capture_output=True, text=True,
                           check=False)
    library = f"the mount is built with libfuse {asked.stdout.strip() or 'of unknown version'}"
    return {"io_uring": f"the kernel {'allows' if on else 'does not allow'} it (fuse.enable_uring); "
                        f"{library}, and it needs 3.18",
            "pass-through": f"{library}, and it needs 3.17; bytes that are in logs could not go that way"}


def library_writes(runner, programs, scratch, memory):
    """Small writes by the C interface, in a tree of their own."""
    with tempfile.TemporaryDirectory(prefix="swale-bench-api-", dir=scratch) as tree:
        words = judge.words({"tree": tree, "memory": memory, "batches": runner.p["preload_batches"]})
        runner.keep("api", [str(programs.parent / "tools/swale"), "run", "--backing", tree, "--",
                            str(programs / "fs/bench_fs_api"), *words])


def massive(runner, programs, scratch):
    """A program that writes a massive directory by path, as a job of one rank."""
    tools = programs.parent / "tools"
    with tempfile.TemporaryDirectory(prefix="swale-bench-massive-", dir=scratch) as folder:
        directory = f"{folder}/particles"
        subprocess.run([str(tools / "swale"), "mkdir", "--massive", directory], check=True,
                       stdout=subprocess.DEVNULL, timeout=judge.TIMEOUT_S)
        runner.keep("massive", ["env", f"LD_PRELOAD={tools}/libswale_preload.so", "SWALE_JOB_RANK=0",
                                "SWALE_JOB_SIZE=1", str(programs / "fs/bench_fs_massive"),
                                *judge.words({"massive": directory, "values": runner.p["massive_values"],
                                              "epochs": runner.p["massive_epochs"]})])


def light(runner, programs, scratch):
    """Files that are made past the kernel, beside a plain directory of the same disk: a fresh one. For
    minutes after files were removed ext4 looks long for inodes that are not those (recently_deleted): 200 to
    300 us a create, where it takes 8."""
    try:
        # By whole paths: a folder of the program's that is not in the tree leaves a create to the kernel.
        with throttle.Device(scratch.resolve(), LIGHT_DEVICE_MIB, limited=False) as device:
            tree, plain = device.root / "tree", device.root / "plain"
            tree.mkdir()
            plain.mkdir()
            words = judge.words({"tree": tree, "plain": plain, "creates": runner.p["creates"], "rounds": 4})
            runner.keep("light", ["env", "SWALE_FS_DESCRIPTORS=light", str(programs.parent / "tools/swale"),
                                  "run", "--preload", "--backing", str(tree), "--buffer",
                                  str(device.root / "buffer"), "--",
                                  str(programs / "fs/bench_fs_light"), *words])
    except throttle.Unavailable as why:
        print(f"fs.py: no light creates: {why}", file=sys.stderr, flush=True)


def unmounted(runner, programs, scratch):
    """Files of a tree that is mounted nowhere, beside those of a mounted one, on a fresh ext4 as above."""
    try:
        with throttle.Device(scratch.resolve(), LIGHT_DEVICE_MIB, limited=False) as device:
            tree, mounted = device.root / "tree", device.root / "mounted"
            swale = str(programs.parent / "tools/swale")
            tree.mkdir()
            mounted.mkdir()
            words = judge.words({"tree": tree, "mounted": mounted, "creates": runner.p["creates"],
                                 "rounds": 4})
            runner.keep("unmounted", [swale, "run", "--backing", str(mounted), "--buffer",
                                      str(device.root / "buffer"), "--", swale, "run", "--no-mount",
                                      "--backing", str(tree), "--buffer", str(device.root / "other"),
                                      "--", str(programs / "fs/bench_fs_unmounted"), *words])
    except throttle.Unavailable as why:
        print(f"fs.py: no creates without a mount: {why}", file=sys.stderr, flush=True)


def measure(arguments, scratch):
    profile = PROFILES[arguments.profile]
    runner = judge.Runner(profile)
    with tempfile.TemporaryDirectory(prefix="swale-bench-", dir=arguments.memory) as memory:
        def run(name, **options):
            runner.keep(name, [str(arguments.programs / "fs/bench_fs"),
                               *judge.words({**options, "memory": memory})])
        for runner.round in range(profile["rounds"]):
            if runner.round == 0 and not NO_MOUNTS:
                light(runner, arguments.programs, scratch)
                unmounted(runner, arguments.programs, scratch)
            runner.keep("calibrate", [str(arguments.programs / "bench_calibrate"), "--path",
                                      str(scratch / "calibrate"), "--quick",
                                      "1" if arguments.profile == "tiny" else "0"])
            run("write_4k", mode="write", bytes=4096, batches=profile["batches"])
            run("write_record", mode="write", bytes=RECORD, batches=profile["batches"])
            run("segment", mode="write", bytes=SMALL, batches=max(2, profile["batches"] // 20))
            run("recovery", mode="recovery", bytes=4096, mib=profile["mib"])
            runner.keep("drain", [str(arguments.programs / "fs/bench_fs_drain"),
                                  *judge.words({"memory": memory, "backing": scratch,
                                                "mib": profile["drain_mib"], "rounds": 1})])
            runner.keep("remote", [str(arguments.programs / "fs/bench_fs_remote"),
                                   *judge.words({"path": scratch, "memory": memory,
                                                 "mib": profile["remote_mib"], "rounds": 5})])
            runner.keep("storm", [str(arguments.programs / "fs/bench_fs_storm"), "--storms", "50"])
            runner.lines.append({"round": runner.round, "name": "stage",
                                 "line": stage_bench.measure(arguments.programs.parent / "tools/swale",
                                                             arguments.memory, scratch,
                                                             profile["drain_mib"], runner.round)})
            massive(runner, arguments.programs, scratch)
            if NO_MOUNTS:
                continue
            slow_backing(runner, arguments.programs / "fs/bench_fs_slow", scratch)
            runner.keep("tree", [str(arguments.programs / "fs/bench_fs_tree"),
                                 *judge.words({"path": scratch, "mib": profile["tree_mib"],
                                               "creates": profile["creates"], "commits": profile["commits"],
                                               "requests": profile["requests"], "rounds": 1,
                                               "round": runner.round})])
            library(runner, arguments.programs, scratch, memory)
            library_writes(runner, arguments.programs, scratch, memory)
            preload(runner, arguments.programs, scratch, memory)
            if preload_mpi.is_there(arguments.programs):
                preload_mpi.measure(runner, arguments.programs, scratch, RECORD)
            runner.lines.append({"round": runner.round, "name": "run",
                                 "line": run_added(arguments.programs.parent / "tools/swale", scratch)})
    runner.progress.end()
    return {"profile": arguments.profile, "fuse": fuse_ways(), "results": judge_all(runner.lines),
            "lines": runner.lines}


def text(result):
    lines = ["| figure | value | must | aim | met |", "|---|---|---|---|---|"]
    words = {True: "yes", False: "MISSED", None: "–"}
    for name, entry in result["results"].items():
        value = "–" if entry["value"] is None else f"{entry['value']:.3g} {entry['unit']}".strip()
        lines.append(f"| {name} | {value} | {entry['must'] or '–'} | {entry['aim'] or '–'} | "
                     f"{words[entry['met']]} |")
    lines += [f"FUSE by {way}: {why}" for way, why in result["fuse"].items()]
    return "\n".join(lines)


def main():
    return judge.main(__doc__, "fs", PROFILES, measure, text,
                      lambda parser: parser.add_argument("--memory", default="/dev/shm",
                                                         help="a folder of a memory file system"))


if __name__ == "__main__":
    sys.exit(main())
