#!/usr/bin/env python3
"""The verdicts of rpc.py say "no" when they must, and a tiny run goes through (rpc_verdict_test.py PROGRAM
OUT).
"""
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import rpc  # noqa: E402


def lines(ours_us, ours_per_s):
    made = []
    for fabric in rpc.FABRICS:
        for size in rpc.SIZES:
            for depth in rpc.DEPTHS:
                for name in set(rpc.ORDERS[0]):
                    ours = name == rpc.OURS
                    made.append({"round": 0, "fabric": fabric, "size": size, "depth": depth, "name": name,
                                 "line": {"us": {"p50": ours_us if ours else 10.0},
                                          "calls_per_s": ours_per_s if ours else 1000.0}})
    return made


def main():
    assert all(row["met"] for row in rpc.judge(lines(14.9, 710)))
    slow = rpc.judge(lines(15.1, 710))
    assert [row["met"] for row in slow] == [row["depth"] != 1 for row in slow]
    few = rpc.judge(lines(14.9, 690))
    assert [row["met"] for row in few] == [row["depth"] == 1 for row in few]
    with tempfile.TemporaryDirectory() as out:
        sys.argv = ["rpc.py", sys.argv[1], out, "--profile", "tiny"]
        assert rpc.main() in (0, 1)  # the figures of a tiny run mean nothing
    print("ok")


if __name__ == "__main__":
    main()
