#!/usr/bin/env python3
"""optimize_page.py JSON FOLDER: the results page of `make bench-optimize`: optimize.md, .csv and, with
matplotlib, .png in FOLDER, from the file that it wrote.
"""
import json
import pathlib
import sys

import pages

RIVALS = ("rocksdb", "leveldb")
# What is drawn and tabled: field, where its lines are, what it is called.
SERIES = (
    ("before", "Swale, as written"), ("after", "Swale, optimised"), ("rocksdb", "RocksDB, compacted"),
    ("leveldb", "LevelDB"),
)
NAMES = dict(SERIES)


def quickest(line, measure):
    """The median of a rival's quickest way of asking: a scan, gets, or gets by a thread each."""
    return min(way[measure]["p50"] for way in line.values() if isinstance(way, dict) and measure in way)


def axis(result):
    """[{"epochs": ..., "cold_before": us, ...}]: a row for each place of the axis, with what was measured."""
    lines = {entry["name"]: entry["line"] for entry in result["lines"]}
    rows = []
    for epochs in result["parameters"]["axis_epochs"]:
        row = {"epochs": epochs}
        for own in ("before", "after"):
            row[f"cold_{own}"] = lines[f"axis.{epochs}.{own}.cached"]["us"]["p50"]
            row[f"warm_{own}"] = lines[f"axis.{epochs}.{own}.again"]["us"]["p50"]
            row[f"reads_{own}"] = lines[f"axis.{epochs}.{own}.cached"]["reads"]["p50"]
        for rival in RIVALS:
            if query := lines.get(f"axis.{epochs}.{rival}.query"):
                row[f"cold_{rival}"] = quickest(query, "cold_us")
                row[f"warm_{rival}"] = quickest(query, "warm_us")
        row["pass_s"] = lines[f"axis.{epochs}.optimize"]["wall_s"]
        for kind in ("cold", "warm"):
            saved = row[f"{kind}_before"] - row[f"{kind}_after"]
            if saved > 0:
                row[f"pays_{kind}"] = row["pass_s"] * 1e6 / saved
        rows.append(row)
    return rows


def axis_table(rows, kind):
    present = [(f"{kind}_{field}", name) for field, name in SERIES if f"{kind}_{field}" in rows[0]]
    yield "| epochs | " + " | ".join(name for _, name in present) + " |"
    yield "|---|" + "---|" * len(present)
    for row in rows:
        yield f"| {row['epochs']} | " + " | ".join(pages.show(row[field]) for field, _ in present) + " |"


def pays_table(rows):
    """After how many trajectories, of different keys, a pass has paid."""
    yield "| epochs | the pass, s | it pays from so many cold | from so many warm |"
    yield "|---|---|---|---|"
    for row in rows:
        counts = [pages.show(row[field]) if field in row else "never" for field in ("pays_cold", "pays_warm")]
        yield f"| {row['epochs']} | {pages.show(row['pass_s'])} | {counts[0]} | {counts[1]} |"


def lost_to(rows):
    """Where a rival is quicker than the optimised directory: it is said by name."""
    for kind in ("cold", "warm"):
        for rival in RIVALS:
            places = [f"{row['epochs']}" for row in rows
                      if row.get(f"{kind}_{rival}", float("inf")) < row[f"{kind}_after"]]
            if places:
                yield f"**{NAMES[rival]} is quicker {kind} at {', '.join(places)} epochs.**"


def judged(results):
    """As pages.judged, with what was not measured."""
    measured = {name: entry for name, entry in results.items() if entry["value"] is not None}
    yield from pages.judged(measured)
    for name in sorted(results.keys() - measured.keys()):
        yield f"| `{name}` | not measured | | | | |"


def text(result):
    about, rows = result["machine"], axis(result)
    records = result["parameters"]["axis_records"]
    lines = [
        "# Trajectories of 1 to 1,000 epochs", "",
        f"Made by `make bench-optimize`, profile {result['profile']}, {about['date'][:10]}: {about['cores']} "
        f"cores, {about['cpu']}, Linux {about['kernel']}, {about['file_system']}. "
        "[What was expected](../design/clusters.md#arithmetic). Numbers: [optimize.csv](optimize.csv).", "",
        "Microseconds of a trajectory, the median. Keys of 8 bytes, values of 40; "
        f"{records:,} records at each place of the axis: more epochs, fewer keys. Each store is asked in "
        "its quickest way: a scan, gets, or gets by a thread each (up to 16 epochs).", "",
        "![trajectories by epochs](optimize.png)", "",
        "## Cold: nothing resident but indexes", "",
        "Swale has its slices in `imd.cache` (`swale_reader_warm`), the rivals have indexes and filters of "
        "all tables in memory. The files' pages are dropped before each query.", "",
        *axis_table(rows, "cold"), "",
        "## Warm: keys that were asked before", "",
        "Each store is asked for the same keys twice. Swale's cache has 32 MiB, the rivals' 4 GiB.", "",
        *axis_table(rows, "warm"), "",
        *lost_to(rows), "",
        "## When a pass pays", "",
        "The time of the pass over what it saves of one trajectory.", "",
        *pays_table(rows), "",
        "## Judged", "",
        *judged(result["results"]),
    ]
    return "\n".join(lines) + "\n"


def write(result, folder):
    folder = pathlib.Path(folder)
    (folder / "optimize.md").write_text(text(result), encoding="utf-8")
    pages.write_csv({"axis": axis(result)}, folder / "optimize.csv")
    try:
        import optimize_plot
    except ImportError:
        print("no matplotlib: no plot (Debian: python3-matplotlib)", file=sys.stderr)
        return
    optimize_plot.draw(pages.read_csv(folder / "optimize.csv")["axis"], folder / "optimize.png")


def main():
    source, folder = sys.argv[1:]
    write(json.loads(pathlib.Path(source).read_text(encoding="utf-8")), folder)


if __name__ == "__main__":
    main()
