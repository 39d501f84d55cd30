#!/usr/bin/env python3
"""judged.py keep NAME JSON | write | check | --self-test: what the judged benchmarks printed when they were
run last.

keep   makes docs/results/judged/NAME.json of a benchmark's result: its judged figures, the machine, the day.
write  makes docs/results/judged.md of all that is kept.
check  says whether the page is what the kept files give.

Kept by hand after a run on a quiet machine, missed figures too: `scripts/judged.py keep tls
build/bench/tls.json`. The pages of imd and of the tiered buffer have files of their own (scripts/figures.py,
bench/tier/tier.py).
"""
import datetime
import json
import os
import pathlib
import platform
import re
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
KEPT = "docs/results/judged"
PAGE = "docs/results/judged.md"
MADE_BY = {"meta": "make bench-meta", "tls": "make bench-rpc", "rpc": "make bench-rpc",
           "shuffle": "make bench-shuffle",
           "source": "make bench-source", "sim-shuffle": "make sim-shuffle", "python": "make bench-python",
           "fs": "make bench-fs", "optimize": "make bench-optimize", "instructions": "bench/instructions.py"}


def cpu():
    found = re.search(r"^model name\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8"),
                      re.M)
    return f"{os.cpu_count()} cores, {found[1] if found else platform.machine()}, Linux {platform.release()}"


def rows_of(result):
    """The judged figures of any of our benchmarks, alike."""
    found = result.get("rows", result.get("results"))
    if isinstance(found, dict):
        found = [{"key": key, **row} for key, row in found.items()]
    rows = []
    for row in found:
        if "ratio" in row:  # of Rpc: a fabric, a size, so many in flight
            row = {"key": f"rpc_{row['fabric']}_{row['size']}_{row['depth']}", "value": row["ratio"],
                   "must": row["must"],
                   "at_least": row["depth"] != 1, "what": f"over UCX alone, {row['unit']}"}  # fmt: skip
        value, must, aim = row.get("normalised", row.get("value")), row.get("must"), row.get("aim")
        if must is None and aim is None:
            continue
        if "less_is_better" in row:
            less = row["less_is_better"]
        elif "at_least" in row:
            less = not row["at_least"]
        else:
            less = must is None or aim is None or aim <= must
        rows.append({"key": row["key"], "what": row.get("what", ""), "unit": row.get("unit", ""),
                     "value": value, "must": must,
                     "aim": aim, "less_is_better": less})  # fmt: skip
    return rows


def met(row, bound):
    if row[bound] is None:
        return "–"
    good = row["value"] <= row[bound] if row["less_is_better"] else row["value"] >= row[bound]
    return "yes" if good else "**no**"


def keep(root, name, path):
    if name not in MADE_BY:
        sys.exit(f"judged.py: {name}: expected one of {', '.join(MADE_BY)}")
    result = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    kept = {"profile": result.get("profile", "full"), "machine": cpu(),
            "day": datetime.date.today().isoformat(),
            "load_average": result.get("load_average"), "rows": rows_of(result)}  # fmt: skip
    folder = root / KEPT
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n",
                                         encoding="utf-8")


def number(value):
    return "–" if value is None else f"{value:,.4g}"


def page(root):
    lines = ["# What is judged, and what it was", "",
             "Made by `scripts/judged.py write` of the files in [judged](judged), each the judged part of "
             "one run. Ratios are of one run, "
             "against rivals at their best; absolute figures are normalised by a calibration of the same "
             "round. "
             "[How we measure](../design/benchmarks.md). Missed figures stand here as they came.", ""]
    for name in sorted(MADE_BY):
        path = root / KEPT / f"{name}.json"
        if not path.exists():
            continue
        kept = json.loads(path.read_text(encoding="utf-8"))
        load = kept["load_average"]
        lines += [f"## {name}", "",
                  f"`{MADE_BY[name]}`, profile {kept['profile']}, {kept['day']}, {kept['machine']}"
                  + (f", load {load[0]:.1f} at its end" if load else "") + ".", "",
                  "| figure | value | must | met | aim | met | |", "|---|---|---|---|---|---|---|"]
        for row in kept["rows"]:
            sign = "≤" if row["less_is_better"] else "≥"
            value = f"{number(row['value'])} {row['unit']}".strip()
            must = "–" if row["must"] is None else f"{sign} {number(row['must'])}"
            aim = "–" if row["aim"] is None else f"{sign} {number(row['aim'])}"
            lines.append(f"| `{row['key']}` | {value} | {must} | {met(row, 'must')} | {aim} | "
                         f"{met(row, 'aim')} | {row['what']} |")
        lines.append("")
    return "\n".join(lines)


def check(root):
    written = (root / PAGE).read_text(encoding="utf-8") if (root / PAGE).exists() else ""
    return written == page(root)


def self_test():
    with tempfile.TemporaryDirectory() as scratch:
        root = pathlib.Path(scratch)
        result = root / "tls.json"
        result.write_text(json.dumps({"rows": [
            {"key": "fast", "value": 2.0, "must": 1.0, "aim": 3.0, "at_least": True},
            {"key": "small", "value": 2.0, "must": 1.0, "aim": 0.5, "at_least": False}]}), encoding="utf-8")
        keep(root, "tls", result)
        text = page(root)
        (root / PAGE).write_text(text, encoding="utf-8")
        assert "| `fast` | 2 | ≥ 1 | yes | ≥ 3 | **no** |" in text, text
        assert "| `small` | 2 | ≤ 1 | **no** | ≤ 0.5 | **no** |" in text, text
        assert check(root), "the page that was just written is said to be another"
        (root / PAGE).write_text(text.replace("| 2 |", "| 3 |", 1), encoding="utf-8")
        assert not check(root), "a number that was changed by hand went unnoticed"
    print("judged: the check notices a number that was changed by hand")


def main():
    words = sys.argv[1:]
    if words == ["--self-test"]:
        self_test()
    elif len(words) == 3 and words[0] == "keep":
        keep(ROOT, words[1], words[2])
    elif words == ["write"]:
        (ROOT / PAGE).write_text(page(ROOT), encoding="utf-8")
    elif words == ["check"]:
        if not check(ROOT):
            sys.exit(f"{PAGE} is not what the files in {KEPT} give: scripts/judged.py write makes it")
        print("judged: the page is that of the kept files")
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
