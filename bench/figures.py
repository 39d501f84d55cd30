"""From the lines that the benchmark programs report to the figures that are judged.

Every sample belongs to a round: what is divided or subtracted was measured in the same round, and a time is
normalised by the calibration of its round. A figure is the median of its samples, and keeps them all.
"""
import statistics

import calibration
from judge import judged
from keys import KEYS


def figure(samples, unit="", note=""):
    return {"value": statistics.median(samples), "unit": unit, "min": min(samples), "max": max(samples),
            "samples": list(samples), **({"note": note} if note else {})}


class Lines:
    """What the programs reported: (round, name of the measurement, line)."""

    def __init__(self, lines):
        self._by_name = {}
        for entry in lines:
            self._by_name.setdefault(entry["name"], []).append((entry["round"], entry["line"]))

    def dated(self, name, *path):
        """[(round, value at path)] of all lines of this name, in order; [] if there are none."""
        return [(number, at(line, path)) for number, line in self._by_name.get(name, [])]

    def samples(self, name, *path):
        return [value for _, value in self.dated(name, *path)]

    def rounds(self, name):
        return sorted({number for number, _ in self._by_name.get(name, [])})

    def of_round(self, number, name, *path):
        """The mean over the lines of a round: what was measured before and after the subject."""
        return statistics.fmean(at(line, path) for round_of, line in self._by_name[name]
                                if round_of == number)

    def combine(self, names, function):
        """(round, function(mean of the first, mean of the second, ...)) for each round that has all the
        names.
        """
        common = set.intersection(*(set(self.rounds(name)) for name, _ in names)) if names else set()
        return [(number, function(*(self.of_round(number, name, *path) for name, path in names)))
                for number in sorted(common)]

    def factors(self, number):
        """The calibration's factors in a round."""
        return calibration.factors([line for round_of, line in self._by_name.get("calibrate", [])
                                    if round_of == number])


def at(line, path):
    for step in path:
        line = line[step]
    return line


def minus(a, b):
    return a - b


def divided(a, b):
    return a / b


def larger(a, b):
    return [(number, max(one, other)) for (number, one), (_, other) in zip(a, b)]


def maximum(dated):
    """A maximum is a maximum, whatever its name in the statistics of a noisy machine."""
    return [max(dated, key=lambda sample: sample[1])] if dated else []


def net_cpu(lines, name, generator="generate", field="cpu_ns_per_record"):
    return lines.combine([(name, (field,)), (generator, (field,))], minus)


# The store whose CPU is compared with Swale's.
CPU_RATIOS = {
    "leveldb_cpu_over_swale": "leveldb-4m", "leveldb_uncompressed_cpu_over_swale": "leveldb-4m-uncompressed",
    "rocksdb_cpu_over_swale": "rocksdb", "rocksdb_uncompressed_cpu_over_swale": "rocksdb-uncompressed",
    "sst_cpu_over_swale": "sst-uncompressed", "sst_snappy_cpu_over_swale": "sst",
}  # fmt: skip


def query_samples(lines, key, name):
    """Of cold queries: their time and bytes."""
    return {
        f"{key}_us_p50": lines.dated(name, "us", "p50"),
        f"{key}_us_p99": lines.dated(name, "us", "p99"),
        f"{key}_bytes_p50": larger(lines.dated(name, "asked_bytes", "p50"),
                                   lines.dated(name, "fetched_bytes", "p50")),
    }


def judged_samples(lines):
    """{key: [(round, sample)]} for each key that was measured."""
    swale_net = net_cpu(lines, "swale")
    found = {
        "index_cpu_ns_per_record": swale_net,
        "index_wall_over_raw_append": lines.combine([("swale", ("wall_s",)), ("raw", ("wall_s",))], divided),
        "index_wall_plain_over_raw_append": lines.combine([("swale_plain_ends", ("wall_s",)),
                                                           ("raw_sync_each_epoch", ("wall_s",))], divided),
        "pipeline_cpu_ns_per_record": net_cpu(lines, "ranks_swale", "ranks_generate",
                                              "cpu_between_ns_per_record"),
        "bytes_ratio": lines.dated("swale", "bytes_ratio"),
        "slowdown_storage_bound": [(n, x) for n, ratios in lines.dated("slowdown_storage", "ratio")
                                   for x in ratios],
        "slowdown_memory_speed": [(n, x) for n, ratios in lines.dated("slowdown_memory", "ratio")
                                  for x in ratios],
        **query_samples(lines, "query_first", "query_first"),
        **query_samples(lines, "query_footer_resident", "query_footer_resident"),
        "query_depth_max": maximum(lines.dated("query_footer_resident", "depth_max")
                                   + lines.dated("query_first", "depth_max")),
        "open_and_query_cold_ms_p50": lines.dated("query_open", "ms", "p50"),
        "query_warm_us_p50": lines.dated("query_warm", "us", "p50"),
        "query_warm_mapped_us_p50": lines.dated("query_warm_mapped", "us", "p50"),
        "topk_bytes_read": lines.dated("topk", "bytes_read"),
        "topk_cold_us_p50": lines.dated("topk", "cold", "us", "p50"),
        "topk_warm_us_p50": lines.dated("topk", "warm", "us", "p50"),
        "topk_index_cpu_ns_per_record": lines.dated("topk", "load", "index_cpu_ns_per_record", "p50"),
        "topk_index_bytes": lines.dated("topk", "load", "index_disk_bytes"),
        "batch_get_keys_per_s": lines.dated("query_batch", "keys_per_s", "p50"),
        "rank_memory_bytes_max": maximum(lines.dated("swale", "rank_memory_bytes_max") +
                                         lines.dated("ranks_swale", "rank_memory_bytes_max")),
    }
    for key, rival in CPU_RATIOS.items():
        if swale_net:
            found[key] = lines.combine([(rival + ".load", ("cpu_ns_per_record",)),
                                        ("generate", ("cpu_ns_per_record",)),
                                        ("swale", ("cpu_ns_per_record",))], lambda a, b, c: (a - b) / (c - b))
    return found


def cold_problem(lines, epochs):
    """Why the cold queries were not cold, or None: each epoch's block is at least one page that only storage
    has.
    """
    for name in ("query_footer_resident", "query_first"):
        for fetched in lines.samples(name, "fetched_bytes", "min"):
            if fetched < epochs * 4096:
                return f"{name} fetched {fetched:.0f} bytes for {epochs} epochs: the page cache was not empty"
    return None


COLD = ("query_first", "query_footer", "open_and_query_cold", "query_depth")


def judge(lines, epochs):
    """{key: figure with must, aim, met, aim_met}; a key that was not measured is not met. What is judged, the
    figure's value, is normalised; `raw` is the median as it was measured, and `factor` the median of the
    factors."""
    found = judged_samples(lines)
    not_cold = cold_problem(lines, epochs)
    results = {}
    for key in KEYS:
        entry = judged(key, found.get(key.name) or [], lines.factors)
        if not_cold and key.name.startswith(COLD):
            entry.update(note=not_cold, met=False, aim_met=False)
        results[key.name] = entry
    return results


RIVALS = ("leveldb-4m", "leveldb-4m-uncompressed", "leveldb-64m", "rocksdb", "rocksdb-uncompressed",
          "rocksdb-compacted", "sst", "sst-uncompressed")


WAYS = ("gets", "parallel_gets", "range")


def quickest_ways(lines, query, measure):
    """A range, gets one after the other or gets by a thread each: whichever is fastest for the rival, by the
    median.
    """
    for ways in zip(*(lines.samples(query, way) for way in WAYS)):
        yield min(ways, key=lambda way: way[measure]["p50"])


def stores(lines):
    """{store: {figure: ...}} for Swale, the rivals and plain appends: what the README's table shows."""
    table = {}

    def put(store, name, samples, unit):
        if samples:
            table.setdefault(store, {})[name] = figure(samples, unit)

    for store, load in (("swale", "swale"), ("swale-plain-ends", "swale_plain_ends"), ("append", "append"),
                        *((rival, rival + ".load") for rival in RIVALS)):
        put(store, "cpu_ns_per_record", [value for _, value in net_cpu(lines, load)], "ns")
        put(store, "wall_s_per_20M", [wall / records * 20e6 for wall, records in
                                      zip(lines.samples(load, "wall_s"), lines.samples(load, "records"))],
            "s")
        put(store, "bytes_ratio", lines.samples(load, "bytes_ratio"), "")
        put(store, "records", lines.samples(load, "records"), "")
    # A rival has its tables open, and their indexes and filters in memory, when it is asked; so Swale has its
    # footer.
    put("swale", "cold_us_p50", lines.samples("query_footer_resident", "us", "p50"), "us")
    put("swale", "cold_us_p99", lines.samples("query_footer_resident", "us", "p99"), "us")
    put("swale", "open_and_query_ms", lines.samples("query_open", "ms", "p50"), "ms")
    put("swale", "warm_us_p50", lines.samples("query_warm", "us", "p50"), "us")
    put("swale", "miss_us_p50", lines.samples("query_miss", "us", "p50"), "us")
    put("swale", "first_query_us_p50", lines.samples("query_first", "us", "p50"), "us")
    put("swale-mapped", "warm_us_p50", lines.samples("query_warm_mapped", "us", "p50"), "us")
    for rival in RIVALS:
        query = rival + ".query"
        for name, measure, part in (("cold_us_p50", "cold_us", "p50"), ("cold_us_p99", "cold_us", "p99"),
                                    ("warm_us_p50", "warm_us", "p50")):
            put(rival, name, [way[measure][part] for way in quickest_ways(lines, query, measure)], "us")
        put(rival, "open_and_query_ms", lines.samples(query, "open_and_query_ms", "p50"), "ms")
    put("append", "cold_us_p50", [x * 1e3 for x in lines.samples("scan", "cold_ms", "p50")], "us")
    put("append", "warm_us_p50", [x * 1e3 for x in lines.samples("scan", "warm_ms", "p50")], "us")
    for name, unit in (("cpu_ns_per_record", "ns"), ("wall_s_per_20M", "s"), ("bytes_ratio", ""),
                       ("cold_us_p50", "us"),
                       ("warm_us_p50", "us"), ("open_and_query_ms", "ms"), ("records", "")):
        put("duckdb", name, lines.samples("duckdb", name), unit)
    return table
