#!/usr/bin/env python3
"""Draws OUT/impact.png: the paths and energies of the fastest target atoms, and what finding them cost.

Reads what impact, impact-query, impact-scan, impact-growth and (if it was run) parquet.py left in OUT. Needs
numpy and matplotlib.
"""

import argparse
import csv
import json
import pathlib

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402
import numpy  # noqa: E402
from matplotlib.ticker import FuncFormatter, LogLocator  # noqa: E402

INK, FAINT, TARGET, BALL = "#222222", "#7a7a7a", "#c3ccd4", "#e0a458"
FRAME = numpy.dtype([("atom", "<i8"), ("position", "<f4", 3), ("velocity", "<f4", 3), ("energy", "<f4"),
                     ("type", "<i4"), ("step", "<i8")])  # fmt: skip  # impact::DumpRecord
METHODS = (("Swale", "cost-swale.json"), ("scan of dumps", "cost-scan.json"),
           ("DuckDB, sorted*", "cost-parquet.json"))
STYLE = {
    "font.family": "DejaVu Sans", "font.size": 10, "axes.edgecolor": FAINT, "axes.labelcolor": INK,
    "text.color": INK,
    "axes.spines.top": False, "axes.spines.right": False, "xtick.color": INK, "ytick.color": INK,
    "axes.titlesize": 11, "axes.titleweight": "bold", "axes.titlelocation": "left",
}  # fmt: skip


def load_json(path):
    return json.loads(path.read_text())


def load_paths(out):
    """The trajectories, fastest first: a dictionary of arrays each."""
    by_atom = {}
    with open(out / "answer-swale.csv", newline="") as file:
        for row in csv.DictReader(file):
            by_atom.setdefault(int(row["atom"]), []).append(row)
    names = ("step", "x", "z", "energy")
    ids = load_json(out / "fastest.json")["ids"]
    return [{name: numpy.array([float(row[name]) for row in by_atom[atom]]) for name in names}
            for atom in ids]


def colours(count):
    """Dark is fastest; one ordered scale, so that it reads the same without colour vision."""
    return [plt.cm.plasma(0.05 + 0.75 * i / max(count - 1, 1)) for i in range(count)]


def draw_paths(axes, run, paths, frame):
    centre, surface, radius = run["impact_x"], run["surface_z"], run["ball_radius"]
    middle = numpy.abs(frame["position"][:, 1] - centre) < 2.5
    for kind, colour in ((1, TARGET), (2, BALL)):
        dots = frame[middle & (frame["type"] == kind)]["position"]
        axes.scatter(dots[:, 0], dots[:, 2], s=2.2, color=colour, linewidths=0, zorder=1, rasterized=True)
    axes.axhline(surface, color=FAINT, linewidth=0.8, linestyle=(0, (6, 4)), zorder=2)
    for path, colour in zip(paths, colours(len(paths))):
        axes.plot(path["x"], path["z"], color=colour, linewidth=1.6, zorder=4)
        axes.plot(path["x"][0], path["z"][0], "o", color="white", markeredgecolor=colour, markersize=5,
                  zorder=5)
        axes.plot(path["x"][-1], path["z"][-1], "o", color=colour, markersize=4, zorder=5)

    top = max(surface + 2 * radius + 6, max(path["z"].max() for path in paths) + 2)
    bottom = min(-3, min(path["z"].min() for path in paths) - 2)
    ball = plt.Circle((centre - 1, surface + radius + 2), radius, fill=False, color=BALL, linewidth=1.4,
                      linestyle="--")
    axes.add_patch(ball)
    start = numpy.array([centre - 1, surface + radius + 2])
    axes.annotate("", start + numpy.array([4, -24]) * 0.3, start, zorder=6,
                  arrowprops={"arrowstyle": "-|>", "color": INK, "linewidth": 1.4})  # fmt: skip
    axes.text(start[0], start[1] + radius + 0.8, "projectile, 24 σ/τ", ha="center", fontsize=9)
    left, right = axes.get_xlim()[0], max(path["x"].max() for path in paths) + 4
    axes.text(right, surface - 0.5, "surface before\nthe impact", color=FAINT, fontsize=9, ha="right",
              va="top", bbox={"boxstyle": "round,pad=0.1", "facecolor": "white", "edgecolor": "none",
                              "alpha": 0.85})
    rim = numpy.array([(path["x"][0], path["z"][0]) for path in paths])
    # Right below the circles, in the empty crater: no line has to lead there.
    axes.text(rim[:, 0].max() + 1, surface - 0.9, "where the fastest came from", fontsize=9, ha="right",
              va="top", zorder=6, bbox={"boxstyle": "round,pad=0.1", "facecolor": "white",
                                        "edgecolor": "none", "alpha": 0.85})
    axes.set_xlim(min(left, 0), right)
    axes.set_ylim(bottom, top)
    axes.set_aspect("equal", anchor="NW")
    axes.set_xlabel("x  (σ)")
    axes.set_ylabel("z  (σ)")
    axes.set_title(f"The {len(paths)} fastest target atoms, seen from the side")


def draw_energies(axes, run, paths):
    for path, colour in zip(paths, colours(len(paths))):
        axes.plot(path["step"] * run["step_time"], path["energy"], color=colour, linewidth=1.4)
    end = paths[0]["step"][-1] * run["step_time"]
    axes.set_yscale("log")
    axes.text(end, paths[0]["energy"][-1] * 1.25, "dark: the fastest", color=colours(1)[0], fontsize=9,
              ha="right")
    axes.text(end, paths[-1]["energy"][-1] / 1.5, f"light: the {len(paths)}th", color=colours(len(paths))[-1],
              fontsize=9, ha="right", va="top")  # fmt: skip
    axes.set_xlim(0, end)
    axes.set_xlabel("time  (τ)")
    axes.set_ylabel("kinetic energy  (ε)")
    axes.set_title("Their energies")
    axes.grid(axis="y", color="#e6e6e6", linewidth=0.7)
    axes.set_axisbelow(True)


def short(value, units):
    for unit, scale in units:
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value / units[-1][1]:.2g} {units[-1][0]}"


BYTES = (("GB", 1e9), ("MB", 1e6), ("KB", 1e3), ("B", 1))
SECONDS = (("s", 1), ("ms", 1e-3), ("µs", 1e-6))


def draw_cost(axes, costs, count):
    """How long each method takes to find the paths of all the fastest."""
    values, units = [cost["costs"]["ten"]["cold_s"] for _, cost in costs], SECONDS
    for row, ((label, _), value) in enumerate(zip(costs, values)):
        colour = colours(1)[0] if label == "Swale" else FAINT
        axes.plot(value, row, "o", color=colour, markersize=8)
        axes.text(value, row - 0.27, short(value, units), ha="center", va="bottom", color=colour, fontsize=9)
    axes.set_xscale("log")
    axes.set_xlim(min(values) / 6, max(values) * 6)
    axes.set_ylim(len(costs) - 0.5, -0.8)
    axes.set_yticks(range(len(costs)), [label for label, _ in costs])
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", color="#e6e6e6", linewidth=0.7)
    axes.spines["left"].set_visible(False)
    axes.xaxis.set_major_locator(LogLocator(numticks=4))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value, units)))
    axes.minorticks_off()
    axes.tick_params(axis="x", labelsize=8)
    axes.set_title(f"time: these {count} paths", fontsize=10, fontweight="normal", loc="center")


def draw_growth(axes, growth):
    """Bytes that one path costs in runs of 10 to 1,000 frames: the measured series of impact-growth."""
    points = growth["points"]
    frames = [point["frames"] for point in points]
    for which, label, colour, side in (("scan", "scan", FAINT, 1), ("swale", "Swale", colours(1)[0], -1)):
        read = [point[which]["bytes"] for point in points]
        axes.plot(frames, read, "o-", color=colour, markersize=4, linewidth=1.4)
        axes.annotate(f"{label} {short(read[-1], BYTES)}", (frames[-1], read[-1]),
                      (2, 6 if side > 0 else -38), fontsize=9, color=colour, textcoords="offset points",
                      ha="right", va="bottom")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(points[0]["swale"]["bytes"] / 3, points[-1]["scan"]["bytes"] * 9)
    axes.set_xticks(frames, [f"{count:,}" for count in frames], fontsize=8)
    axes.yaxis.set_major_locator(LogLocator(numticks=4))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value, BYTES)))
    axes.minorticks_off()
    axes.tick_params(axis="y", labelsize=8)
    axes.grid(axis="y", color="#e6e6e6", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.set_xlabel(f"frames of {growth['atoms']:,} atoms", fontsize=9)
    axes.set_title("bytes: one path", fontsize=10, fontweight="normal", loc="center")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("out", type=pathlib.Path, help="the directory that impact wrote")
    out = parser.parse_args().out
    run, paths = load_json(out / "run.json"), load_paths(out)
    costs = [(label, load_json(out / name)) for label, name in METHODS if (out / name).exists()]

    plt.rcParams.update(STYLE)
    figure = plt.figure(figsize=(13, 6.6), dpi=150)
    left = figure.add_gridspec(1, 1, left=0.05, right=0.585, top=0.81, bottom=0.085)
    right_top = figure.add_gridspec(1, 1, left=0.655, right=0.985, top=0.81, bottom=0.475)
    right_bottom = figure.add_gridspec(1, 2, left=0.72, right=0.985, top=0.305, bottom=0.115, wspace=0.42)
    draw_paths(figure.add_subplot(left[0]), run, paths, numpy.fromfile(out / "last-frame.bin", FRAME))
    draw_energies(figure.add_subplot(right_top[0]), run, paths)
    draw_cost(figure.add_subplot(right_bottom[0]), costs, len(paths))
    draw_growth(figure.add_subplot(right_bottom[1]), load_json(out / "growth.json"))
    figure.text(0.655, 0.355, "What a path costs, with cold caches", fontsize=11, fontweight="bold")
    figure.suptitle("A hypervelocity impact, one “file” per atom", x=0.05, ha="left", fontsize=15,
                    fontweight="bold")
    figure.text(0.05, 0.895, f"LAMMPS on {run['ranks']} ranks, {run['atoms']:,} atoms, {run['frames']} "
                f"frames; Lennard-Jones "
                "units. Dots: a slice of the last frame, target grey, projectile orange.", color=FAINT)
    parquet = dict(costs).get("DuckDB, sorted*")
    if parquet:
        ready_s = parquet["convert_s"] + parquet["sort_s"]
        figure.text(0.655, 0.015, f"* after {ready_s:.1f} s of conversion and sorting", fontsize=9,
                    color=FAINT)
    figure.savefig(out / "impact.png")


if __name__ == "__main__":
    main()
