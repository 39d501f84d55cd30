#!/usr/bin/env python3
"""The verdicts of fs.py say "no" when they must, and a tiny run goes through (fs_verdict_test.py BENCH_FS
BENCH_CALIBRATE SWALE; the other programs are where fs.py looks for them). Each key's field is here, good
enough; worse, alone, it is the one that is missed.
"""
import contextlib
import io
import json
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import fs  # noqa: E402

CALIBRATION = dict(fs.calibration.REFERENCE)


TREE = {"n1_over_nn": 1.1, "nn_over_direct": 0.95, "n1_write_over_direct_mount": 0.9, "cpu_over_direct": 1.5,
        "commit_over_fdatasync": 2.4, "create_mount_over_passthrough": 0.7, "mount_over_passthrough_seq": 0.9,
        "mount_over_passthrough_random": 0.8}
TOLD = {"nn_first_over_direct": 0.5, "n1_write_beside_fsync_over_direct_mount": 0.5}  # without a must
MOUNT_READS = "read_node_over_cache"  # in the tree's line; its key ends in _mount
SLOW = {"checkpoint_over_slow_backing": 5.1, "drain_over_slow_direct": 1.05}
LIBRARY = {"n1_write_over_direct": 1.0, "burst_over_direct": 1.1, "read_node_over_cache": 0.75}
PRELOAD = {"write_4k_over_tmpfs": 1.4, "write_4k_in_cache_over_tmpfs": 0.9,
           "read_node_over_cache": 0.5, "lseek_ns": 50.0,
           "outside_ns": 10.0, "exec_added_us": 150.0}
RUN = {"added_s": 0.5, "alone_added_s": 0.4}
LESS = ("n1_over_nn", "cpu_over_direct", "commit_over_fdatasync", "drain_over_slow_direct")


def lines(ratio, recovery, slow=1.0, drain=1.01, tree=None, added=None, held=None, storm=24, library=None,
          preload=None, stage=1.01, remote=0.61, mpi=1.01, massive=499.0, light=0.61, unmounted=0.51,
          log=1.0):
    made = [{"round": 0, "name": "calibrate", "line": {name: value * slow for name,
                                                       value in CALIBRATION.items()}}]
    write = {"ratio": log, "log_ns": 100.0, "server_ns_per_piece": 100.0}
    made += [{"round": 0, "name": name, "line": write} for name in ("write_4k", "write_record", "segment")]
    made.append({"round": 0, "name": "drain", "line": {"ratio": drain, "cpu_ratio": drain}})
    made.append({"round": 0, "name": "tree", "line": {**TREE, **TOLD, MOUNT_READS: 0.75, **(tree or {})}})
    made.append({"round": 0, "name": "slow", "line": {**SLOW, **(held or {})}})
    made.append({"round": 0, "name": "storm", "line": {"requests_max": storm}})
    made.append({"round": 0, "name": "remote", "line": {"read_remote_over_rpc": remote}})
    made.append({"round": 0, "name": "library", "line": {**LIBRARY, **(library or {})}})
    made.append({"round": 0, "name": "preload", "line": {**PRELOAD, **(preload or {})}})
    made.append({"round": 0, "name": "massive", "line": {"by_stream_ns": massive, "by_stream_12_ns": massive,
                                                                "by_descriptor_ns": 3000.0}})
    made.append({"round": 0, "name": "preload_mpi", "line": {"n1_write_over_direct": mpi}})
    made.append({"round": 0, "name": "light", "line": {"create_over_ext4": light}})
    made.append({"round": 0, "name": "unmounted", "line": {"create_unmounted_over_mount": unmounted}})
    made.append({"round": 0, "name": "api", "line": {"write_4k_over_tmpfs": ratio}})
    made.append({"round": 0, "name": "run", "line": {**RUN, **(added or {})}})
    made.append({"round": 0, "name": "stage", "line": {"over_cp": stage, "over_checked_cp": 1.5,
                                                              "unverified_over_cp": 1.5}})
    return made + [{"round": 0, "name": "recovery", "line": {"s_per_gib": recovery}}]


def missed(of):
    return [name for name, entry in fs.judge_all(of).items() if entry["met"] is False]


def each_key_is_judged_by_its_field():
    for key, (measurement, field) in fs.KEYS:
        made = lines(1.31, 0.99)
        assert fs.judge_all(made)[key.name]["value"] is not None, key.name
        of_key = [entry["line"] for entry in made if entry["name"] == measurement]
        of_key[0][field] *= 1000 if key.less_is_better else 0.001
        assert missed(made) == ([] if key.must is None else [key.name]), (key.name, missed(made))


def main():
    assert missed(lines(1.31, 0.99)) == []
    assert missed(lines(1.29, 0.99)) == ["write_4k_over_tmpfs"]
    assert missed(lines(1.31, 1.01)) == ["recovery_seconds_per_gib"]
    assert missed(lines(1.31, 1.01, slow=1.5)) == []  # a slow hour
    assert missed(lines(1.31, 0.99, drain=0.99)) == ["drain_over_cp"]
    assert missed([entry for entry in lines(1.31, 0.99)
                   if entry["name"] != "api"]) == ["write_4k_over_tmpfs"]
    assert missed(lines(1.31, 0.99, log=0.5)) == []  # told, not judged
    for name in TREE:
        assert missed(lines(1.31, 0.99, tree={name: 2.6 if name in LESS else 0.5})) == [name]
    assert missed(lines(1.31, 0.99, tree={MOUNT_READS: 0.69})) == [f"{MOUNT_READS}_mount"]
    for name in SLOW:
        assert missed(lines(1.31, 0.99, held={name: 2.6 if name in LESS else 0.5})) == [name]
    assert missed(lines(1.31, 0.99, storm=25)) == ["root_requests_per_storm"]
    for name in LIBRARY:
        assert missed(lines(1.31, 0.99, library={name: 0.5})) == [name]
    assert missed(lines(1.31, 0.99, preload={"write_4k_over_tmpfs": 1.2})) == ["preload_write_4k_over_tmpfs"]
    for name in ("lseek_ns", "outside_ns", "exec_added_us"):
        assert missed(lines(1.31, 0.99, preload={name: 201.0})) == [name]
    assert missed(lines(1.31, 0.99, massive=501.0)) == ["imd_posix_ns"]
    assert missed(lines(1.31, 0.99, massive=501.0, slow=1.5)) == []
    assert missed(lines(1.31, 0.99, mpi=0.99)) == ["preload_n1_write_over_direct"]
    assert missed(lines(1.31, 0.99, light=0.59)) == ["create_over_ext4"]
    assert missed(lines(1.31, 0.99, unmounted=0.49)) == ["create_unmounted_over_mount"]
    assert missed(lines(1.31, 0.99, added={"added_s": 1.1})) == ["run_added_s"]
    assert missed(lines(1.31, 0.99, added={"alone_added_s": 1.1})) == []
    each_key_is_judged_by_its_field()
    assert missed(lines(1.31, 0.99, stage=0.99)) == ["stage_out_over_cp"]
    assert missed(lines(1.31, 0.99, remote=0.59)) == ["read_remote_over_rpc"]
    programs = pathlib.Path(sys.argv[2]).parent
    assert programs / "fs" == pathlib.Path(sys.argv[1]).parent
    with tempfile.TemporaryDirectory(prefix="swale-test-") as out, contextlib.redirect_stdout(io.StringIO()):
        sys.argv = ["fs.py", str(programs), out, "--profile", "tiny"]
        assert fs.main() in (0, 1)  # the figures of a tiny run mean nothing
        kept = json.loads((pathlib.Path(out) / "fs.json").read_text())
        named = {key.name for key, (measurement, _) in fs.KEYS
                 if not fs.NO_MOUNTS or measurement not in ("tree", "run", "slow", "library", "preload",
                                                              "preload_mpi", "light", "api")}
        measured = {entry["name"] for entry in kept["lines"]}
        named -= {key.name for key, (measurement, _) in fs.KEYS
                  # A machine may hold no device, or have no MPI.
                  if measurement in ("slow", "preload_mpi") and measurement not in measured}
        assert all(kept["results"][name]["value"] > 0 for name in named), kept["results"]
    print("ok")


if __name__ == "__main__":
    main()
