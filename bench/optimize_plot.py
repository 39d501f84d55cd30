"""draw(ROWS, PNG): trajectories by the number of epochs (optimize_page.py)."""
import matplotlib
import matplotlib.ticker

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

STYLES = {  # series: label, colour, marker
    "before": ("Swale, as written", "#7fb3c3", "o"), "after": ("Swale, optimised", "#1b6f8a", "o"),
    "rocksdb": ("RocksDB, compacted", "#c0562b", "s"), "leveldb": ("LevelDB", "#8a8f98", "^"),
}


def panel(axes, rows, kind, title):
    for series, (label, colour, marker) in STYLES.items():
        places = [(row["epochs"], row[f"{kind}_{series}"]) for row in rows if f"{kind}_{series}" in row]
        if places:
            axes.plot(*zip(*places), label=label, color=colour, marker=marker, markersize=4)
    axes.set(title=title, xscale="log", yscale="log", xlabel="epochs of the trajectory")
    epochs = [row["epochs"] for row in rows]
    axes.set_xticks(epochs, [f"{epoch:,.0f}" for epoch in epochs])
    axes.yaxis.set_major_locator(matplotlib.ticker.LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:,g}")
    axes.minorticks_off()
    axes.grid(axis="y", color="#dddddd", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def draw(rows, path):
    figure, (cold, warm) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    panel(cold, rows, "cold", "cold: nothing resident but indexes")
    panel(warm, rows, "warm", "warm: asked before")
    cold.set_ylabel("microseconds, median")
    cold.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=110)
    plt.close(figure)
