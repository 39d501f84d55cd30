#!/usr/bin/env python3
"""shuffle.py PROGRAMS OUT [--profile full|quick|tiny]: records sent to their home ranks directly and by three
hops; and on one node, without a port and with one.

PROGRAMS is the folder of bench_calibrate; in its folders are net/bench_route and net/bench_large_job,
sim/bench_sim_shuffle and source/bench_lossy_directory (build/release/bench).
Each round runs a calibration and then every case in both routes, next to each other; the order alternates
from round to round. CPU times are medians of normalised values, the ratio of wall times is the median of each
round's own. Writes OUT/shuffle.json and prints the table with its verdicts. Exit status: 0 if every "must" is
met, 1 if one is not, 2 if a program failed.
"""
import argparse
import json
import pathlib
import statistics
import sys
import tempfile

BENCH = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(BENCH), str(BENCH / "sim")]
import calibration  # noqa: E402
import sim_shuffle  # noqa: E402
from judge import Failed, rows_of, run  # noqa: E402
from keys import Key  # noqa: E402

PROFILES = {"full": dict(keys=4_000_000, epochs=2, rounds=5),
            "quick": dict(keys=1_000_000, epochs=2, rounds=3),
            "tiny": dict(keys=20_000, epochs=2, rounds=1)}
ROUTES = ("direct", "three-hop")
SHAPES = {"2 x 4": (2, 4), "4 x 8": (4, 8)}
ONE_NODE = 4  # ranks
# Each round runs both, in both orders: a drift of the machine falls on both alike.
LISTENING = (0, 1, 1, 0)
LARGE = {4096: (128, 32), 131072: (4096, 32)}  # ranks: nodes, ranks of each

KEYS = (
    Key("direct_cpu_ns_per_record", "shuffle and index, 48-byte records, 2 nodes of 4 ranks: CPU of all, "
        "net of generating", "ns",
        200, 120, by="cpu"),
    Key("threehop_cpu_ns_per_record", "the same by three hops", "ns", 320, 200, by="cpu"),
    Key("threehop_over_direct_time", "wall time by three hops over directly, 4 nodes of 8 ranks on one "
        "machine", "", 1.8, 1.5),
    Key("node_only_shuffle_over_listening", "records a second on one node, 4 ranks: without a port over "
        "with one", "", 0.99, 1.02,
        less_is_better=False),
    Key("threehop_buffer_bytes_per_rank", "frames of the hops, 4,096 nodes of 32 ranks", "B", 16 << 20,
        8 << 20),
    Key("job_open_bytes_per_rank_131072", "memory to open a job: at its most, on the rank that takes most, "
        "and its part of the "
        "node's file", "B", 8 << 20, 1 << 20),
    Key("epoch_end_messages_per_rank_131072", "messages that end an epoch on quiet links, of the rank that "
        "sends most", "", 64, 24),
    sim_shuffle.KEYS[0],
)


def measure(programs, profile, scratch, say):
    settings = PROFILES[profile]
    rounds = []
    for number in range(settings["rounds"]):
        calibrated = [run(programs / "bench_calibrate", "--path", scratch / "calibrate",
                          *(["--quick", 1] if profile == "tiny" else []))]
        lines = {}
        for shape, (nodes, ranks) in SHAPES.items():
            for route in ROUTES[:: -1 if number % 2 else 1]:
                say(f"round {number + 1} of {settings['rounds']}: {shape}, {route}")
                lines[f"{shape}, {route}"] = run(
                    programs / "net" / "bench_route", "--path", scratch / "directory", "--nodes", nodes,
                    "--ranks", ranks, "--keys", settings["keys"], "--epochs", settings["epochs"], "--route",
                    route)
        one_node = []
        for listening in LISTENING[:: -1 if number % 2 else 1]:
            say(f"round {number + 1} of {settings['rounds']}: one node, "
                f"{'with' if listening else 'without'} a port")
            one_node.append({"listening": listening, "line": run(
                programs / "net" / "bench_route", "--path", scratch / "directory", "--nodes", 1, "--ranks",
                ONE_NODE, "--keys", settings["keys"], "--epochs", settings["epochs"], "--route", "direct",
                "--listening", listening)})
        rounds.append({"factors": calibration.factors(calibrated), "lines": lines, "one_node": one_node})
    large = {}
    for ranks, (nodes, each) in LARGE.items():
        say(f"a job of {ranks:,} ranks")
        large[str(ranks)] = run(programs / "net" / "bench_large_job", "--nodes", nodes, "--ranks", each)
    say("what base is slowed down over lossy, on the 2020 paper's machine")
    return {"rounds": rounds, "large": large,
            "lossy_slowdown_ratio": sim_shuffle.slowdown_ratio(programs, scratch, profile)}


def on_one_node(entry, listening, name):
    return statistics.fmean(each["line"][name] for each in entry["one_node"]
                            if each["listening"] == listening)


def figures(found):
    """(value, factors) of each round, by key."""
    rounds, largest = found["rounds"], found["large"]["131072"]
    still = {"cpu": 1.0, "storage": 1.0, "cold": 1.0}
    values = {f"{name}_cpu_ns_per_record": [(entry["lines"][f"2 x 4, {route}"]["shuffle_cpu_ns_per_record"],
                                             entry["factors"])
                                            for entry in rounds]
              for name, route in (("direct", "direct"), ("threehop", "three-hop"))}
    values["threehop_over_direct_time"] = [
        (entry["lines"]["4 x 8, three-hop"]["wall_s"] / entry["lines"]["4 x 8, direct"]["wall_s"],
         entry["factors"])
        for entry in rounds]
    values["node_only_shuffle_over_listening"] = [
        (on_one_node(entry, 1, "wall_s") / on_one_node(entry, 0, "wall_s"), entry["factors"])
        for entry in rounds]
    values["threehop_buffer_bytes_per_rank"] = [(largest["hop_buffer_bytes"], still)]
    values["job_open_bytes_per_rank_131072"] = [(largest["job_open_bytes"], still)]
    values["epoch_end_messages_per_rank_131072"] = [(largest["epoch_end_messages_most"], still)]
    values["lossy_slowdown_ratio"] = [(found["lossy_slowdown_ratio"], still)]
    return values


def judge(found):
    return rows_of(KEYS, figures(found))


def show(number):
    return f"{number:,.0f}" if number >= 1000 or number == int(number) else f"{number:.4g}"


LARGE_ROWS = (("memory to open a job over a communicator, at its most, bytes",
               "job_open_communicator_peak_bytes"),
              ("that stays, bytes", "job_open_communicator_kept_bytes"),
              ("part of the node's file of addresses, bytes", "job_open_communicator_shared_bytes"),
              ("calls of the communicator", "job_open_communicator_calls"),
              ("memory of rank 0 to open a job by a rendezvous directory, at its most, bytes",
               "job_open_rendezvous_peak_bytes"),
              ("that stays, bytes", "job_open_rendezvous_kept_bytes"),
              ("UCX's own memory, bytes", "job_open_communicator_fabric_bytes"),
              ("frames of the hops, bytes", "hop_buffer_bytes"), ("their queues and tables, bytes",
                                                                  "hop_state_bytes"),
              ("which rank is where, bytes", "node_map_bytes"),
              ("ranks with which it has links", "hop_peers"),
              ("messages to end a quiet epoch, most", "epoch_end_messages_most"),
              ("the same, mean", "epoch_end_messages_mean"),
              ("messages to close, most", "close_messages_most"), ("the same, mean", "close_messages_mean"),
              ("messages to open a directory, most", "directory_open_messages_most"),
              ("the same, mean", "directory_open_messages_mean"),
              ("bytes of them, sent and got, most", "directory_open_bytes_most"),
              ("the same, mean", "directory_open_bytes_mean"))


def text_of(rows, found):
    lines = ["| key | | raw | normalised | must | aim | met | aim met |", "|---|---|---|---|---|---|---|---|"]
    for row in rows:
        verdicts = ["yes" if met else "NO" for met in (row["met"], row["aim_met"])]
        lines.append(f"| {row['key']} | {row['what']} | {show(row['raw'])} | {show(row['normalised'])} | "
                     f"{show(row['must'])} | "
                     f"{show(row['aim'])} | {verdicts[0]} | {verdicts[1]} |")
    lines += ["", "| a rank of a job of | " + " | ".join(f"{ranks:,} ranks" for ranks in LARGE) + " |",
              "|---|" + "---|" * len(LARGE)]
    for what, name in LARGE_ROWS:
        lines.append(f"| {what} | " + " | ".join(show(found["large"][str(ranks)][name]) for ranks in LARGE)
                     + " |")
    lines += ["", "| case | CPU ns a record | wall s | bytes a record on the wire | frames |",
              "|---|---|---|---|---|"]
    for shape in SHAPES:
        for route in ROUTES:
            of = [entry["lines"][f"{shape}, {route}"] for entry in found["rounds"]]
            middle = {name: statistics.median(line[name] for line in of)
                      for name in ("shuffle_cpu_ns_per_record", "wall_s", "wire_bytes_per_record", "frames")}
            lines.append(f"| {shape}, {route} | {middle['shuffle_cpu_ns_per_record']:.0f} | "
                         f"{middle['wall_s']:.3f} | "
                         f"{middle['wire_bytes_per_record']:.1f} | {middle['frames']:,.0f} |")
    for listening, what in ((0, "without a port"), (1, "with ports")):
        middle = {name: statistics.median(on_one_node(entry, listening, name) for entry in found["rounds"])
                  for name in ("shuffle_cpu_ns_per_record", "wall_s", "wire_bytes_per_record", "frames")}
        lines.append(f"| 1 x {ONE_NODE}, {what} | {middle['shuffle_cpu_ns_per_record']:.0f} | "
                     f"{middle['wall_s']:.3f} | "
                     f"{middle['wire_bytes_per_record']:.1f} | {middle['frames']:,.0f} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("programs", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--profile", choices=PROFILES, default="full")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(dir=options.out) as scratch:
            found = measure(options.programs, options.profile, pathlib.Path(scratch),
                            lambda text: print(text, file=sys.stderr, flush=True))
    except Failed as failure:
        print(failure, file=sys.stderr)
        return 2
    rows = judge(found)
    (options.out / "shuffle.json").write_text(json.dumps(
        {"profile": options.profile, "keys": {row["key"]: row["normalised"] for row in rows}, "rows": rows,
         **found},
        indent=1) + "\n")
    print(text_of(rows, found))
    return 0 if all(row["met"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
