#!/usr/bin/env python3
"""tls.py FOLDER OUT [--profile full|quick|tiny]: the transport `tls` beside UCX over TCP.

FOLDER has bench_all_to_all, bench_rpc and bench_handshakes. Four ranks send each other 32 KiB messages, each
in a network namespace of its own that a bridge joins to the others (over the machine's own interface where
there are no namespaces, and the result says so); UCX, TLS and the same connections without TLS follow one
another in each round, and a ratio divides figures of one round. Writes OUT/tls.json and prints the table.
Exit status: 0 if every "must" is met, 1 if one is not, 2 if a program failed.
"""
import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys

PLACES = "swale-bench-"
RANKS = 4
MUSTS = {  # key: (at least?, must, aim)
    "tls_over_ucx_tcp_mb_s": (True, 0.5, 0.65),
    "tls_cpu_over_ucx_tcp": (False, 2.0, 1.6),
    "clear_cpu_over_ucx_tcp": (False, 1.0, 0.8),
    "tls_rpc_us_over_ucx_tcp": (False, 1.3, 1.0),
    "handshake_ms": (False, 300, 100),
}
PROFILES = {"full": dict(rounds=7, frames=6000, hundredths=100),
            "quick": dict(rounds=3, frames=3000, hundredths=40),
            "tiny": dict(rounds=1, frames=50, hundredths=2)}
WAYS = ("ucx", "tls", "clear")


class Failed(Exception):
    pass


def run(*words):
    env = dict(os.environ, UCX_TLS="tcp,self")
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=300, env=env)
    if done.returncode != 0:
        raise Failed(f"{words}\n{done.stdout}{done.stderr.strip()}")
    return done.stdout


def ip(*words, check=True):
    return subprocess.run(["ip", *words], check=check, capture_output=True, text=True)


class Places:
    """A network namespace for each rank, joined by a bridge in one more."""

    def __enter__(self):
        try:
            self.make()
            self.prefix = PLACES
        except (OSError, subprocess.CalledProcessError) as failure:
            print(f"no network namespaces here ({failure}): over the machine's own interface",
                  file=sys.stderr)
            self.remove()
            self.prefix = None
        return self

    def make(self):
        self.remove()
        bridge = f"{PLACES}bridge"
        ip("netns", "add", bridge)
        ip("-n", bridge, "link", "add", "br0", "type", "bridge")
        ip("-n", bridge, "link", "set", "br0", "up")
        for rank in range(RANKS):
            place = f"{PLACES}{rank}"
            ip("netns", "add", place)
            ip("-n", place, "link", "set", "lo", "up")
            ip("-n", place, "link", "add", "eth0", "type", "veth", "peer", "name", f"port{rank}", "netns",
               bridge)
            ip("-n", place, "addr", "add", f"10.77.0.{rank + 1}/24", "dev", "eth0")
            ip("-n", place, "link", "set", "eth0", "up")
            ip("-n", bridge, "link", "set", f"port{rank}", "master", "br0")
            ip("-n", bridge, "link", "set", f"port{rank}", "up")

    def remove(self):
        for name in [f"{PLACES}{rank}" for rank in range(RANKS)] + [f"{PLACES}bridge"]:
            ip("netns", "del", name, check=False)

    def __exit__(self, *_):
        self.remove()


def measure(folder, profile, prefix):
    """Of each round: what each way moved, what it took, how long a round trip was, and the handshakes."""
    rounds = []
    for number in range(profile["rounds"]):
        one = {}
        for way in WAYS if number % 2 == 0 else reversed(WAYS):
            text = run(folder / "bench_all_to_all", RANKS, profile["frames"], "auto", "0.05", way,
                       *([prefix] if prefix else []))
            found = re.search(r"([\d.]+) MB/s, ([\d.]+) CPU s/GB", text)
            line = json.loads(run(folder / "bench_rpc", "--with", "rpc", "--size", 64, "--depth", 1,
                                  "--seconds", profile["hundredths"], "--transport", way))
            one[way] = {"mb_s": float(found[1]), "cpu_s_gb": float(found[2]), "rpc_us": line["us"]["p50"]}
        tls, clear = run(folder / "bench_handshakes", 300).split()
        one["handshake_ms"], one["connect_ms"] = float(tls), float(clear)
        rounds.append(one)
        print(f"round {number + 1} of {profile['rounds']} done", file=sys.stderr, flush=True)
    return rounds


def figures(rounds):
    def ratio(way, what):
        return statistics.median(each[way][what] / each["ucx"][what] for each in rounds)
    return {"tls_over_ucx_tcp_mb_s": ratio("tls", "mb_s"), "tls_cpu_over_ucx_tcp": ratio("tls", "cpu_s_gb"),
            "clear_cpu_over_ucx_tcp": ratio("clear", "cpu_s_gb"),
            "tls_rpc_us_over_ucx_tcp": ratio("tls", "rpc_us"),
            "handshake_ms": statistics.median(each["handshake_ms"] for each in rounds)}


def judge(found):
    rows = []
    for key, (at_least, must, aim) in MUSTS.items():
        value = found[key]
        rows.append({"key": key, "value": value, "must": must, "aim": aim, "at_least": at_least,
                     "met": value >= must if at_least else value <= must})
    return rows


def table(rows):
    text = ["| key | measured | must | aim | met |", "|---|---|---|---|---|"]
    for row in rows:
        sign = "≥" if row["at_least"] else "≤"
        text.append(f"| {row['key']} | {row['value']:.2f} | {sign} {row['must']} | {row['aim']} | "
                    f"{'yes' if row['met'] else 'NO'} |")
    return "\n".join(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--profile", choices=PROFILES, default="full")
    options = parser.parse_args()
    try:
        with Places() as places:
            rounds = measure(options.folder, PROFILES[options.profile], places.prefix)
    except Failed as failure:
        print(failure, file=sys.stderr)
        return 2
    rows = judge(figures(rounds))
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "tls.json").write_text(
        json.dumps({"namespaces": places.prefix is not None, "rows": rows, "rounds": rounds}, indent=1)
        + "\n")
    print(table(rows))
    return 0 if all(row["met"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
