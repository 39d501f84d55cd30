#!/usr/bin/env python3
"""The verdicts of source.py say "no" when they must, and a tiny run goes through (source_verdict_test.py
BENCH_SOURCE BENCH_CALIBRATE)."""
import copy
import json
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import source  # noqa: E402

GOOD = {"bits_per_key": 10.0, "probes_per_existing_key": 1.0, "false_probes_per_absent_key": 0.06,
        "build_keys_per_cpu_second": 7e6, "peak_bytes": 30 << 20, "wire_bytes_per_key": 3.0}
BAD = {"bits_per_key": 22.0, "probes_per_existing_key": 1.02, "false_probes_per_absent_key": 0.08,
       "build_keys_per_cpu_second": 5e6, "peak_bytes": 35 << 20, "wire_bytes_per_key": 3.6}


def rounds_of(changes):
    lines = {name: copy.copy(GOOD) for name in source.CASES}
    lines[source.DIRECTORY] = {"cold_table_bytes": 36_000, "bytes_ratio": 1.08}
    for name, field, value in changes:
        lines[name][field] = value
    return [{"factors": {"cpu": 1.0, "storage": 1.0, "cold": 1.0}, "lines": lines}]


def main():
    assert all(row["met"] for row in source.judge(rounds_of([])))
    for field, value in BAD.items():
        changes = [(f"ribbon, {p} ranks, {ranks}", field, value) for p in source.SIZES
                   for ranks in source.RANKS]
        missed = [row["key"] for row in source.judge(rounds_of(changes)) if not row["met"]]
        assert missed, field
    for field, value, key in (("cold_table_bytes", 48_001, "lossy_cold_bytes"),
                              ("bytes_ratio", 1.091, "lossy_bytes_ratio")):
        missed = [row["key"] for row in source.judge(rounds_of([(source.DIRECTORY, field, value)]))
                  if not row["met"]]
        assert missed == [key], missed
    slow = rounds_of([(source.OURS, "build_keys_per_cpu_second", 5e6)])
    slow[0]["factors"]["cpu"] = 1.5  # a slow hour
    assert all(row["met"] for row in source.judge(slow))
    programs = pathlib.Path(sys.argv[2]).parent
    assert programs / "source" == pathlib.Path(sys.argv[1]).parent
    with tempfile.TemporaryDirectory() as out:
        sys.argv = ["source.py", str(programs), out, "--profile", "tiny"]
        assert source.main() in (0, 1)  # the figures of a tiny run mean nothing
        written = json.loads((pathlib.Path(out) / "source.json").read_text())
        assert set(written["keys"]) == {key.name for key in source.KEYS}
    print("ok")


if __name__ == "__main__":
    main()
