"""The page of `make bench-imd-ablation`, docs/results/README.md, from the CSVs beside it alone."""
import ablation_parts
from ablation_claims import CLAIMS
from ablation_table import Refused, Table

OTHERS_MAX = 0.1  # of the cores' time: more than the kernel's write-back and completions take

# part: title, what is plotted
PAGE = {
    "delivery": (
        "Delivery queue",
        "4 ranks on one node, 8 MiB each. *None*: the thread that serves the network waits until the "
        "memtables have room. 100, one 25: rank 0's storage is four times slower."),
    "ways": (
        "Ways of indexing",
        "One rank. *In turns*: one output buffer, so that a way sorts or writes."),
    "reads": (
        "Filters and parallel reads",
        "2 ranks with 8 MiB each; the reader is open and has read nothing of the partition; LevelDB's has no "
        "table open. Files' pages are dropped before every query."),
    "leveldb": (
        "LevelDB behind the same shuffle",
        "2 ranks with 8 MiB each, 3 epochs, Bloom filters of 10 bits. LevelDB has no log and no compression; "
        "without compaction every memtable is a table that stays."),
    "size": (
        "Query against data size",
        "One rank, 5 epochs; the scan reads plain appends with all cores."),
    "frame": (
        "Output size and frame time against scale",
        "File-per-process and directory through the same device of 25 MB/s (orange sizes: 100 MB/s) a rank, "
        "generating and fsync in both."),
    "overlap": (
        "Overlap of flushing with computing",
        "2 ranks of 64 MiB on 2 cores, which compute between frames."),
    "compression": (
        "Compression",
        "One rank, 2 epochs. Values of 40 bytes: five random words, five doubles or ten floats from 0 to "
        "100, or a particle (position and velocity as floats, a type, an image). RocksDB: tables by "
        "SstFileWriter, blocks of its default 4 KiB; its cache holds all of them unpacked."),
}  # fmt: skip

# What rows of older definitions (ablation_parts.DEFINITIONS) mean by the same names.
OLDER = {
    "leveldb": "LevelDB's I/O time has its opening and the settling of its tables in it; Swale's files and "
               "objects are its logs, not counted, and its amplification is that of the whole directory",
    "frame": "plain files in memory were written as those on storage are, not by write() into memory that "
             "was touched before",
}  # fmt: skip


def is_older(machine, part):
    return any(row["part"] == part and row.get("definitions", 1) != ablation_parts.DEFINITIONS
               for row in machine.rows)


def page(parts, machine):
    yield "# Ablations: the papers' experiments on one machine"
    yield ""
    yield ("Made by `make bench-imd-ablation` (`docs/design/benchmarks.md` tells what is measured and what "
           "was predicted); this page and the plots are made from the CSVs beside it, by `bench/ablation.py "
           "--plots`. 2017 is deltafs-imd-2017, 2018 deltafs-scaling-2018, 2020 deltafs-streaming-2020. The "
           "papers' values are those printed in their text. They ran on up to 4,096 nodes of Trinity with "
           "burst buffers and Lustre: it is shapes that can agree, not numbers.")
    yield ""
    yield ("| part | measured (UTC) | profile | machine | file system "
           "| other processes and the kernel's own threads |")
    yield "|---|---|---|---|---|---|"
    for row in machine.rows:
        yield (f"| {row['part']} | {row['date']} | {row['profile']}, {row['took_s']} s "
               f"| {row['cores']} cores, {row['cpu']}, Linux {row['kernel']} | {row['file_system']} "
               f"| {100 * row['others']:.1f} % of the cores' time |")
    loaded = [row["part"] for row in machine.rows if row["others"] > OTHERS_MAX]
    if loaded:
        yield ""
        yield (f"**Other programs ran beside {', '.join(loaded)}**: of these parts, bytes, reads, objects "
               "and tables count; times and shares of time are noise until they are measured again on a "
               "quiet machine.")
    for part, table in parts.items():
        title, about = PAGE[part]
        yield ""
        yield f"## {title}"
        yield ""
        yield f"![{title}]({part}.png)"
        yield ""
        yield f"{about} Numbers: [{part}.csv]({part}.csv)."
        if part in OLDER and is_older(machine, part):
            yield ""
            yield f"**Measured by older definitions**: {OLDER[part]}."
        yield ""
        yield "| paper | says | here | shape | why |"
        yield "|---|---|---|---|---|"
        for claim in CLAIMS[part](table):
            verdict = "agrees" if claim.agrees else "**differs**"
            yield f"| {claim.place} | {claim.paper} | {claim.ours} | {verdict} | {claim.why} |"


def tables(results):
    """Of all parts that have a CSV."""
    found = {part: Table(results / f"{part}.csv") for part in PAGE if (results / f"{part}.csv").exists()}
    if not found:
        raise Refused(f"{results}: no CSV of any part")
    return found


def text(results):
    """The page of the CSVs in a folder; refuses what lacks a case or a column."""
    return "\n".join(page(tables(results), Table(results / "machine.csv"))) + "\n"
