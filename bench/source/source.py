#!/usr/bin/env python3
"""source.py PROGRAMS OUT [--profile full|quick|tiny] [--results DIR]: auxiliary tables beside their rivals.

PROGRAMS is the folder of bench_calibrate and of source/, which has bench_source and bench_lossy_directory
(build/release/bench). The first round runs a calibration and then all cases; sizes and probes are the same
whenever a case is run. Further rounds run a calibration and the timed cases, in an order that alternates;
times are medians of normalised values. Writes OUT/source.json and prints the table with its verdicts.
--results writes auxiliary-tables.md, .csv and, with matplotlib, .png. Exit status: 0 if every "must" is met,
1 if one is not, 2 if a program failed.
"""
import argparse
import csv
import json
import pathlib
import statistics
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import calibration  # noqa: E402
from judge import Failed, rows_of, run, words  # noqa: E402
from keys import Key  # noqa: E402

PROFILES = {"full": dict(keys=7_812_500, rounds=3), "quick": dict(keys=1_000_000, rounds=2),
            "tiny": dict(keys=30_000, rounds=1)}
RANKS = ("uniform", "skewed", "correlated")
SIZES = (64, 4096, 131072)


def case(scheme, sources, ranks="uniform", **more):
    return {"scheme": scheme, "sources": sources, "ranks": ranks, **more}


# Each row of the printed table. The cuckoo table is the paper's: fingerprints of 4 bits; the sorted maplet
# has 4 as well.
CASES = {
    **{f"ribbon, {p} ranks, {ranks}": case("ribbon", p, ranks) for p in SIZES for ranks in RANKS},
    **{f"maplet, {p} ranks, {ranks}": case("maplet", p, ranks) for p in SIZES for ranks in RANKS},
    **{f"cuckoo, {p} ranks, {ranks}": case("cuckoo", p, ranks) for p in SIZES for ranks in RANKS},
    "ribbon without fingerprints, 4096 ranks": case("ribbon", 4096, bits=0),
    "ribbon, shards of 2,048 keys, 4096 ranks": case("ribbon", 4096, **{"shard-keys": 2048}),
    "ribbon with 8 run ids, 4096 ranks": case("ribbon", 4096, runs=8),
    "ribbon at 8 MiB, 4096 ranks": case("ribbon", 4096, memory=8 << 20),
    "delta, 1 % moved, 4096 ranks": case("ribbon", 4096, "correlated", moved=10),
    "delta, 5 % moved, 4096 ranks": case("ribbon", 4096, "correlated", moved=50),
    "delta, 20 % moved, 4096 ranks": case("ribbon", 4096, "correlated", moved=200),
}
# One rank's part of a whole directory of so many ranks, made and read by the product's own code
# (bench_lossy_directory).
DIRECTORY = "directory, 4096 ranks"
OURS = "ribbon, 4096 ranks, uniform"
TIMED = (OURS, "maplet, 4096 ranks, uniform", "cuckoo, 4096 ranks, uniform")

KEYS = (
    Key("lossy_bits_per_key_64", "table, index and trailer, 64 ranks", "bit", 10.4, 10.15),
    Key("lossy_bits_per_key_4096", "the same, 4,096 ranks", "bit", 16.6, 16.22),
    Key("lossy_bits_per_key_131072", "the same, 131,072 ranks", "bit", 21.8, 21.26),
    Key("lossy_probes_per_existing_key", "ranks named for a key that is there, the worst distribution of "
        "ranks", "", 1.01, 1.0),
    Key("lossy_false_probes_per_absent_key", "ranks named for a key that is not there, likewise", "", 0.07,
        0.063),
    Key("lossy_cold_bytes", "a query of a directory whose reader has nothing: its reads of the home's table",
        "B", 48_000, 34_000),
    Key("lossy_bytes_ratio", "a rank's data, index and table over its keys and values, 4,096 ranks, 48-byte "
        "records", "", 1.09, 1.075),
    Key("lossy_build_keys_per_cpu_second", "the home's part: take in, sort, build, write", "keys/s", 6e6,
        10e6, less_is_better=False, by="cpu"),
    Key("lossy_peak_bytes", "memory of the home at a budget of 32 MiB", "B", 34 << 20, None),
    Key("lossy_wire_bytes_per_key", "batches of 4,096 keys", "B", 3.5, 2.95),
)  # tables of deltas are shown and not judged: directories do not use them


def measure(programs, profile, scratch, say):
    settings = PROFILES[profile]
    rounds = []
    for number in range(settings["rounds"]):
        calibrated = [run(programs / "bench_calibrate", "--path", scratch / "calibrate",
                          *(["--quick", 1] if profile == "tiny" else []))]
        factors = calibration.factors(calibrated)
        names = list(CASES) if number == 0 else TIMED[:: -1 if number % 2 else 1]
        lines = {}
        for i, name in enumerate(names):
            say(f"round {number + 1} of {settings['rounds']}, {i + 1} of {len(names)}: {name}")
            lines[name] = run(programs / "source" / "bench_source",
                              "--file", scratch / "table", "--keys", settings["keys"], *words(CASES[name]))
        if number == 0:
            say("a rank's part of a directory of 4,096 ranks")
            lines[DIRECTORY] = run(programs / "source" / "bench_lossy_directory",
                                   "--directory", scratch / "directory", "--keys", settings["keys"],
                                   "--ranks", 4096)
        rounds.append({"factors": factors, "lines": lines})
    return rounds


def values_of(rounds, name, field):
    """(value, factors) of each round that ran the case."""
    return [(entry["lines"][name][field], entry["factors"]) for entry in rounds if name in entry["lines"]]


def worst(rounds, field):
    """Of all counts and distributions of ranks."""
    return max((values_of(rounds, f"ribbon, {p} ranks, {ranks}", field) for p in SIZES for ranks in RANKS),
               key=lambda values: values[0][0])


def figures(rounds):
    bits = {f"lossy_bits_per_key_{p}": values_of(rounds, f"ribbon, {p} ranks, uniform", "bits_per_key")
            for p in SIZES}
    return {
        **bits,
        "lossy_probes_per_existing_key": worst(rounds, "probes_per_existing_key"),
        "lossy_false_probes_per_absent_key": worst(rounds, "false_probes_per_absent_key"),
        "lossy_cold_bytes": values_of(rounds, DIRECTORY, "cold_table_bytes"),
        "lossy_bytes_ratio": values_of(rounds, DIRECTORY, "bytes_ratio"),
        "lossy_build_keys_per_cpu_second": values_of(rounds, OURS, "build_keys_per_cpu_second"),
        "lossy_peak_bytes": values_of(rounds, OURS, "peak_bytes"),
        # Of the smallest job, whose ranks fill their batches.
        "lossy_wire_bytes_per_key": values_of(rounds, "ribbon, 64 ranks, uniform", "wire_bytes_per_key"),
    }


def judge(rounds):
    return rows_of(KEYS, figures(rounds))


FIELDS = ("bits_per_key", "probes_per_existing_key", "false_probes_per_absent_key",
          "build_keys_per_cpu_second", "cold_bytes", "peak_bytes", "spilled_bytes", "wire_bytes_per_key",
          "keys_per_batch", "query_ns")


def tables(rounds):
    """One row for each case: medians over the rounds, times normalised."""
    normalise = {"build_keys_per_cpu_second": lambda value, factors: value * factors["cpu"],
                 "query_ns": lambda value, factors: value / factors["cpu"]}
    as_it_is = lambda value, _: value  # noqa: E731
    return [{"case": name, **{field: statistics.median(normalise.get(field, as_it_is)(*pair)
                                                       for pair in values_of(rounds, name, field))
                              for field in FIELDS}}
            for name in CASES]


def show(value):
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3f}"


def text_of(rows, cases):
    lines = ["| key | | raw | normalised | must | aim | met | aim met |", "|---|---|---|---|---|---|---|---|"]
    for row in rows:
        verdicts = ["–" if met is None else "yes" if met else "NO" for met in (row["met"], row["aim_met"])]
        aim = "–" if row["aim"] is None else show(row["aim"])
        lines.append(f"| {row['key']} | {row['what']} | {show(row['raw'])} | {show(row['normalised'])} | "
                     f"{show(row['must'])} | "
                     f"{aim} | {verdicts[0]} | {verdicts[1]} |")
    lines += ["", "| table | bits a key | probes, key there | probes, key absent | build, M keys/CPU s | "
              "cold query, bytes | "
              "peak, MiB | spilled, MiB | wire, B a key | query, ns |", "|" + "---|" * 10]
    for row in cases:
        lines.append(f"| {row['case']} | {row['bits_per_key']:.3f} | {row['probes_per_existing_key']:.4f} | "
                     f"{row['false_probes_per_absent_key']:.4f} | "
                     f"{row['build_keys_per_cpu_second'] / 1e6:.1f} | "
                     f"{row['cold_bytes']:,.0f} | {row['peak_bytes'] / 2**20:.1f} | "
                     f"{row['spilled_bytes'] / 2**20:.1f} | "
                     f"{row['wire_bytes_per_key']:.2f} | {row['query_ns']:.0f} |")
    return "\n".join(lines)


def directory_text(line):
    """What stands below the tables: the directory of which lossy_cold_bytes and lossy_bytes_ratio are."""
    return (f"A rank's part of a directory of {line['ranks']:,} ranks, {line['keys']:,} records and as many "
            f"keys at home: "
            f"{line['data_bytes']:,} bytes of data, {line['index_bytes']:,} of index, "
            f"{line['table_bytes']:,} of table. A cold query "
            f"(mean of {line['cold_queries']}) reads {line['cold_table_bytes']:,.0f} bytes of the table and "
            f"{line['cold_bytes']:,.0f} "
            f"in all. Keys came in messages of {line['keys_per_message']}.")


# What section 4.2 of the 2020 paper prints of its table, beside the same measured here: 4,096 ranks.
PAPER = (("bits a key", "about 18.4 (18 MB for 7.8 M keys)", "bits_per_key", "{:.2f}"),
         ("partitions probed for a key that is there", "about 1.88", "probes_per_existing_key", "{:.3f}"),
         ("bytes read by a cold query", "about 18 MB: the whole table", "cold_bytes", "{:,.0f}"),
         ("bytes a key on the wire", "not printed (8 for the key, and the rank)", "wire_bytes_per_key",
          "{:.2f}"))


# What is compared: less is better, but for the rate.
CONTESTS = (("bits_per_key", "bits a key", 1), ("probes_per_existing_key", "partitions probed", 1),
            ("cold_bytes", "bytes of a cold query", 1), ("query_ns", "time of a query from memory", 1),
            ("build_keys_per_cpu_second", "keys made a second", -1),
            ("peak_bytes", "memory while it is made", 1))


def where_rivals_win(found):
    won = []
    for field, what, sign in CONTESTS:
        ours = found["ribbon, 4096 ranks, uniform"][field]
        for scheme in ("maplet", "cuckoo"):
            theirs = found[f"{scheme}, 4096 ranks, uniform"][field]
            if sign * theirs < sign * ours:
                won.append(f"{scheme}: {what}, {max(ours, theirs) / min(ours, theirs):.2f} times better")
    return "Where a rival wins at 4,096 ranks: " + ("; ".join(won) if won else "nowhere") + "."


def page_of(rows, cases, directory, profile):
    found = {row["case"]: row for row in cases}
    lines = ["# Auxiliary tables", "",
             f"Made by `make bench-source` (profile {profile}), 7.8 M keys of one home unless the profile "
             f"is smaller; "
             "[design](../design/lossy.md). Times are normalised "
             "([calibration](../design/benchmarks.md)); the machine has two cores, and other work may have "
             "run beside.", "",
             "![bits, partitions and bytes by the count of ranks](auxiliary-tables.png)", "",
             "| 2020 paper, section 4.2 | printed | its table, measured here | sorted maplet | ours |",
             "|---|---|---|---|---|"]
    for what, printed, field, form in PAPER:
        values = [form.format(found[f"{scheme}, 4096 ranks, uniform"][field])
                  for scheme in ("cuckoo", "maplet", "ribbon")]
        lines.append(f"| {what} | {printed} | {values[0]} | {values[1]} | {values[2]} |")
    lines += ["", where_rivals_win(found), "", text_of(rows, cases), "", directory_text(directory), ""]
    return "\n".join(lines)


def write_results(rows, cases, directory, profile, folder):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "auxiliary-tables.md").write_text(page_of(rows, cases, directory, profile))
    with open(folder / "auxiliary-tables.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, ["case", *FIELDS], lineterminator="\n")
        writer.writeheader()
        for row in cases:
            writer.writerow({name: value if name == "case" else f"{value:.6g}" for name,
                             value in row.items()})
    try:
        import matplotlib
    except ImportError:
        print("no matplotlib: no plot (Debian: python3-matplotlib)", file=sys.stderr)
        return
    matplotlib.use("Agg")
    import source_plot
    source_plot.draw(folder / "auxiliary-tables.csv", folder / "auxiliary-tables.png")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("programs", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--profile", choices=PROFILES, default="full")
    parser.add_argument("--results", type=pathlib.Path)
    parser.add_argument("--again", action="store_true", help="run nothing: the pages of OUT/source.json")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.again:
        return finish(json.loads((options.out / "source.json").read_text())["rounds"], options)
    try:
        with tempfile.TemporaryDirectory(dir=options.out) as scratch:
            rounds = measure(options.programs, options.profile, pathlib.Path(scratch),
                             lambda text: print(text, file=sys.stderr, flush=True))
    except Failed as failure:
        print(failure, file=sys.stderr)
        return 2
    return finish(rounds, options)


def finish(rounds, options):
    rows, cases, directory = judge(rounds), tables(rounds), rounds[0]["lines"][DIRECTORY]
    (options.out / "source.json").write_text(json.dumps(
        {"profile": options.profile, "keys": {row["key"]: row["normalised"] for row in rows}, "rows": rows,
         "tables": cases,
         "rounds": rounds}, indent=1) + "\n")
    print(text_of(rows, cases) + "\n\n" + directory_text(directory))
    if options.results:
        write_results(rows, cases, directory, options.profile, options.results)
    return 0 if all(row["met"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
