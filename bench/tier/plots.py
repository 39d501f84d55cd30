"""The plots of `make bench-tier`, one for each figure of the SSDUP+ paper that has measurements. Needs
matplotlib.

Colours stand for policies and mean the same in every plot. A short black bar is a value that the paper
prints.
"""
POLICIES = {"backing": ("all to disk", "#8a8f98"), "ssd": ("all-SSD, waits", "#e0a458"),
            "ssd-overflow": ("all-SSD, overflows", "#c0562b"),
            "ssdup": ("SSDUP", "#9d86b8"), "ssdup+": ("SSDUP+", "#4c6ea8"), "swale": ("Swale", "#0f7f6c")}
PATTERNS = {"contiguous": "#4c6ea8", "strided": "#c0562b", "random": "#8a8f98"}
STYLE = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "axes.titlesize": 10,
         "axes.titlelocation": "left",
         "legend.frameon": False, "legend.fontsize": 8, "lines.markersize": 4, "axes.grid.axis": "y",
         "grid.color": "#e5e5e5",
         "axes.axisbelow": True}  # fmt: skip


class Plots:
    def __init__(self, bench, out, pyplot):
        self.bench, self.out, self.plt, self.p = bench, out, pyplot, bench.p
        self.written = []

    def figure(self, rows, columns, width=3.6, height=2.5):
        picture, axes = self.plt.subplots(rows, columns, figsize=(width * columns, height * rows),
                                          squeeze=False, layout="constrained")
        for row in axes:
            for axis in row:
                axis.grid(True, axis="y")
        return picture, axes

    def keep(self, picture, name):
        path = self.out / f"tiered-buffer-{name}.png"
        picture.savefig(path, dpi=80, bbox_inches="tight")
        self.plt.close(picture)
        self.written.append(path.name)

    def legend_above(self, picture, axes):
        handles, names = axes[0][0].get_legend_handles_labels()
        picture.legend(handles, names, loc="lower center", bbox_to_anchor=(0.5, 1), ncols=7)

    def lines(self, axes, labels, workloads, preset, what, policies=POLICIES, factor=1):
        for policy in policies:
            name, colour = POLICIES[policy]
            values = [factor * self.bench.run(workload, preset, policy)[what] for workload in workloads]
            wide = 2.2 if policy == "swale" else 1.3
            axes.plot(range(len(labels)), values, marker="o", label=name, color=colour, linewidth=wide)
        axes.set_xticks(range(len(labels)), labels)
        axes.set_ylim(bottom=0)

    def bars(self, axes, labels, series):
        """series: {policy: values}."""
        width = 0.84 / len(series)
        for number, (policy, values) in enumerate(series.items()):
            name, colour = POLICIES[policy]
            at = [place + (number - (len(series) - 1) / 2) * width for place in range(len(labels))]
            axes.bar(at, values, width * 0.92, label=name, color=colour)
        axes.set_xticks(range(len(labels)), labels)
        return width

    def printed(self, axes, places, values, wide=0.3, label="printed by the paper"):
        for number, (place, value) in enumerate(zip(places, values)):
            axes.plot([place - wide / 2, place + wide / 2], [value, value], color="black", linewidth=2.2,
                      zorder=5, label=label if number == 0 else None)

    def two_rows(self, name, labels, workloads, xlabel, kind, printed=None):
        """Speeds above, shares below, a column for each preset. printed: {(what, policy): {label: value}}."""
        presets = self.p["presets"]
        picture, axes = self.figure(2, len(presets), height=2.6)
        for column, preset in enumerate(presets):
            for row, (what, factor, ylabel) in enumerate((("mb_per_s", 1, "MB/s"),
                                                          ("ssd_share", 100, "% of bytes to the SSD"))):
                axis = axes[row][column]
                if kind == "lines":
                    self.lines(axis, labels, workloads, preset, what, factor=factor)
                else:
                    self.bars(axis, labels, {policy: [factor * self.bench.run(workload, preset, policy)[what]
                                                      for workload in workloads]
                                             for policy in POLICIES})
                for (of, policy), values in (printed or {}).items():
                    if of == what and preset in "AB":
                        order = list(POLICIES).index(policy)
                        width = 0.84 / len(POLICIES)
                        move = 0 if kind == "lines" else (order - (len(POLICIES) - 1) / 2) * width
                        places = [at + move for at, label in enumerate(labels) if label in values]
                        shown = [factor * values[label] for label in labels if label in values]
                        self.printed(axis, places, shown, 0.3 if kind == "lines" else width)
                axis.set_ylabel(ylabel if column == 0 else "")
                axis.set_ylim(0, 1.08 * axis.dataLim.ymax if row == 0 else 105)
            axes[0][column].set_title(f"preset {preset}")
            axes[1][column].set_xlabel(xlabel)
        self.legend_above(picture, axes)
        self.keep(picture, name)

    # Figures 2 and 6: all to disk.
    def patterns(self):
        processes = [n for n in (8, 16, 32, 64, 128) if n in self.p["f8"]]
        printed = {"contiguous": {16: 218, 128: 150}, "strided": {8: 208.1, 16: 211.76, 32: 175.8,
                                                                  64: 159.29, 128: 132.68},
                   "random": {16: 95, 128: 95}}
        picture, axes = self.figure(1, len(self.p["presets"]))
        for axis, preset in zip(axes[0], self.p["presets"]):
            for pattern, colour in PATTERNS.items():
                names = [f"F8:{n}" if pattern == "strided" else f"F2:{pattern}:{n}" for n in processes]
                axis.plot(range(len(processes)), [self.bench.run(name, preset, "backing")["mb_per_s"]
                                                  for name in names], marker="o",
                          color=colour, label=pattern)
                if preset in "AB":
                    at = [place for place, n in enumerate(processes) if n in printed[pattern]]
                    axis.plot(at, [printed[pattern][processes[place]] for place in at], linestyle="",
                              marker="_", markersize=13, markeredgewidth=2, color=colour, label=None
                              if pattern != "random" else "_")
            axis.set(title=f"preset {preset}: all to disk", xlabel="processes (bars: printed, 2 and 6)",
                     ylabel="MB/s", ylim=(0, None))
            axis.set_xticks(range(len(processes)), processes)
        axes[0][0].legend(loc="lower left")
        self.keep(picture, "02-patterns")

    # Figures 3 and 5: where a stream's requests lie, as they arrive and sorted.
    def offsets(self):
        picture, axes = self.figure(2, 4, width=2.9, height=2.3)
        for column, (name, title) in enumerate((("F2:contiguous:16", "contiguous"),
                                                ("F2:random:16", "random"),
                                                ("F2:strided:16", "strided"),
                                                ("W1", "contiguous and random"))):
            stream = self.bench.ask("offsets", name)
            places, ordered = stream["gib"], sorted(stream["gib"])
            random = sum(later - before > 1.01 * stream["request_gib"] for before,
                         later in zip(ordered, ordered[1:]))
            axes[0][column].plot(places, linestyle="", marker=".", color="#4c6ea8")
            axes[1][column].plot(ordered, linestyle="", marker=".", color="#c0562b")
            axes[0][column].set_title(f"{title}: as they arrive")
            axes[1][column].set(title=f"sorted: {random} of 127 random", xlabel="request of the stream")
        for row in axes:
            row[0].set_ylabel("GiB from the file's begin")
        self.keep(picture, "03-05-offsets")

    # Figure 6: random percentage and speed.
    def percentages(self):
        processes = self.p["f8"]
        printed = {8: 7, 16: 15, 32: 28, 64: 46, 128: 71}
        picture, axes = self.figure(1, 1, width=4.6)
        axis = axes[0][0]
        axis.bar(range(len(processes)), [100 * self.bench.run(f"F8:{n}", "A", "backing")["random_percentage"]
                                         for n in processes],
                 0.6, color="#4c6ea8", label="here")
        self.printed(axis, range(len(processes)), [printed[n] for n in processes], 0.6)
        axis.set(title="strided: mean random percentage", xlabel="processes", ylabel="%")
        axis.set_xticks(range(len(processes)), processes)
        axis.legend()
        self.keep(picture, "06-random-percentage")

    # Figure 7: which streams go where.
    def streams(self):
        line = self.bench.ask("streams", "F8:64")
        picture, axes = self.figure(1, 1, width=8)
        axis = axes[0][0]
        for ssd, name, colour in ((True, "to the SSD", "#c0562b"), (False, "to the disk", "#4c6ea8")):
            at = [i for i, to in enumerate(line["to_ssd"]) if bool(to) == ssd]
            axis.plot(at, [100 * line["percentages"][i] for i in at], linestyle="", marker=".", color=colour,
                      label=name)
        axis.plot([100 * value for value in line["thresholds"]], color="black", linewidth=1,
                  label="threshold")
        axis.set(title="SSDUP+, strided, 64 processes: streams of 128 requests", xlabel="stream",
                 ylabel="random percentage")
        axis.legend(ncols=3, loc="lower right")
        self.keep(picture, "07-streams")

    # Figures 9 and 13: both programs' speeds, 8 GB of SSD.
    def limited(self):
        presets = self.p["presets"]
        printed = {("W1", "ssdup+"): 180.7, ("W1", "ssdup"): 134.0, ("W1", "ssd-overflow"): 145.75,
                   ("W2", "ssdup+"): 195.7,
                   ("W2", "ssd-overflow"): 142.7}
        picture, axes = self.figure(3, len(presets), height=2.4)
        for column, preset in enumerate(presets):
            for row, (ylabel, value) in enumerate((
                    ("MB/s, both programs", lambda line: sum(line["program_mb_per_s"])),
                    ("GB to the SSD", lambda line: line["ssd_bytes"] / 2**30),
                    ("s until drained", lambda line: line["drained_s"]))):
                axis = axes[row][column]
                names = list(self.p["nine"])
                width = self.bars(axis, names,
                                  {policy: [value(self.bench.run(name, preset, policy)) for name in names]
                                   for policy in POLICIES})
                axis.set_ylabel(ylabel if column == 0 else "")
                for number, policy in enumerate(POLICIES):
                    places = [at for at, name in enumerate(names) if (name, policy) in printed]
                    if row == 0 and preset in "AB" and places:
                        move = (number - (len(POLICIES) - 1) / 2) * width
                        self.printed(axis, [at + move for at in places],
                                     [printed[names[at], policy] for at in places], width,
                                     "printed by the paper" if policy == "ssdup+" else None)
            axes[0][column].set_title(f"preset {preset}")
        self.legend_above(picture, axes)
        self.keep(picture, "09-13-limited")

    # Figure 12: queues of the disk; SSDUP+'s stream is as long as the queue.
    def queues(self):
        picture, axes = self.figure(1, len(self.p["presets"]))
        for axis, preset in zip(axes[0], self.p["presets"]):
            values = {}
            for policy in ("backing", "ssdup+", "swale"):
                values[policy] = [self.bench.run("F11:32", preset, policy,
                                                 **({"slots": n} if policy == "backing" else
                                                   {"slots": n, "stream": n}))["mb_per_s"]
                                  for n in self.p["queues"]]
            self.bars(axis, self.p["queues"], values)
            axis.set(title=f"preset {preset}", xlabel="slots of the queue, 32 processes", ylabel="MB/s")
        self.legend_above(picture, axes)
        self.keep(picture, "12-queues")

    # Figure 14: two programs with a gap between.
    def gaps(self):
        gaps = self.p["gaps"]
        picture, axes = self.figure(1, len(self.p["presets"]))
        for axis, preset in zip(axes[0], self.p["presets"]):
            for policy, (name, colour) in POLICIES.items():
                lines = [self.bench.run(f"F14:{gap}", preset, policy) for gap in gaps]
                speeds = [len(line["program_mb_per_s"]) / sum(1 / speed
                                                              for speed in line["program_mb_per_s"])
                          for line in lines]
                axis.plot(gaps, speeds, marker="o", color=colour, label=name, linewidth=2.2
                          if policy == "swale" else 1.3)
            axis.set(title=f"preset {preset}", xlabel="s between the programs", ylabel="MB/s of the two",
                     ylim=(0, None))
        axes[0][0].legend(loc="lower right", ncols=2)
        self.keep(picture, "14-gaps")

    # Table 1.
    def order(self, table):
        picture, axes = self.figure(1, 1, width=6)
        axis = axes[0][0]
        columns = (("printed_avl_ms", "AVL tree, paper", "#c9cdd3"), ("avl_ms", "AVL tree", "#4c6ea8"),
                   ("hash_sort_ms", "hash, sorted", "#c0562b"),
                   ("map_ms", "our map", "#0f7f6c"), ("group_ms", "grouping", "#e0a458"))
        for number, (key, name, colour) in enumerate(columns):
            axis.bar([at + (number - 2) * 0.17 for at in range(len(table))], [row[key] for row in table],
                     0.155, color=colour, label=name)
        axis.set_xticks(range(len(table)), [f"{row['kib']} KiB" for row in table])
        axis.set(title="Table 1: CPU for 2 GiB of random writes", ylabel="ms")
        axis.legend()
        self.keep(picture, "table-1")


def draw(bench, table, out):
    """Writes all plots into `out`; their names."""
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot
    pyplot.rcParams.update(STYLE)
    plots, p = Plots(bench, out, pyplot), bench.p
    if p["queues"]:  # the smallest profile has too few runs for these
        plots.patterns()
        plots.queues()
    plots.offsets()
    plots.percentages()
    plots.streams()
    plots.two_rows("08-strided", p["f8"], [f"F8:{n}" for n in p["f8"]], "processes, strided", "lines",
                   {("mb_per_s", "ssdup+"): {8: 213.6, 16: 212.48, 32: 196.9},
                    ("ssd_share", "ssdup+"): {32: 0.2725, 64: 0.4668, 128: 0.6563}})
    plots.two_rows("11-processes", p["processes"], [f"F11:{n}" for n in p["processes"]], "processes", "lines",
                   {("ssd_share", "ssdup+"): {32: 0.25, 64: 0.40, 128: 0.66, 256: 0.845, 512: 0.97}})
    plots.limited()
    plots.gaps()
    if p["hpio"]:
        plots.two_rows("15-hpio", p["hpio"], [f"HPIO:{kib}" for kib in p["hpio"]], "KiB of a region", "bars")
    if p["tiles"]:
        plots.two_rows("16-tiles", p["tiles"], [f"TILE:{n}" for n in p["tiles"]], "processes", "bars",
                       {("ssd_share", "ssdup+"): {16: 0.0, 32: 0.4687, 64: 0.725, 128: 0.85}})
    plots.order(table)
    return plots.written
