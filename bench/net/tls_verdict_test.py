#!/usr/bin/env python3
"""The verdicts of tls.py say "no" when they must, and a tiny run goes through (tls_verdict_test.py FOLDER).
"""
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import tls  # noqa: E402


def rounds(mb_s, cpu, rpc_us, handshake_ms):
    ucx = {"mb_s": 1000.0, "cpu_s_gb": 0.5, "rpc_us": 10.0}
    ours = {"mb_s": mb_s, "cpu_s_gb": cpu, "rpc_us": rpc_us}
    return [{"ucx": ucx, "tls": ours, "clear": dict(ours, cpu_s_gb=cpu / 2), "handshake_ms": handshake_ms}]


def missed(*values):
    return {row["key"] for row in tls.judge(tls.figures(rounds(*values))) if not row["met"]}


def main():
    assert missed(501, 0.99, 12.9, 299) == set()
    assert missed(499, 0.99, 12.9, 299) == {"tls_over_ucx_tcp_mb_s"}
    assert missed(501, 1.01, 12.9, 299) == {"tls_cpu_over_ucx_tcp", "clear_cpu_over_ucx_tcp"}
    assert missed(501, 0.99, 13.1, 299) == {"tls_rpc_us_over_ucx_tcp"}
    assert missed(501, 0.99, 12.9, 301) == {"handshake_ms"}
    with tempfile.TemporaryDirectory() as out:
        sys.argv = ["tls.py", sys.argv[1], out, "--profile", "tiny"]
        assert tls.main() in (0, 1)  # the figures of a tiny run mean nothing
    print("ok")


if __name__ == "__main__":
    main()
