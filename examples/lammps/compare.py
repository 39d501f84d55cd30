#!/usr/bin/env python3
"""Swale beside a scan of plain dumps and beside DuckDB on sorted Parquet: the measured costs, and how they
would grow.

Reads OUT/run.json and OUT/cost-*.json; cost-parquet.json may be missing. Needs nothing but Python.
"""

import argparse
import json
import math
import pathlib

DUMP_RECORD_BYTES = 48
PATIENCE_S = 10  # how long one gladly waits for an answer


def size(count_bytes):
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if count_bytes >= scale:
            few = count_bytes < 1000 * scale
            return f"{count_bytes / scale:.3g} {unit}" if few else f"{count_bytes / scale:,.0f} {unit}"
    return f"{count_bytes:.0f} B"


def duration(seconds):
    for unit, scale in (("h", 3600), ("min", 60), ("s", 1), ("ms", 1e-3)):
        if seconds >= (2 if scale >= 60 else 1) * scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


def load(out, name):
    path = out / name
    return json.loads(path.read_text()) if path.exists() else None


def methods(out):
    found = [
        ("Swale", load(out, "cost-swale.json")),
        ("scan of the dumps", load(out, "cost-scan.json")),
        ("DuckDB, sorted Parquet", load(out, "cost-parquet.json")),
    ]
    return [(label, cost) for label, cost in found if cost]


def print_costs(run, costs, swale_bytes):
    print(f"  {'':24}{'one atom':>38}   {'all the fastest':>38}")
    columns = f"{'read':>10}{'reads':>8}{'cold':>10}{'warm':>10}"
    print(f"  {'':24}{columns}   {columns}")
    for label, cost in costs:
        cells = []
        for which in ("one", "ten"):
            c = cost["costs"][which]
            cells.append(
                f"{size(c['bytes']):>10}{c['reads']:>8}{duration(c['cold_s']):>10}"
                f"{duration(c['warm_s']):>10}")
        print(f"  {label:24}{'   '.join(cells)}")
    swale_s, dump_s = run["append_s"] + run["epoch_end_s"], run["dump_s"]
    dump_bytes = run["records"] * DUMP_RECORD_BYTES
    print(f"\n  To make this possible: Swale took {duration(swale_s)} while the run wrote, and "
          f"{size(swale_bytes)} on disk; "
          f"the plain dumps {duration(dump_s)} and {size(dump_bytes)};")  # fmt: skip
    for label, cost in costs:
        if "sort_s" in cost:
            print(f"  DuckDB those dumps, then {duration(cost['convert_s'])} to convert and "
                  f"{duration(cost['sort_s'])} to sort "
                  f"them after the run, and {size(cost['bytes'])} (compressed).")  # fmt: skip


def growth(run, costs):
    """One cold trajectory with f * N atoms: a row of (label, seconds as a function of f, the model in words).
    """
    by_label = dict(costs)
    frames = run["frames"]
    one = by_label["Swale"]["costs"]["one"]
    scan = by_label["scan of the dumps"]["costs"]["one"]
    bandwidth = scan["bytes"] / scan["cold_s"]
    rows = [
        ("Swale", lambda f: one["cold_s"],
         (f"{one['reads'] / frames:.1f} reads, {size(one['bytes'] / frames)} a frame, opening included:",
          "the same for any N, if ranks grow with N")),
        ("scan of the dumps", lambda f: f * scan["bytes"] / bandwidth,
         (f"{DUMP_RECORD_BYTES} bytes x N x {frames} frames at the {size(bandwidth)}/s of this scan",)),
    ]  # fmt: skip
    parquet = by_label.get("DuckDB, sorted Parquet")
    if parquet:
        cold_s, footer = parquet["costs"]["one"]["cold_s"], parquet["footer_bytes"]
        ready_s = parquet["convert_s"] + parquet["sort_s"]
        rows += [
            ("DuckDB: a query", lambda f: cold_s + (f - 1) * footer / bandwidth,
             ("a row group or two, and the footer of", f"{footer / parquet['row_groups']:.0f} bytes per "
              f"{parquet['row_group_rows']:,} rows;",
              "parsing it not counted: at least this")),
            ("DuckDB: converting", lambda f: f * ready_s,
             ("once before the first query, linear in N;", "sorting is a little more: at least this")),
        ]  # fmt: skip
    return rows, bandwidth


def print_growth(run, rows):
    print(f"\n  One trajectory, cold, with more atoms. Measured for N = {run['atoms']:,}; the rest is "
          f"arithmetic, not measured.")
    print(f"  {'':22}{'N':>10}{'10 N':>10}{'1000 N':>10}   because it takes")
    for label, at, why in rows:
        times = "".join(f"{duration(at(factor)):>10}" for factor in (1, 10, 1000))
        print(f"  {label:22}{times}   {why[0]}")
        for line in why[1:]:
            print(f"  {'':52}   {line}")


def print_verdict(run, costs, bandwidth):
    by_label = dict(costs)
    scan, swale = by_label["scan of the dumps"]["costs"]["one"], by_label["Swale"]["costs"]["one"]
    extra_s = run["append_s"] + run["epoch_end_s"] - run["dump_s"]
    saved_s = scan["cold_s"] - swale["cold_s"]
    atoms = PATIENCE_S * bandwidth / (DUMP_RECORD_BYTES * run["frames"])
    print()
    if scan["cold_s"] < PATIENCE_S:
        print(f"  For a run this small a scan is good enough: {duration(scan['cold_s'])} cold, "
              f"{duration(scan['warm_s'])} warm, "
              "however many atoms one asks for.")  # fmt: skip
    if saved_s <= 0:
        print("  Here it is even the faster of the two.")
    elif extra_s > 0:
        print(f"  Swale's {duration(extra_s)} of extra writing are repaid by {math.ceil(extra_s / saved_s)} "
              f"cold questions of one atom.")
    print(f"  The same scan takes {PATIENCE_S} s from about {atoms / 1e6:.1f} million atoms on, and again "
          f"for every question.")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("out", type=pathlib.Path, help="the directory that impact wrote")
    out = parser.parse_args().out
    run, costs = load(out, "run.json"), methods(out)
    swale_bytes = sum(path.stat().st_size for path in (out / "atoms.swale").rglob("*") if path.is_file())
    print_costs(run, costs, swale_bytes)
    rows, bandwidth = growth(run, costs)
    print_growth(run, rows)
    print_verdict(run, costs, bandwidth)


if __name__ == "__main__":
    main()
