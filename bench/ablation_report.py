"""Plots of `make bench-imd-ablation`, from the CSVs alone, and its page. Needs Debian's matplotlib."""
import math
import pathlib

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter  # noqa: E402

import ablation_page  # noqa: E402
from ablation_claims import FILTER_NAMES  # noqa: E402

INK, FAINT = "#222222", "#7a7a7a"
OURS, RIVAL, RIVAL_2, OFF = "#1b6f8a", "#c0562b", "#e0a458", "#8a8f98"
STYLE = {
    "font.family": "DejaVu Sans", "font.size": 9, "text.color": INK,
    "axes.edgecolor": FAINT, "axes.labelcolor": INK, "axes.titlelocation": "left", "axes.titlesize": 10,
    "axes.spines.top": False, "axes.spines.right": False, "xtick.color": INK, "ytick.color": INK,
    "legend.frameon": False, "legend.fontsize": 8, "lines.marker": "o", "lines.markersize": 4,
}  # fmt: skip
STORES = {"swale": ("Swale", OURS), "leveldb": ("LevelDB + shuffle", RIVAL),
          "leveldb, no compaction": ("LevelDB + shuffle, no compaction", RIVAL_2)}  # fmt: skip


PLAIN = FuncFormatter(lambda value, _: f"{value:g}")


def decades(axis):
    low, high = axis.get_data_interval()
    return math.log10(high / low)


def finish(ax, title, xlabel, ylabel, zero=True):
    ax.set(title=title, xlabel=xlabel, ylabel=ylabel)
    for axis in (ax.xaxis, ax.yaxis):
        if axis.get_scale() == "log":
            axis.set_major_locator(LogLocator(subs=(1,) if decades(axis) > 2.5 else (1, 2, 5)))
            axis.set_major_formatter(PLAIN)
            axis.set_minor_formatter(NullFormatter())
    if zero:
        ax.set_ylim(bottom=0)
    ax.grid(axis="y", color="#e5e5e5", linewidth=0.6)
    ax.set_axisbelow(True)


def paired_bars(ax, labels, series):
    """Bars side by side: series is [(name, colour, values)]. Returns the places of each series' bars."""
    width = 0.8 / len(series)
    places = [[at + (number - (len(series) - 1) / 2) * width for at in range(len(labels))]
              for number in range(len(series))]
    for at, (name, colour, values) in zip(places, series):
        ax.bar(at, values, width * 0.92, label=name, color=colour)
    ax.set_xticks(range(len(labels)), labels)
    return places


def plot_delivery(table, axes):
    cases = list(dict.fromkeys((row["mb_s"], row["first_mb_s"]) for row in table.rows))
    labels = [f"{mb_s}" if mb_s == first else f"{mb_s},\none {first}" for mb_s, first in cases]
    panels = ((axes[0], "progress_waited_share", "The network's thread waits for storage",
               "share of time, %"),
              (axes[1], "share_of_storage", "Throughput", "share of the slowest storage, %"))
    for ax, column, title, ylabel in panels:
        series = [(name, colour, [100 * table.median(column, mb_s=mb_s, first_mb_s=first, delivery=way)
                                  for mb_s, first in cases])
                  for way, name, colour in (("queue", "delivery queue", OURS), ("wait", "none", OFF))]
        paired_bars(ax, labels, series)
        finish(ax, title, "storage of each rank, MB/s", ylabel)
    axes[0].legend()


def plot_ways(table, axes):
    limits = sorted(mb_s for mb_s in table.cases("mb_s") if mb_s)
    labels = [str(mb_s) for mb_s in limits]
    names = (("turns", "1 way, in turns (paper's)", OFF), ("1 way", "1 way, overlapped", OURS),
             ("2 ways", "2 ways", RIVAL_2), ("4 ways", "4 ways", RIVAL))
    paired_bars(axes[0], labels,
                [(name, colour, [100 * table.median("written_mb_s", mb_s=m, ways=way) / m for m in limits])
                 for way, name, colour in names])
    finish(axes[0], "Storage of a given speed", "MB/s", "used, %")
    axes[0].set_ylim(0, 135)
    axes[0].legend(ncols=2, loc="upper center")
    paired_bars(axes[1], [name.replace(", ", ",\n") for _, name, _ in names],
                [("", OURS, [table.median("written_mb_s", mb_s=0, ways=way) for way, _, _ in names])])
    axes[1].tick_params(axis="x", labelsize=7)
    finish(axes[1], "No limit (local disk)", "", "MB/s written")


def plot_reads(table, axes):
    lines = [("swale", kind, 64, FILTER_NAMES.get(kind, kind), "-")
             for kind in table.cases("filters", store="swale")]
    lines.append(("swale", "sketch", 1, "sketch, one read at a time", "--"))
    for kind, name in (("bloom", "LevelDB, no compaction, Bloom"), ("none", "LevelDB, no compaction")):
        if table.has(store="leveldb, no compaction", filters=kind):
            lines.append(("leveldb, no compaction", kind, 1, name, "-"))
    colours = [OURS, "#5aa9a0", "#7d6bb0", "#b08bbf", "#b9b3d4"]
    for ax, column, title, ylabel in ((axes[0], "us", "Latency, cold", "ms"),
                                      (axes[1], "reads", "Reads of a trajectory", "reads")):
        for number, (store, kind, in_flight, name, style) in enumerate(lines):
            if store != "swale":
                colour = {"bloom": RIVAL, "none": RIVAL_2}[kind]
            else:
                colour = OURS if kind == "sketch" else colours[number]
            xs, ys = table.line("epochs", column, store=store, filters=kind, in_flight=in_flight)
            if column == "reads" and style == "--":
                continue
            ax.plot(xs, [y / 1e3 for y in ys] if column == "us" else ys, linestyle=style, color=colour,
                    label=name)
        ax.set_yscale("log")
        ax.set_xticks(sorted(table.cases("epochs")))
        finish(ax, title, "epochs", ylabel, zero=False)
    xs, ys = table.line("epochs", "us", store="scan")
    axes[0].plot(xs, [y / 1e3 for y in ys], linestyle=":", color=INK, label="scan by all cores")
    figure = axes[0].figure
    figure.legend(*axes[0].get_legend_handles_labels(), loc="lower center", ncols=3).set_in_layout(False)
    figure.get_layout_engine().set(rect=(0, 0.17, 1, 0.83))  # matplotlib 3.6 has no legend outside


def plot_leveldb(table, axes):
    panels = (("io_s", "I/O time, 2 ranks of 100 MB/s", "s"),
              ("amplification", "I/O amplification", "bytes moved / bytes of data"),
              ("query_us", "Query, cold", "ms"), ("objects", "Objects touched by a query", "files"))
    for ax, (column, title, ylabel) in zip(axes, panels, strict=True):
        for store in table.cases("store"):
            name, colour = STORES[store]
            xs, ys = table.line("mb", column, store=store)
            ax.plot(xs, [y / 1e3 for y in ys] if column == "query_us" else ys, color=colour, label=name)
        if column == "query_us":
            ax.set_yscale("log")
        finish(ax, title, "MB of particle data", ylabel, zero=column != "query_us")
    axes[0].legend(fontsize=7)


def plot_size(table, axes):
    for column, name, colour in (("scan_us", "scan, all cores", OFF),
                                 ("open_and_query_us", "open and query, fresh process", RIVAL_2),
                                 ("query_us", "query, one core", OURS)):
        xs, ys = table.line("mb", column)
        axes[0].plot(xs, [y / 1e3 for y in ys], color=colour, label=name)
    axes[0].set(xscale="log", yscale="log")
    axes[0].legend()
    finish(axes[0], "A trajectory of 5 epochs, cold", "MB of data", "ms", zero=False)
    xs, query = table.line("mb", "query_us")
    scan = table.line("mb", "scan_us")[1]
    axes[1].plot(xs, [s / q for s, q in zip(scan, query)], color=OURS)
    axes[1].set(xscale="log", yscale="log")
    finish(axes[1], "Query on one core, times faster than the scan", "MB of data", "", zero=False)


def plot_frame(table, axes):
    keys = next(row["keys_per_rank"] for row in table.rows if row["mb_s"] == 25)
    for mb_s, name, colour in ((25, "storage 25 MB/s a rank", OURS), (0, "memory, no limit", RIVAL_2)):
        xs, ys = table.line("ranks", "ratio", mb_s=mb_s, keys_per_rank=keys)
        axes[0].plot(xs, ys, color=colour, label=name)
    axes[0].axhline(1.15, color=FAINT, linewidth=0.8, linestyle=":", marker="")
    axes[0].text(1, 1.17, "papers, storage-bound: 1.15", color=FAINT, fontsize=7)
    axes[0].set_xscale("log", base=2)
    axes[0].legend()
    finish(axes[0], "Frame time / file-per-process", "ranks (2 cores)", "")
    axes[0].set_xticks(xs, [str(x) for x in xs])
    axes[0].set_ylim(0, 1.25 * axes[0].get_ylim()[1])
    of_ranks = zip(*table.line("ranks", "bytes_ratio", mb_s=25, keys_per_rank=keys))
    by_ranks = [(f"{x} rank{'s' if x > 1 else ''}", y) for x, y in of_ranks]
    of_size = zip(*table.line("keys_per_rank", "bytes_ratio", mb_s=100))
    by_size = [(f"{k * 48 / 1e6:.3g} MB", y) for k, y in of_size]
    both = by_ranks + by_size
    colours = [OURS] * len(by_ranks) + [RIVAL_2] * len(by_size)
    axes[1].bar(range(len(both)), [100 * (y - 1) for _, y in both], color=colours)
    axes[1].set_xticks(range(len(both)), [name for name, _ in both], rotation=45, ha="right", fontsize=7)
    axes[1].axhline(8, color=FAINT, linewidth=0.8, linestyle=":", marker="")
    axes[1].text(-0.4, 8.15, "papers: 8 %", color=FAINT, fontsize=7)
    finish(axes[1], "Output beyond the data", "", "%")


def plot_overlap(table, axes):
    ends = (("wait", "wait at the end", OFF), ("next", "end at the next frame (2017)", RIVAL_2),
            ("begin", "begin, wait later", OURS))
    for end, name, colour in ends:
        xs, ys = table.line("frame_mb", "seen_s", end=end)
        axes[0].plot(xs, ys, color=colour, label=name)
        shares = table.line("frame_mb", "compute_share", end=end)[1]
        axes[1].plot(xs, [100 * y for y in shares], color=colour, label=name)
    xs, ys = table.line("frame_mb", "storage_s")
    axes[0].plot(xs, ys, linestyle=":", color=INK, marker="", label="storage alone")
    axes[0].legend()
    finish(axes[0], "Of a frame's writing the application sees",
           "MB a rank and frame (storage 100 MB/s)", "s")
    finish(axes[1], "Share of computing", "MB a rank and frame", "%")


def plot_compression(table, axes):
    kinds = table.cases("values")
    colours = {"none": OFF, "lz4": OURS, "zstd": "#7d6bb0"}

    def values_of(store, column, codec):
        return [table.median(column, store=store, values=values, codec=codec) for values in kinds]

    for ax, column, title, ylabel in (
            (axes[0], "bytes_ratio", "Bytes on disk, index included", "of keys and values"),
            (axes[1], "write_ns", "Writing, processor time", "ns a record"),
            (axes[2], "scan_ns", "Scanning, processor time", "ns a record"),
            (axes[3], "query_us", "Query of two epochs, warm", "µs")):
        bars = [(codec, colour, values_of("swale", column, codec)) for codec, colour in colours.items()]
        places = paired_bars(ax, kinds, bars)
        if column != "scan_ns" and table.has(store="rocksdb"):
            marks = [value for codec in colours for value in values_of("rocksdb", column, codec)]
            ax.plot(sum(places, []), marks, linestyle="", marker="_", markersize=11, color=RIVAL,
                    label="RocksDB, same codec")
        finish(ax, title, "", ylabel)
    axes[0].set_ylim(0, 1.75)
    axes[0].legend(ncols=2, loc="upper center")


# part: plot, number of panels
PLOTS = {"delivery": (plot_delivery, 2), "ways": (plot_ways, 2), "reads": (plot_reads, 2),
         "leveldb": (plot_leveldb, 4), "size": (plot_size, 2), "frame": (plot_frame, 2),
         "overlap": (plot_overlap, 2), "compression": (plot_compression, 4)}  # fmt: skip


def draw(results, part, table):
    plot, panels = PLOTS[part]
    with plt.rc_context(STYLE):
        rows, columns = (panels + 1) // 2, 2
        figure, axes = plt.subplots(rows, columns, figsize=(8, 2.9 * rows + (part == "reads")),
                                    layout="constrained")
        plot(table, axes.flat)
        figure.savefig(results / f"{part}.png", dpi=110, metadata={"Software": None})
        plt.close(figure)


def make(results):
    """Plots and README.md of all parts that have a CSV."""
    text = ablation_page.text(results)  # before anything is written: it may refuse
    parts = ablation_page.tables(results)
    for part, table in parts.items():
        draw(results, part, table)
    (pathlib.Path(results) / "README.md").write_text(text, encoding="utf-8")
    print(f"{results}/README.md and {len(parts)} plots")
