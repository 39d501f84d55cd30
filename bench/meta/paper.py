"""The experiments of the metakv paper (Figs. 3, 8 to 12) on our programs: what is run, and the page and plots
in docs/results.

One server of the paper's 16 is one process here: its share of 1 M to 16 M segments is 64 K to 1 M. What many
servers do is modelled (sim/meta_model.h); 32 real processes are beside the model.
"""
import os
import pathlib
import statistics
import sys
import time

import pages
import tables
from pages import judged, read_csv, show, write_csv

RIVALS = ("leveldb-4m", "leveldb-mdhim")  # the paper's MD-LevelDB is behind MDHIM, which gets before it puts
NAMES = {"swale": "Swale", "leveldb-4m": "LevelDB", "leveldb-64m": "LevelDB, buffer of 64 MiB",
         "leveldb-mdhim": "LevelDB behind MDHIM's get-before-put", "mdhim": "LevelDB behind MDHIM's "
         "get-before-put",
         "rocksdb": "RocksDB", "sqlite": "SQLite", "memory-map": "map in memory (no log)",
         "swale-no-runs": "Swale, runs off",
         "swale-no-clusters": "Swale, clusters off"}
FIG8 = ("swale", "swale-no-runs", "leveldb-4m", "leveldb-mdhim", "rocksdb", "sqlite")
SHAPE_STORES = ("swale", "leveldb-64m")
ENTRY_BYTES = 44  # of a key and its value as the rivals get them
BTIO_CLASSES = {"C": 200_000, "D": 2_000_000}  # E, 20.8 M, is among the judged figures
CODECS = {"block": "Swale's", "lz77": "LZ77 of differences, as the paper", "dod": "second differences",
          "lz4": "differences, LZ4"}
RINGS = ("plain", "direct", "ring")
SERVERS = 16  # of the paper's Fig. 3 and 9
SCALING = ["servers", "clients", "entries", "mdhim_put_ms", "swale_put_ms", "mdhim_get_ms", "swale_get_ms"]
PRINTED = {  # what the paper prints: figure, measure, average and best over MDHIM
    "fig9": {"put": 1.83, "get": 3.17}, "fig10": {"put": 2.66, "get": 5.22},
    "fig11": {"C": (1.1, 1.7), "D": (1.9, 3.75), "E": (2.5, 6.29)}, "fig12": 5.7,
}


def data_times(path, total_bytes):
    """Seconds for writing (with one fdatasync) and reading so many bytes in 8 MiB calls, by a process with
    its own log.
    """
    piece = bytes(8 << 20)
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        began = time.monotonic()
        for at in range(0, total_bytes, len(piece)):
            os.pwrite(file, piece, at)
        os.fdatasync(file)
        write_s = time.monotonic() - began
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        began = time.monotonic()
        for at in range(0, total_bytes, len(piece)):
            os.pread(file, len(piece), at)
        return {"bytes": total_bytes, "write_s": write_s, "read_s": time.monotonic() - began}
    finally:
        os.close(file)
        os.unlink(path)


def shapes(parameters):
    """(pattern, clients, entries) beside those of the other figures: more streams, more entries, each client
    its own part.
    """
    for pattern in ("strided", "random"):
        yield pattern, 1024, parameters["streams"]
        yield pattern, 16, parameters["largest"]
    yield "segmented", 16, parameters["streams"]


def shape_name(pattern, clients, entries):
    return f"shape.{pattern}-{clients}-{entries}"


def measure(bench):
    """Runs what the judged figures do not need; answers what figures() reads beside them."""
    p = bench.p
    for entries in p["curve"]:
        for store in ("swale", *RIVALS):
            for pattern in ("strided", "tile"):
                bench.curve(f"{pattern}.{entries}", store, pattern, 16, entries)
    for store in FIG8:
        for pattern in ("strided", "random"):
            bench.curve("fig8." + pattern, store, pattern, 16, p["fig8"])
    for shape in shapes(p):
        for store in SHAPE_STORES:
            bench.curve(shape_name(*shape), store, *shape)
    for name, entries in BTIO_CLASSES.items():
        for store in ("swale", *RIVALS):
            bench.curve("btio." + name, store, "btio", 400 if entries >= 1_000_000 else 100,
                        min(entries, p["btio"]))
    for pattern in ("strided", "random"):
        bench.run(f"buffer.{pattern}", "meta/bench_meta_index", mode="buffer", store="-", path="-",
                  pattern=pattern, entries=1 << 18)
    bench.run("clusters", "meta/bench_meta_index", mode="clusters", store="-", path="-", pattern="strided",
              entries=1 << 16)
    bench.run("detect", "bench_meta_service", part="detect")
    for ranks in p["storm_ranks"]:
        for ring in RINGS:
            bench.run(f"storm.{ring}.{ranks}", "bench_meta_service", part="storm", ranks=ranks, ring=ring,
                      dir=bench.scratch / "storm")
    size = p["data_bytes"]
    times = data_times(bench.scratch / "data", size)
    bench.lines.append({"round": bench.round, "name": "data", "took_s": 0, "line": times})


class Found:
    def __init__(self, lines):
        self.by_name = {}
        for entry in lines:
            self.by_name.setdefault(entry["name"], []).append(entry["line"])

    def line(self, name):
        return self.by_name[name][-1]

    def cost(self, name):
        """Wall nanoseconds an operation, the median over the rounds; None if it was not measured. Of puts
        until the last one is acknowledged, as the paper's clients wait: what is compacted afterwards counts
        where it makes them wait."""
        if name not in self.by_name:
            return None
        return statistics.median(line.get("before_drain", line)["wall_ns"] for line in self.by_name[name])


def figures(lines, parameters):
    """{figure: rows}, one dictionary a row."""
    found = Found(lines)
    data, rows = found.line("data"), {}
    write_ns = data["write_s"] / data["bytes"] * 1e9  # a byte
    read_ns = data["read_s"] / data["bytes"] * 1e9
    rows["fig3"], rows["fig9"], rows["fig10"] = [], [], []
    largest = max(parameters["curve"])
    for entries in parameters["curve"]:
        # the file's size stays: 1 KiB at the largest count, as the paper
        segment = (1 << 10) * largest // entries
        for store in ("swale", *RIVALS):
            put, get = (found.cost(f"{what}.{store}.strided.{entries}") for what in ("load", "warm"))
            rows["fig3"].append({
                "segments": entries * SERVERS, "store": store, "segment_bytes": segment,
                "put_share_of_write": put / (put + segment * write_ns),
                "get_share_of_read": get / (get + segment * read_ns)})
            for figure, pattern in (("fig9", "strided"), ("fig10", "tile")):
                rows[figure].append({"segments": entries * SERVERS, "store": store, **{
                    f"{name}_ms": found.cost(f"{what}.{store}.{pattern}.{entries}") * entries / 1e6
                    for what, name in (("load", "put"), ("warm", "get"))}})
    rows["fig8"] = [{"store": store, "pattern": pattern, **{
        f"{name}_per_s": 1e9 / found.cost(f"{what}.{store}.fig8.{pattern}") for what,
        name in (("load", "put"), ("warm", "get"))}}
        for store in FIG8 for pattern in ("strided", "random")]
    rows["written"] = [written_row(found, store, "strided", f"strided.{entries}", entries)
                       for entries in parameters["curve"] for store in ("swale", *RIVALS)]
    rows["written"] += [written_row(found, store, "random", "fig8.random", parameters["fig8"])
                        for store in FIG8]
    rows["shapes"] = [{"pattern": shape[0], "clients": shape[1], "entries": shape[2], "store": store, **{
        f"{name}_ns": found.cost(f"{what}.{store}.{shape_name(*shape)}") for what,
        name in (("load", "put"), ("warm", "get"))}}
        for shape in shapes(parameters) for store in SHAPE_STORES]
    rows["fig11"] = []
    for name in (*BTIO_CLASSES, "E"):
        for store in ("swale", *RIVALS):
            costs = {what: found.cost(f"{what}.{store}." + (f"btio.{name}" if name != "E" else "btio_e"))
                     for what in ("load", "warm")}
            if None not in costs.values():
                rows["fig11"].append({"class": name, "store": store, "put_ns": costs["load"],
                                      "get_ns": costs["warm"]})
    model = found.line("model")
    rows["fig12"] = model["fig12_us"]
    scaling = found.line("scaling")
    rows["scaling_costs"] = scaling["costs"]
    rows["scaling_strong"], rows["scaling_weak"] = scaling["fig9_strong"], scaling["fig10_weak"]
    rows["storms"] = model["storm_scaling_us"]
    rows["storm_processes"] = [{"method": ring, "ranks": ranks,
                                **found.line(f"storm.{ring}.{ranks}")["slowest_us"]}
                               for ranks in parameters["storm_ranks"] for ring in RINGS]
    rows["codecs"] = [{"pattern": pattern, "codec": name,
                       **{column: found.line(f"buffer.{pattern}")[f"{codec}_{column}"]
                          for column in ("bytes_per_entry", "put_ns", "get_ns")}}
                      for pattern in ("strided", "random") for codec, name in CODECS.items()]
    rows["cluster_methods"] = found.line("clusters")["rows"]
    rows["cluster_reads"] = [{"store": store, **cluster_row(found.line(f"cold.{store}.random"))}
                             for store in ("swale", "swale-no-clusters")
                             if f"cold.{store}.random" in found.by_name]
    rows["whole_buffer"] = [{"pattern": pattern,
                             **{key: value for key, value in found.line(f"buffer.{pattern}").items()
                                if isinstance(value, (int, float))}} for pattern in ("strided", "random")]
    return rows


def cluster_row(line):
    """Random gets of a batch, nothing in memory."""
    gets, about = line["operations"], line["about"]
    return {"gets": gets, "reads_per_get": about["reads"] / gets, "bytes_per_get": about["read_bytes"] / gets,
            "blocks_wanted": about["blocks_wanted"], "blocks_read": about["blocks_read"],
            "get_wall_ns": line["wall_ns"]}


def written_row(found, store, pattern, name, entries):
    """What a server has written to its device for its puts when nothing is left to do: log, tables, merges.
    """
    name = f"load.{store}.{name}"
    each = statistics.median(line["written_bytes_per_entry"] for line in found.by_name[name])
    return {"pattern": pattern, "segments": entries * SERVERS, "store": store,
            "written_bytes_per_segment": each,
            "write_amplification": each / ENTRY_BYTES, "overlap": found.line(name)["overlap"]}


def over(rows, rival, columns, by):
    """[(x, {column: rival's time over ours})]"""
    ours = {row[by]: row for row in rows if row["store"] == "swale"}
    return [(row[by], {column: row[column] / ours[row[by]][column] for column in columns})
            for row in rows if row["store"] == rival and row[by] in ours]


def fewest_bytes(rows):
    best = {}
    for row in rows:
        if row["pattern"] not in best or row["bytes_per_entry"] < best[row["pattern"]]["bytes_per_entry"]:
            best[row["pattern"]] = row
    return "; ".join(f"{pattern}, {row['codec']}" for pattern, row in best.items())


def ring_against_plain(rows):
    """In words: with how many real ranks the ring was faster than plain."""
    p50 = {(row["method"], row["ranks"]): row["p50"] for row in rows}
    measured = sorted({row["ranks"] for row in rows})
    won = [ranks for ranks in measured if p50["ring", ranks] < p50["plain", ranks]]
    sizes = ", ".join(str(ranks) for ranks in measured)
    if not won:
        return (f"With {sizes} of them plain was faster than the ring: where the ring begins to win is "
                f"known from "
                "the model alone.")
    return f"Of {sizes} of them the ring was faster than plain with {', '.join(str(ranks) for ranks in won)}."


def mean(values):
    return statistics.fmean(values)


def table(rows, columns=None):
    return pages.table(rows, columns, NAMES)


def comparison(rows):
    """The paper's numbers beside ours over the same rival."""
    lines = ["| figure | what | the paper over MDHIM | Swale over LevelDB behind MDHIM | Swale over LevelDB "
             "|", "|---|---|---|---|---|"]
    for figure, what in (("fig9", "IOR, strided"), ("fig10", "MPI-Tile-IO")):
        for name in ("put", "get"):
            ratios = [mean([r[f"{name}_ms"] for _, r in over(rows[figure], rival, (f"{name}_ms",),
                                                             "segments")])
                      for rival in RIVALS[::-1]]
            lines.append(f"| {figure[3:]} | {what}, {name}, average | {PRINTED[figure][name]} | "
                         f"{show(ratios[0])} | "
                         f"{show(ratios[1])} |")
    for name, printed in PRINTED["fig11"].items():
        for i, column in enumerate(("put_ns", "get_ns")):
            cells = []
            for rival in RIVALS[::-1]:
                here = dict(over(rows["fig11"], rival, (column,), "class")).get(name)
                cells.append("–" if here is None else show(here[column]))
            lines.append(f"| 11 | BTIO {name}, {column[:3]} | {printed[i]} | {cells[0]} | {cells[1]} |")
    one = rows["fig12"][0]
    lines.append(f"| 12 | 1,024 clients, 64 servers: ring over plain (model) | {PRINTED['fig12']} | "
                 f"{show(one['paper_plain'] / one['ring'])} (the paper's ring "
                 f"{show(one['paper_plain'] / one['paper_ring'])}) | |")
    return "\n".join(lines)


REHEARSAL = {"tiny": ("**A rehearsal**: the profile `tiny` shows that everything runs. Its figures are no "
                      "results, and a verdict on"
                      " so few entries says nothing.", "")}


def page(result):
    rows, profile = result["figures"], result["profile"]
    whole = rows["whole_buffer"]
    return "\n".join([
        "# The metadata store", "",
        f"Made by `make bench-meta` (profile {profile}, load average {result['load_average'][0]:.1f} at the "
        f"start; `BENCH=quick`"
        " for the quick one). [Design](../design/metadata-store.md), [benchmarks](../design/benchmarks.md). "
        "One process stands for one"
        " of the paper's 16 servers, and has a sixteenth of its segments. Times of figures 3 and 8 to 11 "
        "are wall times as the paper"
        " takes them: of puts until the last one is acknowledged, one fdatasync per 64 K puts on both "
        "sides; compactions after that"
        " count in the judged figures below, which are CPU of all threads.", "",
        *REHEARSAL.get(profile, ()),
        "## The paper's figures", "", comparison(rows), "",
        "![the paper's figures](metadata-store.png)", "",
        "Fig. 3: the share of the index in the time of writing and reading, the bytes of the segments "
        "included. The file's size"
        " stays, so that segments become smaller as they become more, as in the paper.", "",
        table(rows["fig3"]), "",
        "II-C, the reason: what a server writes to its device for each put (log, tables and what it "
        "merges), until nothing is left to"
        f" do; over the {ENTRY_BYTES} bytes of key and value; and in how many tables (those of level 0, and "
        f"one a further"
        " level) a key may be when the last put is acknowledged; of ours, buffers and layers of runs count, "
        "too.", "",
        table(rows["written"]), "", "Fig. 8: operations a second of one server.", "", table(rows["fig8"]), "",
        "Fig. 9 (IOR) and 10 (MPI-Tile-IO): a server's time for its share.", "", table(rows["fig9"]), "",
        table(rows["fig10"]), "", "Fig. 11: BTIO, nanoseconds an operation.", "", table(rows["fig11"]), "",
        "More clients at a time, more entries, and each client in a part of its own: nanoseconds an "
        "operation.", "",
        table(rows["shapes"]), "",
        "Fig. 12, on the model: microseconds until the last of 1,024 clients on 64 nodes has its answer.", "",
        table(rows["fig12"], ["servers_per_node", "servers", "paper_plain", "paper_direct", "paper_ring",
                              "direct", "ring"]), "",
        f"Real processes on this machine, slowest of each round, microseconds. "
        f"{ring_against_plain(rows['storm_processes'])}"
        " `meta.ring=auto` asks the root itself below 64 ranks. Each hop waits for the scheduler of two "
        "cores: the number of messages"
        " validates the model (tests/faults/meta_ranks_test.cc), these times do not.", "",
        table(rows["storm_processes"], ["method", "ranks", "p50", "p99"]), "",
        "## Scaling, on the model", "",
        "Both sides cost what this run measured behind the public calls (strided, batches of 4,096; "
        "medians): CPU nanoseconds of a client"
        " for an entry, and of a server for what travels: an entry of MDHIM, a run of ours. The model adds "
        "messages and wire"
        " (`sim/meta_model.h`).", "",
        table(rows["scaling_costs"]), "",
        "Strong: 64 M segments. Weak: 32,768 segments a client. 16 clients a server.", "",
        table(rows["scaling_strong"], SCALING), "", table(rows["scaling_weak"], SCALING), "",
        "Storms, 16 clients a server, microseconds:", "",
        table(rows["storms"], ["servers", "clients", "paper_plain", "paper_ring", "ring"]), "",
        "## A write buffer compressed as a whole", "",
        "The paper rejects this (III-A), and so do we: a get decodes the whole buffer, and a merge of 16 "
        "buffers holds"
        f" {16 * whole[0]['whole_merge_bytes'] / 2**20:.0f} MiB of decoded entries.", "",
        table(whole, ["pattern", "entries", "block_bytes_per_entry", "whole_bytes_per_entry", "block_put_ns",
                      "whole_put_ns", "block_get_ns", "whole_get_ns"]), "",
        "## Through the public calls", "",
        "CPU nanoseconds of client and server a put and a get, and the server's part; batches of 4,096, "
        "rivals behind the same requests.",
        "", tables.markdown(["pattern", "store", "put", "of it the server", "get", "of it the server"],
                            tables.of_clients(result["lines"])), "",
        "## Techniques, one by one", "",
        "The index alone: CPU / wall nanoseconds an operation, bytes an entry on disk. `no-runs`: every "
        "segment is an entry."
        " `no-clusters`: each block that a get wants is read for itself. `frame`, `zstd`: one codec for all "
        "blocks, in place of the"
        " smaller one.", "",
        tables.markdown(["pattern", "store", "put with drain", "get, warm", "get, cold", "bytes an entry"],
                        tables.of_index(result["lines"])), "",
        "Codecs of a write buffer without runs, each in blocks of 4 KiB: the store's own (each block the "
        "smaller of frame and zstd), and"
        f" those that it does not have. Fewest bytes: {fewest_bytes(rows['codecs'])}.", "",
        table(rows["codecs"]), "",
        "Clusters on and off: random gets in batches, nothing in memory.", "", table(rows["cluster_reads"]),
        "", "Regions for the blocks of a batch: 100 cases of random blocks in a file of 256, locality "
        "factor 80 %.", "",
        table(rows["cluster_methods"], ["method", "cases", "regions", "cases_with_the_fewest",
                                        "blocks_wanted", "blocks_read", "us_per_case"]),
        "", "## The judged figures", "", *judged(result["results"]), ""])


def write(result, folder):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "metadata-store.md").write_text(page(result), encoding="utf-8")
    write_csv(result["figures"], folder / "metadata-store.csv")
    try:
        import paper_plot
    except ImportError:
        print("no matplotlib: no plot (Debian: python3-matplotlib)", file=sys.stderr)
        return
    paper_plot.draw(read_csv(folder / "metadata-store.csv"), folder / "metadata-store.png")
