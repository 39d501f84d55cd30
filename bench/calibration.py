"""How fast the machine was in a round, as factors: 1.0 is the hour in which the bounds on times were set.

A bound on a time is judged on the time divided by the factor of its own round; a ratio to a rival of the same
round needs none. The factors:
  cpu   the geometric mean of a sort, copies, a checksum and dependent reads from memory (bench_calibrate)
  cold  of work that waits for storage and computes: the geometric mean of cpu and of random reads from
  storage wait  of work that computes on all cores and is timed by the clock: how much longer others on the
  machine make it
docs/design/benchmarks.md ("Calibration") tells where the reference comes from.
"""
import math

# What bench_calibrate reports in the hour of the bounds.
REFERENCE = {"sort_s": 0.0475, "copy_s": 0.0281, "checksum_s": 0.1273, "chase_s": 0.0182, "storage_us": 44.0,
             "wait": 1.0}
PARTS = {"cpu": ("sort_s", "copy_s", "checksum_s", "chase_s"), "storage": ("storage_us",), "wait": ("wait",)}


class Missing(Exception):
    """A round without a calibration cannot be judged."""


def geometric_mean(values):
    values = list(values)
    return math.exp(sum(map(math.log, values)) / len(values))


def factors(calibrations):
    """{"cpu": ..., "storage": ..., "wait": ..., "cold": ...} of what bench_calibrate reported in one round.
    """
    if not calibrations:
        raise Missing("a round has no calibration")
    found = {name: geometric_mean(line[part] / REFERENCE[part] for line in calibrations for part in parts)
             for name, parts in PARTS.items()}
    return {**found, "cold": geometric_mean((found["cpu"], found["storage"]))}
