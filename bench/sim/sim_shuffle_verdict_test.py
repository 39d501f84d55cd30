#!/usr/bin/env python3
"""The verdict of sim_shuffle.py says "no" when it must, a wrong constant is noticed, and a tiny run goes
through (sim_shuffle_verdict_test.py FOLDER-OF-BENCH)."""
import json
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import sim_shuffle  # noqa: E402


def figures(base=0.3, lossy=0.06):
    rows = [{"method": "base", "slowdown": base, "papers_slowdown": 0.278},
            {"method": "lossy", "slowdown": lossy,
             "papers_slowdown": 0.084}]
    return {"formats": rows, "simulated": [{"machine": "second", "ranks": 8, **row} for row in rows]}


def verdicts(**changes):
    found = sim_shuffle.judge_all(figures(**changes))["lossy_slowdown_ratio"]
    return found["met"], found["aim_met"]


def run(programs, out, *more):
    sys.argv = ["sim_shuffle.py", programs, out, "--profile", "tiny", *more]
    return sim_shuffle.judge.main(sim_shuffle.__doc__, "sim-shuffle", sim_shuffle.PROFILES,
                                  sim_shuffle.measure, sim_shuffle.text, sim_shuffle.options)


def main():
    assert verdicts() == (True, True)
    assert verdicts(lossy=0.08) == (True, False)
    assert verdicts(lossy=0.1) == (False, False)
    programs = sys.argv[1]
    with tempfile.TemporaryDirectory() as out:
        assert run(programs, out, "--spoil", "1") == 2  # the canary: the papers' numbers are missed
        assert not (pathlib.Path(out) / "sim-shuffle.json").exists()
        # the figures of a tiny run mean nothing
        assert run(programs, out, "--results", out + "/results") in (0, 1)
        written = json.loads((pathlib.Path(out) / "sim-shuffle.json").read_text())
        assert set(written["results"]) == {key.name for key in sim_shuffle.KEYS}
        assert all(value["hit"] for value in written["figures"]["printed"])
        assert (pathlib.Path(out) / "results" / "past-one-node.csv").exists()
    print("ok")


if __name__ == "__main__":
    main()
