#!/usr/bin/env python3
"""report.py IMD_JSON [--keep FILE]: the results of `make bench-imd` as Markdown, for README, guide and
docs/design.

--keep writes what the tables need, without single measurements, to a small file: that of the one kept run is
docs/results/imd.json.
"""
import json
import sys

STORE_NAMES = {
    "swale": "**Swale**", "swale-plain-ends": "Swale, each epoch's end waited for",
    "swale-mapped": "Swale, `imd.map=auto`",
    "append": "plain appends, then a scan by all cores", "leveldb-4m": "LevelDB, 4 MiB buffer",
    "leveldb-4m-uncompressed": "LevelDB, 4 MiB buffer, no compression", "leveldb-64m": "LevelDB, 64 MiB "
    "buffer",
    "rocksdb": "RocksDB, bulk load", "rocksdb-uncompressed": "RocksDB, bulk load, no compression",
    "rocksdb-compacted": "RocksDB, bulk load, compacted", "sst": "RocksDB SstFileWriter, sorted by the "
    "caller",
    "sst-uncompressed": "RocksDB SstFileWriter, no compression", "duckdb": "DuckDB, Parquet sorted by key",
}  # fmt: skip


def number(value):
    if value is None:
        return "–"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 1 or abs(value) >= 100 else f"{value:.4g}"


def verdict(entry):
    if entry["met"] is False:
        return "MISSED"
    if entry["must"] is None and entry["aim"] is None:
        return ""
    if entry["aim_met"]:
        return "aim met"
    return "met" if entry["met"] else "aim not met"


def bounds(entry):
    """What must be and what is aimed at."""
    sign = "≤" if entry["less_is_better"] else "≥"
    return [f"{sign} {number(entry[key])}" if entry[key] is not None else "–" for key in ("must", "aim")]


def spread(entry):
    return f"{number(entry['min'])}–{number(entry['max'])}" if entry["value"] is not None else entry.get(
        "note", "")


def raw(entry):
    """As it was measured, and by which factor the figure is less."""
    if "raw" not in entry:
        return ""
    return (f"{number(entry['raw'])} ({number(entry['raw_min'])}–{number(entry['raw_max'])}) at "
            f"{entry['factor']:.2f}")


def text(result):
    """The judged figures for a terminal."""
    rows = [("key", "median", "unit", "spread", "must", "aim", "", "as measured, at the factor")]
    for name, entry in result["results"].items():
        must, aim = bounds(entry)
        rows.append((name, number(entry["value"]), entry["unit"], spread(entry), must, aim, verdict(entry),
                     raw(entry)))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip()
                     for row in rows)


def row(cells):
    return "| " + " | ".join(cells) + " |"


def judged_table(result):
    yield row(["key", "what", "must", "aim", "median (min–max), times normalised",
               "as measured, at the factor", ""])
    yield row(["---"] * 7)
    for name, entry in result["results"].items():
        unit = " " + entry["unit"] if entry["unit"] else ""
        must, aim = bounds(entry)
        yield row([f"`{name}`", entry["what"], must, aim, f"{number(entry['value'])}{unit} "
                   f"({spread(entry)})", raw(entry),
                   verdict(entry)])


def time_text(microseconds):
    if microseconds is None:
        return "–"
    if microseconds >= 1e6:
        return f"{microseconds / 1e6:.2g} s"
    return f"{microseconds / 1e3:.3g} ms" if microseconds >= 1e3 else f"{microseconds:.3g} µs"


def stores_table(result):
    yield row(["", "records", "CPU per record", "wall, 20 M records", "bytes out / in",
               "trajectory cold p50 / p99", "warm p50", "open + query"])
    yield row(["---"] * 8)
    for store, name in STORE_NAMES.items():
        entries = result["stores"].get(store)
        if not entries:
            continue

        def value(key):
            return entries[key]["value"] if key in entries else None

        records, wall, cpu = value("records"), value("wall_s_per_20M"), value("cpu_ns_per_record")
        cold = time_text(value("cold_us_p50"))
        if value("cold_us_p99") is not None:
            cold += " / " + time_text(value("cold_us_p99"))
        opened = value("open_and_query_ms")
        yield row([name, "–" if records is None else f"{records / 1e6:g} M", "–" if cpu is None
                   else f"{number(cpu)} ns", "–" if wall is None else f"{wall:.2f} s",
                   number(value("bytes_ratio")), cold, time_text(value("warm_us_p50")),
                   time_text(None if opened is None else opened * 1e3)])


def markdown(result):
    machine, parameters = result["machine"], result["parameters"]
    yield (f"{machine['cores']} cores ({machine['cpu']}), Linux {machine['kernel']}, "
           f"{machine['file_system']}; "
           f"{parameters['keys'] * parameters['epochs'] / 1e6:g} M records of {parameters['key_bytes']} + "
           f"{parameters['value_bytes']} bytes in {parameters['epochs']} epochs, {parameters['rounds']} "
           f"rounds, profile "
           f"{result['profile']}; load average at the start {machine['load_average'][0]:.1f}. A time is "
           f"judged divided by its "
           "round's factor; factor 1 is the hour in which the bounds were set.")
    yield ""
    yield from judged_table(result)
    yield ""
    yield ("As measured, not normalised. CPU is net of generating; DuckDB's is that of sorting the plain "
           "appends, on top of them. LevelDB and RocksDB: "
           "their default compression (Snappy) unless the row says otherwise, the quickest of a range, gets "
           "one after the other "
           "and gets by a thread each. Cold: tables and directory open, indexes, filters and Swale's footer "
           "in memory.")
    yield ""
    yield from stores_table(result)


def kept(result):
    """Without the programs' lines and single samples."""
    def without_samples(entry):
        return {name: value for name, value in entry.items() if name != "samples"}

    small = {name: value for name, value in result.items() if name != "lines"}
    small["results"] = {name: without_samples(entry) for name, entry in result["results"].items()}
    small["stores"] = {store: {name: without_samples(entry) for name, entry in entries.items()}
                       for store, entries in result["stores"].items()}
    return small


def main():
    if len(sys.argv) not in (2, 4) or (len(sys.argv) == 4 and sys.argv[2] != "--keep"):
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as file:
        result = json.load(file)
    print("\n".join(markdown(result)))
    if len(sys.argv) == 4:
        with open(sys.argv[3], "w", encoding="utf-8") as file:
            file.write(json.dumps(kept(result), indent=1) + "\n")


if __name__ == "__main__":
    main()
