"""draw(ROWS, PNG): the figures of the 2018 and 2020 papers on the simulated machines (sim_shuffle_page.py).
"""
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

OURS, PAPERS, OTHER, DARK, LIGHT = "#1b6f8a", "#c0562b", "#8a8f98", "#222222", "#7fb3c3"
STAR = dict(marker="*", markersize=11, linestyle="none", color=DARK, zorder=5)
RANKS = "ranks"


def lines(panel, rows, x, series, title, **axes):
    for field, label, colour, style in series:
        panel.plot([row[x] for row in rows], [row[field] for row in rows], label=label, color=colour,
                   linestyle=style, marker="o", markersize=3)
    panel.set(title=title, xscale="log", xlabel=x, **axes)
    panel.legend(frameon=False, fontsize=7)


def bars(panel, names, series, title, ylabel):
    """series: (label, colour, values)"""
    width = 0.8 / len(series)
    for number, (label, colour, values) in enumerate(series):
        places = [at + (number - (len(series) - 1) / 2) * width for at in range(len(names))]
        drawn = panel.bar(places, values, width * 0.92, label=label, color=colour)
        panel.bar_label(drawn, [f"{value:.3g}" for value in values], fontsize=7)
    panel.set_xticks(range(len(names)), names)
    panel.set(title=title, ylabel=ylabel)
    panel.margins(y=0.15)
    panel.legend(frameon=False, fontsize=7)


def memory(panel, rows):
    for row in rows:
        row.update({f"{name}_mb": row[f"{name}_bytes"] / 1e6 for name in
                    ("paper_direct", "paper_three_hop", "direct", "three_hop", "three_hop_8mib")})
    lines(panel, rows, RANKS, (("paper_direct_mb", "the paper, direct (sends)", PAPERS, "-"),
                               ("paper_three_hop_mb", "the paper, three-hop (sends)", PAPERS, "--"),
                               ("direct_mb", "ours, direct", OURS, "-"),
                               ("three_hop_mb", "ours, three-hop, 64 MiB a rank", OURS, "--"),
                               ("three_hop_8mib_mb", "ours, three-hop, 8 MiB of hops", LIGHT, "--")),
          "2018 Fig. 5c, 2020 Fig. 15: frames of a rank", yscale="log", ylabel="MB")
    panel.plot([262_144], [16], label="printed: three-hop at most", **STAR)
    panel.legend(frameon=False, fontsize=7)


def buffers(panel, rows):
    names = [f"{row['frame_bytes'] / 1024:g} KB" for row in rows]
    bars(panel, names, [("the paper's method", PAPERS, [100 * row["papers_method"] for row in rows]),
                        ("the shipped code, simulated", OURS,
                         [100 * row["simulated_share"] for row in rows])],
         "2018 Fig. 5a: bandwidth by frame", "% of the storage's")
    panel.plot([0], [30], label="printed: about 30 %", **STAR)
    panel.set_ylim(0, 125)
    panel.legend(frameon=False, fontsize=7, loc="upper left")


def processor(panel, rows):
    bars(panel, [row["way"] for row in rows],
         [("DeltaFS, measured here", PAPERS, [100 * row["deltafs_share"] for row in rows]),
         ("ours", OURS, [100 * row["share"] for row in rows])],
         "2018 Fig. 5b: processor (not printed)", "% of a core, storage full")


def io_time(panel, rows):
    lines(panel, rows, RANKS, (("papers_unshuffled_s", "the paper's, indexing alone", PAPERS, ":"),
                               ("papers_direct_s", "the paper's, direct", PAPERS, "--"),
                               ("papers_s", "the paper's, three-hop", PAPERS, "-"),
                               ("unshuffled_s", "ours, indexing alone", OURS, ":"),
                               ("base_direct_s", "ours, direct", OURS, "--"),
                               ("base_s", "ours, three-hop", OURS, "-")),
          "2018 Fig. 5d: I/O time (not printed)", ylabel="s, 16 M particles a rank", ylim=(0, None))


def slowdown(panel, rows):
    shown = [dict(row, **{f"{name}_pc": 100 * row[f"{name}_slowdown"]
                          for name in ("papers", "base", "lossy")}) for row in rows]
    lines(panel, shown, RANKS, (("papers_pc", "the paper's method", PAPERS, "-"),
                                ("base_pc", "ours, base", OURS, "-"),
                                ("lossy_pc", "ours, lossy", LIGHT, "-")),
          "2018 Fig. 12b, 2020 Fig. 17b: slowdown", ylabel="%", ylim=(0, None))
    panel.plot([32_768, 65_536, 131_072], [10, 20, 35], label="printed (ranks of 20 % assumed)", **STAR)
    panel.legend(frameon=False, fontsize=7)


def write_slowdown(panel, rows):
    bars(panel, [row["method"] for row in rows],
         [("the paper's method", PAPERS, [100 * row["papers_slowdown"] for row in rows]),
          ("ours", OURS, [100 * row["slowdown"] for row in rows])],
         "2020 Fig. 13a: write slowdown", "%")
    panel.text(0.98, 0.75, "printed: base 3.3 times,\nindirect 2.8 times lossy", transform=panel.transAxes,
               ha="right", fontsize=7)


def latency(panel, rows):
    bars(panel, [row["method"] for row in rows],
         [("printed", PAPERS, [row["papers_query_ms"] for row in rows]),
          ("ours, on the model", OURS, [row["query_ms"] for row in rows])],
         "2020 Fig. 13b: median query", "ms")


def queries(panel, rows):
    lines(panel, rows, RANKS, (("papers_speedup", "the paper's method", PAPERS, "-"),
                               ("speedup", "ours", OURS, "-")),
          "2018 Fig. 12a, 2020 Fig. 17a: over the scan", yscale="log", ylabel="times")
    panel.plot([32_768], [1740], label="printed: up to 1,740", **STAR)
    panel.legend(frameon=False, fontsize=7)


def trajectory(panel, rows):
    lines(panel, rows, RANKS, (("papers_query_ms", "the paper's method (printed: about 300)", PAPERS, "-"),
                               ("query_ms", "ours", OURS, "-")),
          "2018 Fig. 12a, 2020 Fig. 17a: a trajectory", ylabel="ms", ylim=(0, 550))
    panel.axhline(500, color=DARK, linestyle=":", linewidth=1)
    panel.text(40, 505, "2018: within 500 ms", fontsize=7)


def error(panel, rows):
    styles = {"base": (OURS, "o"), "indirect": (OTHER, "s"), "lossy": (PAPERS, "^")}
    for machine, fill in (("second", "full"), ("trinity", "none")):
        for method, (colour, marker) in styles.items():
            found = [row for row in rows if row["machine"] == machine and row["method"] == method]
            if found:
                panel.plot([row[RANKS] for row in found], [100 * row["model_error"] for row in found],
                           marker=marker, color=colour, fillstyle=fill, linestyle="-" if fill == "full"
                           else ":",
                           label=f"{method}, {'second machine' if machine == 'second' else 'Trinity'}")
    panel.axhline(0, color=DARK, linewidth=0.8)
    panel.set(title="the model against the shipped code", xscale="log", xlabel=RANKS,
              ylabel="error of the time, %", ylim=(-30, 30))
    panel.legend(frameon=False, fontsize=7)


def draw(rows, target):
    figure, grid = plt.subplots(4, 3, figsize=(13.5, 14), layout="constrained")
    panels = list(grid.flat)
    parts = ((memory, "memory"), (buffers, "fig5a"), (processor, "fig5b"), (io_time, "scaling"),
             (slowdown, "scaling"),
             (write_slowdown, "formats"), (latency, "formats"), (trajectory, "queries"),
             (queries, "queries"), (error, "simulated"))
    for panel, (part, name) in zip(panels, parts):
        part(panel, rows[name])
        panel.title.set_fontsize(10)
    for panel in panels[len(parts):]:
        panel.axis("off")
    for panel in panels[:len(parts)]:
        for side in ("top", "right"):
            panel.spines[side].set_visible(False)
    figure.savefig(target, dpi=90, metadata={"Software": None})
    plt.close(figure)
