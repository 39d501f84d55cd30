"""The tables that tier.py prints and its page shows, as Markdown."""
from runs import SHOWN, workloads
from tier_keys import KEYS


def bound(key, value):
    return "–" if value is None else f"{'≤' if key.less_is_better else '≥'} {value:g}"


def table(rows):
    text = ["| figure | value | must | met | aim | met | |", "|---|---|---|---|---|---|---|"]
    for key in KEYS:
        if key.name not in rows:
            text.append(f"| `{key.name}` | not measured | {bound(key, key.must)} | – | "
                        f"{bound(key, key.aim)} | – | {key.what} |")
            continue
        row = rows[key.name]
        yes = {True: "yes", False: "**NO**", None: "–"}
        text.append(f"| `{key.name}` | {row['value']:.3g} {key.unit} | {bound(key, key.must)} | "
                    f"{yes[row['met']]} | "
                    f"{bound(key, key.aim)} | {'yes' if row['aim_met'] else 'no'} | {key.what} |")
    return "\n".join(text)


def cells(bench):
    text = ["| workload, preset | " + " | ".join(SHOWN) + " | (MB/s, GB to the SSD, s until drained)",
            "|---|" + "---|" * len(SHOWN)]
    for workload in workloads(bench.p):
        for preset in bench.p["presets"]:
            lines = [bench.run(workload, preset, policy) for policy in SHOWN]
            text.append(f"| {workload} {lines[0]['preset']} | " + " | ".join(
                f"{line['mb_per_s']:.0f}, {line['ssd_bytes'] / 2**30:.1f}, {line['drained_s']:.0f}"
                for line in lines) + " |")
    return "\n".join(text)


def nine_cells(bench):
    """Ours beside SSDUP+ with the same segments and slots, and beside SSDUP+ with the paper's two regions."""
    text = ["| workload, preset | SSDUP+ | Swale | Swale over SSDUP+: speed, bytes | SSDUP+ with two "
            "regions | Swale over that: speed, bytes | (MB/s, GB to the SSD) |",
            "|---|---|---|---|---|---|---|"]
    for workload in bench.p["nine"]:
        for preset in bench.p["presets"]:
            theirs, ours, paper_shape = (bench.run(workload, preset, policy)
                                         for policy in ("ssdup+", "swale", "ssdup+@paper"))
            row = [f"{workload} {preset}", shown(theirs), shown(ours), over_text(ours, theirs),
                   shown(paper_shape), over_text(ours, paper_shape)]
            text.append("| " + " | ".join(row) + " | |")
    return "\n".join(text)


def shown(line):
    return f"{line['mb_per_s']:.0f}, {line['ssd_bytes'] / 2**30:.1f}"


def over_text(ours, theirs):
    return ", ".join(f"{ours[what] / theirs[what]:.3f}" if theirs[what] else "–"
                     for what in ("mb_per_s", "ssd_bytes"))
