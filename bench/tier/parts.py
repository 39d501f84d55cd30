"""The parts of a run of tier.py, each kept in OUT by itself, so that they can be measured at different hours.

machine (the engine's CPU, the recovery) and mount need a quiet machine. real (the limited device) and virtual
(the model) do not care. OUT/tier-part-NAME.json has what a part has measured, and the checksum of the program
that did; a part of another program or profile is not joined.
"""
import datetime
import hashlib
import json
import pathlib
import platform

PARTS = ("machine", "mount", "real", "virtual")
PROGRAMS = {"machine": "bench_tier", "mount": "bench_mount", "real": "../../tools/swale",
            "virtual": "bench_tier"}


class Missing(Exception):
    """What is not kept, or cannot be joined, for people."""


def path_of(out, part):
    return pathlib.Path(out) / f"tier-part-{part}.json"


def program_of(programs, part):
    path = pathlib.Path(programs) / PROGRAMS[part]
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    except OSError as failure:
        raise Missing(f"{path}: {failure.strerror}: build it first (make bench-tier does)") from failure


def keep(out, part, programs, profile, found):
    kept = {"part": part, "profile": profile, "program": program_of(programs, part),
            "kernel": platform.release(),
            "made": f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d}", "found": found}
    path_of(out, part).write_text(json.dumps(kept) + "\n", encoding="utf-8")


def load(out, part, programs, profile):
    path = path_of(out, part)
    if not path.exists():
        raise Missing(f"{path} is not there: run tier.py --only {part}")
    kept = json.loads(path.read_text(encoding="utf-8"))
    if kept["profile"] != profile or kept["program"] != program_of(programs, part):
        raise Missing(f"{path} was measured by another build or profile: run tier.py --only {part}")
    return kept


def join(kept):
    """What a run has found out, but for the model's runs: {part: load()} as report() takes it."""
    found = {part: one["found"] for part, one in kept.items()}
    of_machine = found.get("machine", {"timed": {}, "factors": []})
    of_mount = found.get("mount", {"timed": {}, "rates": {}})
    return {"profile": kept["virtual"]["profile"], "made": max(one["made"] for one in kept.values()),
            "kernel": kept["virtual"]["kernel"],
            "model_only": not {"machine", "mount"} <= found.keys(),
            "timed": {**of_machine["timed"], **of_mount["timed"]},
            "factors": of_machine["factors"], "mount": of_mount["rates"],
            "device": found.get("real", {"not_measured": "--model"})}
