"""draw(CSV, PNG): bits a key and partitions probed, ours beside the 2020 paper's table and its printed
values.
"""
import csv

import matplotlib.pyplot as plt

RANKS = (64, 4096, 131072)
STYLES = {"ribbon": ("bumped ribbon (ours)", "#1b6f8a", "o"), "maplet": ("sorted maplet", "#8a8f98", "s"),
          "cuckoo": ("partial-key cuckoo (the paper's)", "#c0562b", "^")}
# Section 4.2: 32 billion keys of 4,096 processes, "roughly 18 MB each", "about 1.88 partitions per query".
PAPER = {"bits_per_key": 18e6 * 8 / (32e9 / 4096), "probes_per_existing_key": 1.88}
PANELS = (("bits_per_key", "bits per key"), ("probes_per_existing_key", "partitions named per key that is "
                                             "there"),
          ("cold_bytes", "bytes read by a cold query"))


def draw(source, target):
    with open(source, newline="") as file:
        rows = {row["case"]: row for row in csv.DictReader(file)}
    figure, panels = plt.subplots(1, 3, figsize=(11, 3.4), layout="constrained")
    for panel, (field, title) in zip(panels, PANELS):
        for scheme, (label, colour, marker) in STYLES.items():
            values = [float(rows[f"{scheme}, {p} ranks, uniform"][field]) for p in RANKS]
            panel.plot(RANKS, values, marker=marker, color=colour, label=label)
        if field in PAPER:
            panel.plot([4096], [PAPER[field]], marker="*", markersize=11, linestyle="none", color="#222222",
                       label="printed in the paper")
        panel.set(title=title, xlabel="ranks", xscale="log")
        panel.set_xticks(RANKS, [f"{p:,}" for p in RANKS])
        panel.minorticks_off()
        for side in ("top", "right"):
            panel.spines[side].set_visible(False)
    panels[0].set_ylim(bottom=0)
    panels[1].set_ylim(bottom=0)
    panels[2].set_yscale("log")
    panels[0].legend(frameon=False, fontsize=8)
    figure.savefig(target, dpi=110, metadata={"Software": None})
