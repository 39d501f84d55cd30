#!/usr/bin/env python3
"""The verdicts of shuffle.py say "no" when they must, and a tiny run goes through (shuffle_verdict_test.py
FOLDER).
"""
import json
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import shuffle  # noqa: E402


def found(cpu=(190.0, 310.0), wall=(1.0, 1.75), buffers=16 << 20, messages=64, opening=8 << 20, factor=1.0,
          ratio=3.3, one_node=(1.0, 1.0)):
    lines = {}
    for shape in shuffle.SHAPES:
        for i, route in enumerate(shuffle.ROUTES):
            lines[f"{shape}, {route}"] = {"shuffle_cpu_ns_per_record": cpu[i], "wall_s": wall[i]}
    nodes = [{"listening": listening, "line": {"wall_s": one_node[listening]}} for listening in (0, 1, 1, 0)]
    return {"rounds": [{"factors": {"cpu": factor, "storage": 1.0, "cold": 1.0}, "lines": lines,
                        "one_node": nodes}],
            "large": {"131072": {"hop_buffer_bytes": buffers, "epoch_end_messages_most": messages,
                                 "job_open_bytes": opening}},
            "lossy_slowdown_ratio": ratio}


def missed(**changes):
    return [row["key"] for row in shuffle.judge(found(**changes)) if not row["met"]]


def main():
    assert missed() == []
    assert missed(cpu=(201.0, 310.0)) == ["direct_cpu_ns_per_record"]
    assert missed(cpu=(190.0, 321.0)) == ["threehop_cpu_ns_per_record"]
    assert missed(cpu=(300.0, 480.0), factor=1.5) == []  # a slow hour
    assert missed(wall=(1.0, 1.85)) == ["threehop_over_direct_time"]
    assert missed(buffers=(16 << 20) + 1) == ["threehop_buffer_bytes_per_rank"]
    assert missed(opening=(8 << 20) + 1) == ["job_open_bytes_per_rank_131072"]
    assert missed(ratio=3.29) == ["lossy_slowdown_ratio"]
    assert missed(one_node=(1.02, 1.0)) == ["node_only_shuffle_over_listening"]
    assert missed(messages=65) == ["epoch_end_messages_per_rank_131072"]
    with tempfile.TemporaryDirectory() as out:
        sys.argv = ["shuffle.py", sys.argv[1], out, "--profile", "tiny"]
        assert shuffle.main() in (0, 1)  # the figures of a tiny run mean nothing
        written = json.loads((pathlib.Path(out) / "shuffle.json").read_text())
        assert set(written["keys"]) == {key.name for key in shuffle.KEYS}
    print("ok")


if __name__ == "__main__":
    main()
