"""The results page of `make sim-shuffle`: past-one-node.md, .csv and .png."""
import pathlib
import sys

import pages

MACHINE_NAMES = {"second": "second machine", "trinity": "Trinity"}
PRINTED_QUERY_MS = {"base": 190, "indirect": 250, "lossy": 440}
REHEARSAL = {"tiny": ("**A rehearsal**: the profile `tiny` shows that everything runs. Its figures are no "
                      "results.", "")}


def printed_query_ms(method):
    return PRINTED_QUERY_MS[method]


def per_cent(value):
    return f"{100 * value:.1f} %"


def markdown(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(pages.show(cell) for cell in row) + " |" for row in rows])


def printed(values):
    rows = [(v["place"], v["what"],
             f"{'at most ' if v['at_most'] else ''}{v['printed']:g} {v['unit']}".strip(),
             f"{v['modelled']:.4g} {v['unit']}".strip()) for v in values]
    return markdown(("paper", "what", "printed", "the paper's method on the model"), rows)


def formats(rows):
    one = {row["method"]: row for row in rows}
    lossy = one["lossy"]

    def line(name, ours):
        return (name, per_cent(ours["papers_slowdown"]), per_cent(ours["slowdown"]),
                f"{ours['stored_bytes']:.2f}", f"{ours['wire_bytes']:.2f}", f"{ours['papers_query_ms']} ms",
                f"{ours['query_ms']:.0f} ms", f"{ours['query_reads']:.0f}")

    table = markdown(("format", "slowdown: the paper's (not printed; its ratios are)", "ours",
                      "bytes a record stored (64 of data)", "on the wire", "query: printed", "ours",
                      "reads that wait"), [line(name, one[name]) for name in one])
    ratios = [("base over lossy", "3.3", f"{one['base']['papers_slowdown'] / lossy['papers_slowdown']:.2f}",
               f"{one['base']['slowdown'] / lossy['slowdown']:.2f}",
               f"{one['base']['papers_slowdown'] / lossy['slowdown']:.2f}"),
              ("indirect over lossy", "2.8",
               f"{one['indirect']['papers_slowdown'] / lossy['papers_slowdown']:.2f}",
               f"{one['indirect']['slowdown'] / lossy['slowdown']:.2f}",
               f"{one['indirect']['papers_slowdown'] / lossy['slowdown']:.2f}")]
    return table + "\n\n" + markdown(
        ("write slowdown", "printed", "the paper's method on the model", "ours",
         "the paper's over our lossy"), ratios)


def simulated(rows):
    lines = [(MACHINE_NAMES[r["machine"]], f"{r['nodes']} x {r['ranks'] // r['nodes']}", r["method"],
              f"{r['total_s'] * 1e3:.1f} ms", f"{r['model_s'] * 1e3:.1f} ms",
              f"{100 * r['model_error']:+.1f} %", per_cent(r["slowdown"]),
              f"{r['stored_bytes_per_record']:.1f}", f"{r['wire_bytes_per_record']:.1f}", r["remote_frames"],
              r["local_frames"], f"{r['took_s']:.1f} s", f"{r['memory_peak_bytes'] / 2**30:.1f} GiB")
             for r in rows]
    return markdown(("machine", "nodes x ranks", "format", "simulated", "model", "error", "slowdown",
                     "stored", "wire", "remote frames", "local frames", "took", "memory"), lines)


def scaling(rows):
    printed_at = {131_072: "35 %", 65_536: "20 % (its ranks are not printed)", 32_768: "10 % (medium runs)"}
    ways = ("papers_unshuffled", "papers_direct", "papers", "unshuffled", "base_direct", "base")
    lines = [(row["ranks"], f"{row['plain_s']:.0f} s", printed_at.get(row["ranks"], "not printed"),
              *(per_cent(row[f"{name}_slowdown"]) for name in ("papers", "base", "lossy")),
              *(f"{row[f'{name}_s']:.0f} s" for name in ways)) for row in rows if row["ranks"] >= 1024]
    return markdown(("ranks", "plain", "slowdown: printed", "the paper's method", "our base", "our lossy",
                     "I/O time: the paper's, indexing alone", "direct", "three-hop", "ours, indexing alone",
                     "direct", "three-hop"),
                    lines)


def memory(rows):
    lines = [(row["ranks"], *(f"{row[f'{name}_bytes'] / 1e6:,.1f} MB" for name in
                              ("paper_direct", "paper_three_hop", "direct", "three_hop", "three_hop_8mib")),
              "less than 16 MB by three hops" if row["ranks"] == 262_144 else "not printed") for row in rows]
    return markdown(("ranks", "the paper: direct, sends", "three-hop, sends", "ours: direct, the least",
                     "three-hop at 64 MiB a rank", "three-hop at 8 MiB of hops", "printed"), lines)


def buffers(rows):
    lines = [(row["frame_bytes"], "about 30 %" if row["frame_bytes"] == 1024 else "not printed (higher)",
              per_cent(row["papers_method"]), per_cent(row["simulated_share"]), per_cent(row["model_share"]))
             for row in rows]
    return markdown(("bytes of a frame", "printed", "the paper's method", "the shipped code, simulated",
                     "the model of that run"), lines)


def processor(rows):
    lines = [(row["way"], "not printed", row["deltafs_ns"], per_cent(row["deltafs_share"]), row["ns"],
              per_cent(row["share"]))
             for row in rows]
    return markdown(("way", "printed", "DeltaFS, ns a record (measured here)", "of a core",
                     "ours, ns a record", "of a core"), lines)


def queries(rows):
    lines = [(row["ranks"], f"{row['particles'] / 1e6:,.0f} M", f"{row['scan_s']:.1f} s",
              {32_768: "1,740"}.get(row["ranks"], "not printed"), row["papers_speedup"], row["speedup"])
             for row in rows]
    return markdown(("ranks", "particles", "scan by all cores", "printed speed-up", "the paper's method",
                     "ours"), lines)


def most_ranks(rows):
    return max(row["ranks"] for row in rows)


def text(result):
    figures, profile = result["figures"], result["profile"]
    worst = max(figures["simulated"], key=lambda row: abs(row["model_error"]))
    return "\n".join([
        "# Past one node", "",
        f"Made by `make sim-shuffle` (profile {profile}; `BENCH=quick` for the quick one): into build/bench "
        f"first, then here. How the"
        " machines are modelled, where each constant comes from, and what was predicted: "
        "[design](../design/shuffle-model.md). The"
        " constants were committed before a method of ours was compared on the model; one was corrected by "
        "3 % since, because the paper's own"
        " number was missed. Everything is in virtual time, and the same on every"
        " machine, but the processor time of Fig. 5b. Numbers: [past-one-node.csv](past-one-node.csv).", "",
        *REHEARSAL.get(profile, ()),
        "## What is simulated, and what is modelled", "",
        f"The shipped router, batching, epoch and table code runs to {most_ranks(figures['simulated']):,} "
        f"simulated ranks: one"
        " `WriterCore` with all it has for each, on one clock. Frames have 1 KiB there, and take a "
        "thirty-second of the time; an epoch has"
        " 4,096 records a rank. What a record takes at full size is counted with the shipped code as well, "
        "one rank with 7.8 M"
        " records and the memory plan of the job. From there to 262,144 ranks it is arithmetic.", "",
        f"The model against each simulated run: the largest error is {100 * worst['model_error']:+.1f} %"
        f" ({MACHINE_NAMES[worst['machine']]}, {worst['ranks']:,} ranks, {worst['method']}).", "",
        simulated(figures["simulated"]), "",
        "A run's slowdown is larger than that of a whole epoch of the paper: the pages, the footer and the "
        "last memtable of a rank are"
        " the same, and its records are a two-thousandth.", "",
        "## What is judged", "", *pages.judged(result["results"]), "",
        "## The papers' method on the model", "", printed(figures["printed"]), "",
        "![the papers' figures](past-one-node.png)", "",
        "## 2020 Fig. 13: three formats on 64 nodes of 64 ranks, 32 billion keys", "",
        formats(figures["formats"]), "", "A cold query of ours reads little, and waits more often: where a "
        "small read takes 60 ms on a busy file system, six of them"
        " are what lossy takes. The paper's table is read as a whole, in one read.", "",
        "## 2018 Fig. 5a: frames of different sizes", "",
        "Directly, on Trinity: the part of the storage's bandwidth that is reached. The paper's method at "
        "32 nodes of 32 ranks; ours is"
        " simulated on 2 nodes, where half of the frames stay within a node and cost a tenth.", "",
        buffers(figures["fig5a"]), "", "## 2018 Fig. 5b: processor time", "",
        "Of a rank while its share of the storage is full: 108,000 particles a second. The paper prints no "
        "values. DeltaFS's public"
        " sources of 2024 and ours, on this project's machine of two cores (not Trinity's).", "",
        processor(figures["fig5b"]), "", "## 2018 Fig. 5c, 2020 Fig. 15: memory for frames", "",
        "The papers count send buffers of 32 KB; ours are sends and receives, from the plan that the "
        "shipped code allocates by. At 64"
        " MiB a rank the hops take a quarter of it, whatever the job's size: they make windows and frames "
        "of it.", "",
        memory(figures["memory"]), "",
        "## 2018 Figs. 5d and 12b, 2020 Fig. 17b: I/O time and slowdown on Trinity", "",
        "16 M particles of 48 bytes a rank and timestep. The paper's runs that are too small for their "
        "storage are not modelled; the peak"
        " at 64 ranks is that of 2 nodes, where one rank of each forwards for all others. Ours has the "
        "paper's `storage_use` charged to it."
        " Lossy stores a table of 21 bits a key beside particles of 48 bytes, so that base is the better "
        "choice until the network decides.",
        "",
        scaling(figures["scaling"]), "",
        "## 2018 Fig. 12a, 2020 Fig. 17a: a trajectory against the scan", "",
        f"Five timesteps. The paper's query takes about 300 ms (2020) and within 500 ms (2018); ours "
        f"{figures['queries'][0]['query_ms']:.0f}"
        " ms. The scan has the file system's bandwidth at every size, so small jobs' scans are too fast "
        "here.", "",
        queries(figures["queries"]), ""])


def write(result, folder):
    folder = pathlib.Path(folder)
    (folder / "past-one-node.md").write_text(text(result), encoding="utf-8")
    csv_path = folder / "past-one-node.csv"
    # What differs from run to run stays out of the file.
    kept = {name: [{field: int(value) if isinstance(value, bool) else value for field, value in row.items()
                    if field not in ("took_s", "memory_peak_bytes")} for row in rows] for name,
            rows in result["figures"].items()}
    pages.write_csv(kept, csv_path)
    try:
        import sim_shuffle_plot
    except ImportError:
        print("no matplotlib: no plot (Debian: python3-matplotlib)", file=sys.stderr)
        return
    sim_shuffle_plot.draw(pages.read_csv(csv_path), folder / "past-one-node.png")
