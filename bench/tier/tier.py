#!/usr/bin/env python3
"""tier.py PROGRAMS OUT [--profile full|quick|tiny] [--preset FILE]: the tiered write buffer, policy by
policy, on the paper's testbed.

Runs bench_tier of the folder PROGRAMS for every workload, preset and policy; virtual time, so that only the
engine's own CPU and the recovery depend on this machine. Writes OUT/tier.json, the results page, and, where
matplotlib is found, a plot for each figure of the paper. Exit status: 0 if every "must" is met, 1 if one is
not, 2 if a program failed.

A run has four parts, of which each is kept in OUT (parts.py): --only PART... measures these and joins the
others as they are kept there.

The page is computed from OUT/tiered-buffer.json, which has what was measured and no verdict. docs/results
keeps one: `tier.py --page FILE OUT` makes its page anew and puts FILE beside it, `tier.py --check FOLDER`
says whether the folder's page is the one that its JSON gives.
"""
import argparse
import json
import math
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE.parent))
import calibration  # noqa: E402
import page  # noqa: E402
import paper  # noqa: E402
import parts  # noqa: E402
import real  # noqa: E402
import tables  # noqa: E402
import throttle  # noqa: E402
from runs import POLICIES, PROFILES, Bench, Failed, InPaperShape, Kept, keep, workloads  # noqa: E402
from tier_keys import KEYS, NEED_ROOT  # noqa: E402


def best_rival(bench, workload, preset):
    """(ratio, policy) of the fastest policy that sends no more bytes to the SSD than ours."""
    ours = bench.run(workload, preset, "swale")
    rivals = [(bench.run(workload, preset, policy)["mb_per_s"] / ours["mb_per_s"], policy)
              for policy in POLICIES
              if policy != "swale" and bench.run(workload, preset, policy)["ssd_bytes"] <= ours["ssd_bytes"]]
    return max(rivals, default=(0, "none"))


def ssd_bytes_over(bench, workload, preset):
    """Our bytes over SSDUP+'s; where SSDUP+ sends none, none is 1 and any is infinite."""
    ours, theirs = (bench.run(workload, preset, policy)["ssd_bytes"] for policy in ("swale", "ssdup+"))
    return ours / theirs if theirs else (1.0 if ours == 0 else float("inf"))


def figures(bench):
    """{key: (value, samples)} of all keys but those of this machine."""
    p = bench.p
    cells = [(workload, preset) for workload in p["nine"] for preset in p["presets"]]
    speed = {f"{w}/{b}": bench.over(w, b, "mb_per_s") for w, b in cells}
    ssd = {f"{w}/{b}": ssd_bytes_over(bench, w, b) for w, b in cells}
    drained = {f"{w}/{b}": bench.over(w, b, "drained_s") for w, b in cells}
    two = [preset for preset in p["presets"] if preset in "AB"]
    all_ssd = {f"F11:{n}/{b}": bench.over(f"F11:{n}", b, "mb_per_s", "ssd") for n in p["processes"]
               for b in two}
    share = {n: {b: bench.run(f"F11:{n}", b, "swale")["ssd_share"] for b in two} for n in (32, 128)}
    held = [(w, b) for w in p["held_out"] for b in p["presets"]]
    held_speed = {f"{w}/{b}": bench.over(w, b, "mb_per_s") for w, b in held}
    held_ssd = {f"{w}/{b}": ssd_bytes_over(bench, w, b) for w, b in held}
    beyond = {f"{w}/{b}": bench.over(w, b, "mb_per_s") for w in p["beyond"] for b in p["presets"]}
    rivals = {f"{w}/{b}": best_rival(bench, w, b)[0] for w in workloads(p) for b in p["presets"]}
    found = {
        "swale_over_ssdupplus_throughput_min": (min(speed.values()), speed),
        "swale_over_ssdupplus_throughput_mean": (statistics.fmean(speed.values()), speed),
        "swale_ssd_bytes_over_ssdupplus_max": (max(ssd.values()), ssd),
        "swale_ssd_bytes_over_ssdupplus_mean": (statistics.fmean(ssd.values()), ssd),
        "swale_drained_over_ssdupplus_max": (max(drained.values()), drained),
        "swale_over_allssd_throughput_min": (min(all_ssd.values()), all_ssd),
        "swale_ssd_share_32": (max(share[32].values()), share[32]),
        "swale_ssd_share_128": (max(share[128].values()), share[128]),
        "swale_best_rival_over_swale_max": (max(rivals.values()), rivals),
        "beyond_throughput_min": (min(beyond.values()), beyond),
        "heldout_throughput_min": (min(held_speed.values()), held_speed),
        "heldout_ssd_bytes_max": (max(held_ssd.values()), held_ssd),
    }
    per_extent = [line["map_bytes_per_extent"] for line in bench.runs.values()
                  if line["map_extents_max"] > 10_000]
    found["map_bytes_per_extent"] = (max(per_extent), {"runs": len(per_extent)})
    return found


def of_this_machine(bench, out):
    """What is measured in real time: with the calibration of its round beside it."""
    cpu, recovery, recovery_cpu, factors = [], [], [], []
    for number in range(bench.p["rounds"]):
        before = bench.call("--path", out / "tier-calibrate", program="../bench_calibrate")
        lines = [bench.call("cpu", policy) for policy in ("ssdup+", "swale")]
        opened = bench.call("recovery", out / "tier-recovery")
        after = bench.call("--path", out / "tier-calibrate", program="../bench_calibrate")
        factors.append(calibration.factors([before, after]))
        cpu.append(max(max(line["ns_small_ssd"], line["ns_large_ssd"]) for line in lines))
        recovery.append(opened["wall_seconds_per_gib"])
        recovery_cpu.append(opened["cpu_seconds_per_gib"])
        print(f"tier.py: round {number + 1} of {bench.p['rounds']}: {lines} {opened}", file=sys.stderr,
              flush=True)
    return {"engine_cpu_ns_per_request": cpu, "recovery_seconds_per_gib": recovery,
            "recovery_cpu_seconds_per_gib": recovery_cpu}, factors


def of_the_mount(bench, out):
    """Each round's rate through the mount over that of the better pass-through; plain writes beside them."""
    rounds = 2 * bench.p["rounds"] + 1
    requests = math.ceil(bench.p["mount_calls"] / rounds)
    rates = bench.call("--path", out / "tier-mount", "--rounds", rounds, "--requests", requests,
                       program="bench_mount", limit=1800)
    print(f"tier.py: mount: {rates}", file=sys.stderr, flush=True)
    ratios = {}
    for key, what in (("mount_over_passthrough_seq", "sequential_mb_s"),
                      ("mount_over_passthrough_random", "random_per_s")):
        through = map(max, rates["passthrough"][what], rates["passthrough-spliced"][what])
        ratios[key] = [mine / other for mine, other in zip(rates["mount"][what], through)]
    if "as_caller" in rates:
        for key, what in zip(NEED_ROOT, ("creates_per_s", "random_per_s")):
            ratios[key] = [mine / other for mine, other in zip(rates["as_caller"][what],
                                                               rates["as_root"][what])]
    else:
        print(f"tier.py: not measured: {', '.join(NEED_ROOT)}: they need root", file=sys.stderr, flush=True)
    return ratios, rates


def of_a_real_device(bench, out, profile):
    """What was measured, or why nothing was: this machine has no device that its kernel limits."""
    swale = bench.programs.parent.parent / "tools" / "swale"
    try:
        shape = "full" if profile == "full" else "quick"
        return real.measure(swale.absolute(), (out / "tier-real").absolute(), shape, bench.p["rounds"])
    except throttle.Unavailable as why:
        print(f"tier.py: no real device: {why}", file=sys.stderr, flush=True)
        return {"not_measured": str(why)}
    except (RuntimeError, OSError, subprocess.SubprocessError) as failure:
        raise Failed(f"the real device: {failure}") from failure


def judge(found, timed, factors, keys=KEYS):
    rows = {}
    for key in keys:
        if key.name in timed:
            samples = timed[key.name]
            normalised = samples if key.by is None else [key.normalised(value, factor) for value,
                                                         factor in zip(samples, factors)]
            rows[key.name] = {"raw": statistics.median(samples), "value": statistics.median(normalised),
                              "samples": samples,
                              "factor": statistics.median(factor[key.by] for factor in factors) if key.by
                              else 1}
        else:
            value, samples = found[key.name]  # a figure that is missing fails the run
            rows[key.name] = {"value": value, "samples": samples}
        rows[key.name].update(what=key.what, unit=key.unit, must=key.must, aim=key.aim,
                              met=key.meets(rows[key.name]["value"], key.must),
                              aim_met=key.meets(rows[key.name]["value"], key.aim))
    return rows


def of_a_preset(bench, path, out, profile):
    """All workloads and policies on a disk that swale tier measure has measured. The bounds are for A, B and
    C: there is no verdict.
    """
    bench.p = dict(bench.p, presets=(str(path),))
    text = tables.cells(bench)
    runs = list(bench.runs.values())
    named = {key: runs[0][key] for key in ("preset", "preset_source")}
    result = dict(named, profile=profile, runs=runs, took_s=round(time.monotonic() - bench.began, 1))
    (out / "tier-preset.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    head = f"{named['preset']}: {named['preset_source']}"
    return f"{head}\n\n{text}\n\n{out / 'tier-preset.json'}; no bound is judged on this preset"


def draw(bench, table1, out):
    """The plots that were written: none without matplotlib."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return []
    import plots
    return plots.draw(bench, table1, out)


def measure(part, bench, out, profile):
    """What a part finds out."""
    if part == "machine":
        timed, factors = of_this_machine(bench, out)
        return {"timed": timed, "factors": factors}
    if part == "mount":
        timed, rates = of_the_mount(bench, out)
        return {"timed": timed, "rates": rates}
    if part == "real":
        return of_a_real_device(bench, out, profile)
    # the report asks for the runs, and its page is not needed yet
    with tempfile.TemporaryDirectory() as scratch:
        report(bench, {"profile": profile, "made": "", "kernel": "", "model_only": True, "timed": {},
                       "factors": [], "mount": {},
                       "device": {"not_measured": ""}}, pathlib.Path(scratch))
    return {"runs": list(bench.runs.values()), "calls": bench.calls}


def measure_all(bench, out, profile, wanted, fresh):
    """Measures the wanted parts. {part: what is kept of it}: of all parts, or of the wanted ones alone if
    `fresh`.
    """
    for part in wanted:
        began = time.monotonic()
        found = measure(part, bench, out, profile)
        parts.keep(out, part, bench.programs, profile, found)
        print(f"tier.py: part {part}: {time.monotonic() - began:.0f} s; {parts.path_of(out, part)}",
              file=sys.stderr, flush=True)
    return {part: parts.load(out, part, bench.programs, profile)
            for part in (wanted if fresh else parts.PARTS)}


def report(bench, measured, out, plots=None):
    """(rows of the judged figures, tables, comparison with the paper, names of the plots): computed from what
    was measured. Draws the plots, if none are given."""
    found = figures(bench)
    if "not_measured" not in measured["device"]:
        found.update(real.keys(measured["device"]))
    comparison = paper.compare(InPaperShape(bench))
    known = found.keys() | measured["timed"].keys()
    keys = [key for key in KEYS if key.name in known or not (measured["model_only"] or key.name in NEED_ROOT)]
    rows = judge(found, measured["timed"], measured["factors"], keys)
    if plots is None:
        plots = draw(InPaperShape(bench), comparison["table1"], out)
    shown = (tables.table(rows), tables.nine_cells(bench), tables.cells(bench), paper.text(comparison))
    page.write(bench, out, measured, shown, comparison, plots)
    return rows, shown, comparison, plots


def check(folder):
    """Whether the folder's page and CSV are those that its JSON gives. Plots are not compared: each
    matplotlib draws its own.
    """
    kept = json.loads((folder / "tiered-buffer.json").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as made:
        out = pathlib.Path(made)
        for picture in folder.glob("tiered-buffer-*.png"):
            shutil.copy(picture, out)
        report(Kept(kept), kept, out, sorted(path.name for path in out.glob("*.png")))
        wrong = [name for name in ("tiered-buffer.md", "tiered-buffer.csv")
                 if (out / name).read_text(encoding="utf-8") != (folder / name).read_text(encoding="utf-8")]
    for name in wrong:
        print(f"tier.py: {folder / name} is not what {folder / 'tiered-buffer.json'} gives: tier.py --page "
              f"makes it", file=sys.stderr)
    return 1 if wrong else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("programs", type=pathlib.Path, nargs="?")
    parser.add_argument("out", type=pathlib.Path, nargs="?")
    parser.add_argument("--profile", choices=PROFILES, default="full")
    parser.add_argument("--model", action="store_true", help="only what is in virtual time, for a machine "
                        "that is busy")
    parser.add_argument("--real", action="store_true", help="with --model: the real device too, whose "
                        "figures are ratios")
    parser.add_argument("--only", nargs="+", choices=parts.PARTS, help="measures these parts; the others "
                        "are joined as OUT keeps them")
    parser.add_argument("--preset", type=pathlib.Path, metavar="FILE",
                        help="the policies on the disk that swale tier measure has written to FILE, alone "
                        "and without verdicts")
    parser.add_argument("--page", type=pathlib.Path, nargs=2, metavar=("FILE", "OUT"),
                        help="measures nothing: the page of a kept file")
    parser.add_argument("--check", type=pathlib.Path, metavar="FOLDER", help="measures nothing: whether the "
                        "folder's page is that of its kept file")
    arguments = parser.parse_args()
    if arguments.check or arguments.page:
        try:
            if arguments.check:
                return check(arguments.check)
            kept = json.loads(arguments.page[0].read_text(encoding="utf-8"))
            report(Kept(kept), kept, arguments.page[1])
            if arguments.page[0].resolve() != (arguments.page[1] / "tiered-buffer.json").resolve():
                shutil.copy(arguments.page[0], arguments.page[1] / "tiered-buffer.json")
            return 0
        except Failed as failure:
            print(f"tier.py: {failure}", file=sys.stderr)
            return 2
    if not arguments.out:
        parser.error("PROGRAMS and OUT are needed")
    arguments.out.mkdir(parents=True, exist_ok=True)
    # First what needs a quiet machine: who starts this has one now; the model takes its time anywhere.
    wanted = [part for part in parts.PARTS if part in (arguments.only or parts.PARTS)]
    if arguments.model:
        wanted = ["real", "virtual"] if arguments.real else ["virtual"]
    bench = Bench(arguments.programs, arguments.profile)
    try:
        if arguments.preset:
            print(of_a_preset(bench, arguments.preset, arguments.out, arguments.profile))
            return 0
        began = time.monotonic()
        kept_parts = measure_all(bench, arguments.out, arguments.profile, wanted, arguments.only is None)
        measured = parts.join(kept_parts)
        bench = Kept(dict(kept_parts["virtual"]["found"], profile=arguments.profile))
        plots = report(bench, measured, arguments.out)[3]
    except parts.Missing as what:
        print(f"tier.py: no page yet: {what}", file=sys.stderr)
        return 2
    except (Failed, subprocess.TimeoutExpired) as failure:
        print(f"tier.py: {failure}", file=sys.stderr)
        return 2
    text = keep(bench, measured)
    (arguments.out / "tiered-buffer.json").write_text(text, encoding="utf-8")
    kept = json.loads(text)  # of fewer digits: the page is that of the file
    rows, shown, comparison, _ = report(Kept(kept), kept, arguments.out, plots)
    result = {"profile": arguments.profile, "results": rows, "paper": comparison, "mount": measured["mount"],
              "real": measured["device"],
              "runs": list(bench.runs.values()), "took_s": round(time.monotonic() - began, 1)}
    (arguments.out / "tier.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(*shown, f"plots: {', '.join(plots) or 'none: this Python has no matplotlib'}", sep="\n\n")
    missed = [name for name, row in rows.items() if row["met"] is False]
    print(f"\n{arguments.out / 'tier.json'}; {len(missed)} of {len(rows)} "
          f"missed{': ' + ', '.join(missed) if missed else ''}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
