#!/usr/bin/env python3
"""rpc.py PROGRAM OUT [--profile full|quick|tiny]: net::Rpc beside UCX alone.

PROGRAM is bench_rpc. Each round runs, for each fabric, size and number of requests in flight, the bare pair
before and after net::Rpc (or the other way round in every second round), so that both meet the same mood of
the machine; a ratio divides means of one round. Writes OUT/rpc.json and prints the table with its verdicts.
Exit status: 0 if every "must" is met, 1 if one is not, 2 if a program failed.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

FABRICS = {"shared memory": "sm,self", "TCP": "tcp,self"}
SIZES = (64, 32768)
DEPTHS = (1, 16, 1024)
ROUND_TRIP_MUST = 1.5  # at most, of the median round trip with one request in flight
THROUGHPUT_MUST = 0.7  # at least
PROFILES = {"full": dict(rounds=5, hundredths=30), "quick": dict(rounds=2, hundredths=20),
            "tiny": dict(rounds=1, hundredths=2)}
# What is judged, and what is shown beside it.
OURS, RIVAL = "rpc", "bare"
ORDERS = ([RIVAL, OURS, "rpc_thread", "bare_poll", OURS, RIVAL], [OURS, RIVAL, "bare_poll", "rpc_thread",
                                                                  RIVAL, OURS])


class Failed(Exception):
    pass


def run(program, fabric, **options):
    words = [word for key, value in options.items() for word in (f"--{key}", str(value))]
    env = dict(os.environ, UCX_TLS=FABRICS[fabric])
    done = subprocess.run([str(program), *words], capture_output=True, text=True, timeout=120, env=env)
    if done.returncode != 0:
        raise Failed(f"{' '.join(words)} ({fabric})\n{done.stderr.strip()}")
    return json.loads(done.stdout)


def measure(program, profile):
    lines = []
    for number in range(profile["rounds"]):
        calibration = run(program, "TCP", **{"with": "calibration"})
        lines.append({"round": number, "calibration": calibration})
        for fabric in FABRICS:
            for size in SIZES:
                for depth in DEPTHS:
                    for name in ORDERS[number % 2]:
                        kind = {"rpc_thread": ("rpc", "thread")}.get(name, (name, "inline"))
                        line = run(program, fabric, **{"with": kind[0], "service": kind[1]}, size=size,
                                   depth=depth, seconds=profile["hundredths"])
                        lines.append({"round": number, "fabric": fabric, "size": size, "depth": depth,
                                      "name": name,
                                      "line": line})
            print(f"round {number + 1} of {profile['rounds']}: {fabric} done", file=sys.stderr, flush=True)
    return lines


def value_of(line, depth):
    """Microseconds of a round trip, or calls a second."""
    return line["us"]["p50"] if depth == 1 else line["calls_per_s"]


def judge(lines):
    """A row for each fabric, size and depth: medians of the rounds, ratios of each round, what must be."""
    rows = []
    for fabric in FABRICS:
        for size in SIZES:
            for depth in DEPTHS:
                rounds = {}
                for entry in lines:
                    if (entry.get("fabric"), entry.get("size"), entry.get("depth")) == (fabric, size, depth):
                        rounds.setdefault(entry["round"], {}).setdefault(entry["name"], []).append(
                            value_of(entry["line"], depth))
                means = [{name: statistics.fmean(values) for name, values in each.items()}
                         for each in rounds.values()]
                ratios = [each[OURS] / each[RIVAL] for each in means]
                ratio = statistics.median(ratios)
                must = ROUND_TRIP_MUST if depth == 1 else THROUGHPUT_MUST
                rows.append({"fabric": fabric, "size": size, "depth": depth,
                             "unit": "us" if depth == 1 else "calls/s", "ratio": ratio, "ratios": ratios,
                             "must": must, "met": ratio <= must if depth == 1 else ratio >= must,
                             **{name: statistics.median(each[name] for each in means) for name in means[0]}})
    return rows


def table(rows):
    text = ["| fabric | bytes | in flight | unit | UCX alone | Rpc | ratio (rounds) | must | met | "
            "service on a thread | UCX alone, polling |",
            "|---|---|---|---|---|---|---|---|---|---|---|"]
    for row in rows:
        digits = 1 if row["depth"] == 1 else 0
        spread = f"{min(row['ratios']):.2f}–{max(row['ratios']):.2f}"
        text.append(f"| {row['fabric']} | {row['size']} | {row['depth']} | {row['unit']} | "
                    f"{row[RIVAL]:,.{digits}f} | "
                    f"{row[OURS]:,.{digits}f} | {row['ratio']:.2f} ({spread}) | "
                    f"{'≤' if row['depth'] == 1 else '≥'} {row['must']} | {'yes' if row['met'] else 'NO'} | "
                    f"{row['rpc_thread']:,.{digits}f} | {row['bare_poll']:,.{digits}f} |")
    return "\n".join(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--profile", choices=PROFILES, default="full")
    options = parser.parse_args()
    try:
        lines = measure(options.program, PROFILES[options.profile])
    except Failed as failure:
        print(failure, file=sys.stderr)
        return 2
    rows = judge(lines)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "rpc.json").write_text(json.dumps({"rows": rows, "lines": lines}, indent=1) + "\n")
    print(table(rows))
    return 0 if all(row["met"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
