#!/usr/bin/env python3
"""The verdicts of tier.py: a bound that is missed is reported as missed, whatever the others are; one that is
met is not.
"""
import json
import pathlib
import sys
import tempfile
import unittest.mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import paper  # noqa: E402
import parts  # noqa: E402
import real  # noqa: E402
import runs  # noqa: E402
import tables  # noqa: E402
import tier  # noqa: E402
from tier_keys import KEYS  # noqa: E402

TIMED = {key.name: [1.0 if key.must is None else key.must] for key in KEYS if key.by}
FOUND = {key.name: (key.must, {}) for key in KEYS if not key.by}
JUDGED = [key for key in KEYS if key.must is not None]
FACTORS = [{"cpu": 1.0}]


def worse(key):
    return key.must * (1.01 if key.less_is_better else 0.99)


def missed(found, timed, factors=None):
    return [name for name, row in tier.judge(found, timed, factors or FACTORS).items() if row["met"] is False]


def main():
    assert not missed(FOUND, TIMED), "a bound itself is met"
    for key in JUDGED:
        found, timed = dict(FOUND), dict(TIMED)
        if key.by:
            timed[key.name] = [worse(key)]
        else:
            found[key.name] = (worse(key), {})
        assert missed(found, timed) == [key.name], key.name
        rows = tier.judge(found, timed, FACTORS)
        line = next(line for line in tables.table(rows).splitlines() if f"`{key.name}`" in line)
        assert "**NO**" in line, line
    # A slow hour is no excuse beyond its factor, and none for what is no time.
    slow = dict(TIMED, engine_cpu_ns_per_request=[790.0])
    assert not missed(FOUND, slow, [{"cpu": 2.0}])
    assert missed(FOUND, slow) == ["engine_cpu_ns_per_request"]
    try:
        tier.judge({name: value for name, value in FOUND.items() if name != "heldout_throughput_min"}, TIMED,
                   FACTORS)
    except KeyError:
        pass
    else:
        raise AssertionError("a figure that is missing must fail the run")
    bench = Fake({"swale": (100.0, 10), "ssdup+": (111.0, 9), "ssdup": (150.0, 11)})
    assert tier.best_rival(bench, "W", "A") == (1.11, "ssdup+"), "faster with more bytes is no rival"
    assert tier.ssd_bytes_over(Fake({"swale": (1.0, 1), "ssdup+": (1.0, 0)}), "W", "A") == float("inf")
    measured_preset()
    real_device()
    joined_parts()
    kept_page()
    counting()
    print(f"{len(JUDGED)} bounds, each missed once")


def measured_preset():
    """On a measured disk every policy runs every workload, and what is written names the disk."""
    bench = runs.Bench(None, "tiny")
    bench.call = lambda _run, workload, preset, policy: {
        "workload": workload, "preset": "node7", "preset_source": f"measured {preset}", "policy": policy,
        "mb_per_s": 100.0,
        "ssd_bytes": 2**30, "drained_s": 3.0}
    with tempfile.TemporaryDirectory() as folder:
        text = tier.of_a_preset(bench, pathlib.Path("disk.preset"), pathlib.Path(folder), "tiny")
        result = json.loads((pathlib.Path(folder) / "tier-preset.json").read_text(encoding="utf-8"))
    assert [result[key] for key in ("preset", "preset_source", "profile")] == [
        "node7", "measured disk.preset", "tiny"], result
    ran = {(line["workload"], line["policy"]) for line in result["runs"]}
    assert ran == {(workload, policy) for workload in runs.workloads(bench.p) for policy in runs.SHOWN}, ran
    assert "node7: measured disk.preset" in text and "| W1 node7 | 100, 1.0, 3" in text, text
    assert "no bound is judged" in text, text


def rounds_of_a_device():
    """What real.measure might answer."""
    def runs(speeds, ssd, drained):
        return [{"bytes": 100, "seconds": 1.0, "mb_per_s": speed, "ssd_bytes": ssd, "ssdup_plus_bytes": 80,
                 "drained_s": drained} for speed in speeds]
    case = {"plain": runs((4.0, 2.0, 1.0), 0, 10.0), "swale": runs((4.0, 4.0, 4.0), 50, 9.0),
            "ssdup+": runs((2.0, 4.0, 8.0), 60, 9.0),
            "ssd": runs((5.0, 5.0, 5.0), 100, 9.0)}
    worse_case = dict(case, swale=runs((1.0, 1.0, 1.0), 61, 12.0))
    return {"writes_per_second": 150, "processes": 8, "cases": {"fsync": case, "osync": worse_case}}


def real_device():
    """Figures of the real device from rounds that are given: medians of the rounds' ratios, the worst case of
    bytes and draining.
    """
    found = rounds_of_a_device()
    keys = real.keys(found)
    assert {name for name in keys} == {key.name for key in KEYS if key.name.startswith("real_")}, keys
    values = {name: round(value, 3) for name, (value, _) in keys.items()}
    assert values == {"real_fsync_over_plain": 2.0, "real_osync_over_plain": 0.5,
                      "real_fsync_over_ssdupplus": 1.0,
                      "real_fsync_same_requests": 1.0, "real_ssd_bytes_over_ssdupplus": 1.017,
                      "real_ssd_bytes_same_requests": 0.762,
                      "real_drained_over_plain": 1.2}, values
    assert "50.0%" in real.text(found), real.text(found)
    # Twice as fast, but SSDUP+ would have left a quarter to the device: slower on the same requests.
    for run in found["cases"]["fsync"]["swale"]:
        run.update(seconds=0.5, ssdup_plus_bytes=95)
    assert round(real.keys(found)["real_fsync_same_requests"][0], 3) == 0.5, real.keys(found)
    old = rounds_of_a_device()  # older builds did not count what SSDUP+ would send
    for run in (run for runs in old["cases"].values() for of_side in runs.values() for run in of_side):
        run.pop("ssdup_plus_bytes", None)  # a run may be of both cases
    assert "real_fsync_same_requests" not in real.keys(old) and "Each round" not in real.text(old), real.text(
        old)


def answer(*words):
    """What bench_tier might say."""
    if words[0] != "run":
        return {"percentages": [0.5, 0.2], "thresholds": [0.3], "to_ssd": [True, False], "group_s": 1.0,
                "map_s": 1.0, "avl_s": 1.0,
                "hash_sort_s": 1.0}
    values = dict(word.split("=") for word in words[4:])
    numbers = {name: 100 / 3 for name in runs.KEPT_OF_A_RUN}
    return {**numbers, "workload": words[1], "preset": words[2], "policy": words[3], "segments": 16,
            "slots": 64, "ssd_bytes": 2**30,
            "program_mb_per_s": [10 / 3, 20 / 3], "map_extents_max": 20_000, "preset_source": "a test",
            "values": {name: float(value) for name, value in values.items()}}


def programs(folder):
    """Files where the programs would be."""
    for name in parts.PROGRAMS.values():
        path = (folder / "build" / "bench" / "tier" / name).resolve()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name, encoding="utf-8")
    return folder / "build" / "bench" / "tier"


def joined_parts():
    """Each part comes from its last run; one that is missing, or of another build or profile, is named."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder)
        of = programs(out)

        def refused(profile="tiny"):
            try:
                {part: parts.load(out, part, of, profile) for part in parts.PARTS}
            except parts.Missing as what:
                return str(what)
            return None

        found = {"machine": {"timed": {"a": [1]}, "factors": [{"cpu": 1}]},
                 "mount": {"timed": {"b": [2]}, "rates": {"c": 3}}, "real": {"cases": {}},
                 "virtual": {"runs": [], "calls": {}}}
        for part, one in found.items():
            assert f"--only {part}" in refused(), refused()
            parts.keep(out, part, of, "tiny", one)
        assert refused() is None
        joined = parts.join({part: parts.load(out, part, of, "tiny") for part in parts.PARTS})
        assert (joined["timed"], joined["mount"],
                joined["device"]) == ({"a": [1], "b": [2]}, {"c": 3}, {"cases": {}}), joined
        assert joined["model_only"] is False, joined
        alone = parts.join({"virtual": parts.load(out, "virtual", of, "tiny")})
        assert alone["model_only"] is True and alone["device"] == {"not_measured": "--model"}, alone
        assert "another build or profile" in refused("full")
        (of / parts.PROGRAMS["mount"]).write_text("built again", encoding="utf-8")
        assert "tier.py --only mount" in refused(), refused()


def kept_page():
    """The page is what its kept file gives, and one that was changed by hand is found."""
    bench = runs.Bench(None, "tiny")
    bench.call = answer
    with (tempfile.TemporaryDirectory() as folder,
          unittest.mock.patch.object(real, "measure", lambda *_: rounds_of_a_device()),
          unittest.mock.patch.object(tier, "draw", lambda *_: [])):  # these runs have nothing to draw
        out = pathlib.Path(folder)
        bench.programs = programs(out)
        measured = parts.join(tier.measure_all(bench, out, "tiny", ("real", "virtual"), True))
        tier.report(bench, measured, out, [])
        text = runs.keep(bench, measured)
        (out / "tiered-buffer.json").write_text(text, encoding="utf-8")
        kept = json.loads(text)
        tier.report(runs.Kept(kept), kept, out, [])
        assert tier.check(out) == 0
        page = (out / "tiered-buffer.md").read_text(encoding="utf-8")
        assert "`real_ssd_bytes_same_requests` | 0.762" in page, page
        assert "| swale | all that is judged | 16 | 64 | A |" in page, page
        (out / "tiered-buffer.md").write_text(page.replace("33.3", "33.4"), encoding="utf-8")
        assert tier.check(out) == 1
    try:
        runs.Kept(kept).run("W2", "A", "swale")
    except runs.Failed:
        pass
    else:
        raise AssertionError("a run that was not kept has no figures")


def counting():
    """One preset counts, not the better of two; what has one value counts by it; what lacks the preset does
    not count.
    """
    def row(ours):
        return paper.Row("1", "a test", 100.0, ours, "", tolerance=0.1, absolute=False)
    assert row({"A": 100.0, "B": 150.0}).reproduced() is False
    assert row({"A": 150.0, "B": 105.0}).reproduced() is True
    assert row({"A": 105.0}).reproduced() is True and row({"-": 150.0}).reproduced() is False
    assert row({"A": 100.0, "C": 100.0}).reproduced() is None


class Fake:
    """Runs whose figures are given: policy -> (MB/s, bytes to the SSD)."""

    def __init__(self, policies):
        self.policies = policies

    def run(self, _workload, _preset, policy):
        speed, ssd = self.policies.get(policy, (1.0, 10**6))
        return {"mb_per_s": speed, "ssd_bytes": ssd}


if __name__ == "__main__":
    sys.exit(main())
