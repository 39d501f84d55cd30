#!/usr/bin/env python3
"""The verdicts of fs.py say "no" when they must, and a tiny run goes through (fs_verdict_test.py BENCH_FS
BENCH_CALIBRATE; bench_fs_drain stands beside bench_fs).
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


def lines(ratio, recovery, slow=1.0, drain=1.01):
    made = [{"round": 0, "name": "calibrate", "line": {name: value * slow for name,
                                                       value in CALIBRATION.items()}}]
    write = {"ratio": ratio, "log_ns": 100.0, "server_ns_per_piece": 100.0}
    made += [{"round": 0, "name": name, "line": write} for name in ("write_4k", "write_record", "segment")]
    made.append({"round": 0, "name": "drain", "line": {"ratio": drain, "cpu_ratio": drain}})
    return made + [{"round": 0, "name": "recovery", "line": {"s_per_gib": recovery}}]


def missed(of):
    return [name for name, entry in fs.judge_all(of).items() if entry["met"] is False]


def main():
    assert missed(lines(1.31, 0.99)) == []
    assert missed(lines(1.29, 0.99)) == ["write_4k_over_tmpfs"]
    assert missed(lines(1.31, 1.01)) == ["recovery_seconds_per_gib"]
    assert missed(lines(1.31, 1.01, slow=1.5)) == []  # a slow hour
    assert missed(lines(1.31, 0.99, drain=0.99)) == ["drain_over_cp"]
    assert missed([entry for entry in lines(1.31, 0.99)
                   if entry["name"] != "write_4k"]) == ["write_4k_over_tmpfs"]
    programs = pathlib.Path(sys.argv[2]).parent
    assert programs / "fs" == pathlib.Path(sys.argv[1]).parent
    with tempfile.TemporaryDirectory(prefix="swale-test-") as out, contextlib.redirect_stdout(io.StringIO()):
        sys.argv = ["fs.py", str(programs), out, "--profile", "tiny"]
        assert fs.main() in (0, 1)  # the figures of a tiny run mean nothing
        kept = json.loads((pathlib.Path(out) / "fs.json").read_text())
        assert all(entry["value"] > 0 for entry in kept["results"].values())
    print("ok")


if __name__ == "__main__":
    main()
