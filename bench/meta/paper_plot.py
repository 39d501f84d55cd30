"""draw(ROWS, PNG): the figures of the metakv paper as our programs give them (paper.py)."""
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

STYLES = {"swale": ("Swale", "#1b6f8a", "o"), "leveldb-4m": ("LevelDB", "#8a8f98", "s"),
          "leveldb-mdhim": ("LevelDB, get before put (MDHIM)", "#c0562b", "^")}
RING_STYLES = {"paper_plain": ("plain (MDHIM)", "#c0562b", "^"),
               "paper_direct": ("the paper's direct", "#8a8f98", "s"),
               "paper_ring": ("the paper's ring", "#222222", "d"), "ring": ("our ring", "#1b6f8a", "o")}


def lines(panel, rows, x, y, title, scale="log"):
    for store, (label, colour, marker) in STYLES.items():
        points = [(row[x], row[y]) for row in rows if row["store"] == store]
        if points:
            panel.plot(*zip(*points), marker=marker, color=colour, label=label)
    panel.set(title=title, yscale=scale)


def count_axis(panel, rows):
    counts = sorted({row["segments"] for row in rows})
    panel.set(xscale="log", xlabel="segments, 16 servers")
    panel.set_xticks(counts, [f"{count / 2**20:g} M" for count in counts])


def fig3(panels, rows):
    for panel, column, what in zip(panels, ("put_share_of_write", "get_share_of_read"), ("write", "read")):
        lines(panel, rows["fig3"], "segments", column, f"Fig. 3: index share of {what} time", "linear")
        panel.set(ylim=(0, 1))
        count_axis(panel, rows["fig3"])


def fig8(panel, rows):
    stores = [row["store"] for row in rows["fig8"] if row["pattern"] == "random"]
    for offset, what, colour in ((-0.2, "put", "#1b6f8a"), (0.2, "get", "#c0562b")):
        panel.bar([i + offset for i in range(len(stores))],
                  [row[f"{what}_per_s"] for row in rows["fig8"] if row["pattern"] == "random"], width=0.4,
                  color=colour, label=what)
    panel.set_xticks(range(len(stores)), stores, rotation=30, ha="right", fontsize=7)
    panel.set(title="Fig. 8: random segments, operations/s", yscale="log")
    panel.legend(frameon=False, fontsize=7)


def fig9_10(panels, rows):
    for panel, (figure, what) in zip(panels, ((f, w) for f in ("fig9", "fig10") for w in ("put", "get"))):
        name = {"fig9": "Fig. 9 (IOR)", "fig10": "Fig. 10 (Tile-IO)"}[figure]
        lines(panel, rows[figure], "segments", f"{what}_ms", f"{name}: {what}, ms a server")
        count_axis(panel, rows[figure])


def fig11(panel, rows, what):
    for store, (label, colour, marker) in STYLES.items():
        points = [(row["class"], row[f"{what}_ns"]) for row in rows["fig11"] if row["store"] == store]
        panel.plot(*zip(*points), marker=marker, color=colour, label=label)
    panel.set(title=f"Fig. 11 (BTIO): {what}, ns an operation", yscale="log", xlabel="class")


def fig12(panel, rows):
    for field, (label, colour, marker) in RING_STYLES.items():
        panel.plot([row["servers"] for row in rows["fig12"]], [row[field] for row in rows["fig12"]],
                   marker=marker, color=colour, label=label)
    panel.set(title="Fig. 12 (model): last of 1,024, µs", xscale="log", yscale="log",
              xlabel="servers on 64 nodes")
    panel.legend(frameon=False, fontsize=7)


def scaling(panel, rows):
    for name, (label, colour, marker) in (("swale", STYLES["swale"]), ("mdhim", STYLES["leveldb-mdhim"])):
        panel.plot([row["servers"] for row in rows["scaling_strong"]],
                   [row[f"{name}_put_ms"] for row in rows["scaling_strong"]],
                   marker=marker, color=colour, label=label)
    panel.set(title="64 M puts on 1 to 64 servers (model), ms", xscale="log", yscale="log", xlabel="servers")


def draw(rows, target):
    figure, grid = plt.subplots(3, 4, figsize=(15, 10), layout="constrained")
    panels = list(grid.flat)
    fig3(panels[0:2], rows)
    fig8(panels[2], rows)
    fig12(panels[3], rows)
    fig9_10(panels[4:8], rows)
    fig11(panels[8], rows, "put")
    fig11(panels[9], rows, "get")
    scaling(panels[10], rows)
    panels[11].axis("off")
    panels[11].legend(*panels[0].get_legend_handles_labels(), frameon=False, loc="center")
    for panel in panels:
        panel.minorticks_off()
        for side in ("top", "right"):
            panel.spines[side].set_visible(False)
    figure.savefig(target, dpi=90, metadata={"Software": None})
    plt.close(figure)
