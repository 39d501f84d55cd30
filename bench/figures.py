"""From the lines that the benchmark programs report to the figures that are judged.

Every sample belongs to a round; what is divided or subtracted was measured in the same round. A figure is the median
of its samples, and keeps them all.
"""
import statistics

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

    def samples(self, name, *path):
        """The values at path of all lines of this name, in order; [] if there are none."""
        return [at(line, path) for _, line in self._by_name.get(name, [])]

    def rounds(self, name):
        return sorted({number for number, _ in self._by_name.get(name, [])})

    def of_round(self, number, name, *path):
        """The mean over the lines of a round: what was measured before and after the subject."""
        return statistics.fmean(at(line, path) for round_of, line in self._by_name[name] if round_of == number)

    def combine(self, names, function):
        """One sample a round that has all the names: function(mean of the first, mean of the second, ...)."""
        common = set.intersection(*(set(self.rounds(name)) for name, _ in names)) if names else set()
        return [function(*(self.of_round(number, name, *path) for name, path in names)) for number in sorted(common)]


def at(line, path):
    for step in path:
        line = line[step]
    return line


def minus(a, b):
    return a - b


def net_cpu(lines, name, generator="generate", field="cpu_ns_per_record"):
    return lines.combine([(name, (field,)), (generator, (field,))], minus)


# The store whose CPU is compared with Swale's.
CPU_RATIOS = {
    "leveldb_cpu_over_swale": "leveldb-4m", "leveldb_uncompressed_cpu_over_swale": "leveldb-4m-uncompressed",
    "rocksdb_cpu_over_swale": "rocksdb", "rocksdb_uncompressed_cpu_over_swale": "rocksdb-uncompressed",
    "sst_cpu_over_swale": "sst", "sst_uncompressed_cpu_over_swale": "sst-uncompressed",
}  # fmt: skip


def judged_samples(lines):
    """{key: samples} for each key that was measured."""
    swale_net = net_cpu(lines, "swale")
    found = {
        "index_cpu_ns_per_record": swale_net,
        "index_wall_over_raw_append": lines.combine([("swale", ("wall_s",)), ("raw", ("wall_s",))], lambda a, b: a / b),
        "pipeline_cpu_ns_per_record": net_cpu(lines, "ranks_swale", "ranks_generate", "cpu_between_ns_per_record"),
        "bytes_ratio": lines.samples("swale", "bytes_ratio"),
        "slowdown_storage_bound": [x for ratios in lines.samples("slowdown_storage", "ratio") for x in ratios],
        "slowdown_memory_speed": [x for ratios in lines.samples("slowdown_memory", "ratio") for x in ratios],
        "query_cold_us_p50": lines.samples("query_cold", "us", "p50"),
        "query_cold_us_p99": lines.samples("query_cold", "us", "p99"),
        "query_cold_bytes_p50": [max(asked, fetched) for asked, fetched in
                                 zip(lines.samples("query_cold", "asked_bytes", "p50"),
                                     lines.samples("query_cold", "fetched_bytes", "p50"))],
        "open_and_query_cold_ms_p50": lines.samples("query_open", "ms", "p50"),
        "query_warm_us_p50": lines.samples("query_warm", "us", "p50"),
        "topk_bytes_read": lines.samples("topk", "bytes_read"),
        "topk_cold_us_p50": lines.samples("topk", "cold", "us", "p50"),
        "topk_warm_us_p50": lines.samples("topk", "warm", "us", "p50"),
        "topk_index_cpu_ns_per_record": lines.samples("topk", "load", "index_cpu_ns_per_record", "p50"),
        "topk_index_bytes": lines.samples("topk", "load", "index_disk_bytes"),
        "batch_get_keys_per_s": lines.samples("query_batch", "keys_per_s", "p50"),
    }
    # A maximum is a maximum, whatever its name in the statistics of a noisy machine.
    depths = lines.samples("query_cold", "depth_max") + lines.samples("query_first", "depth_max")
    found["query_cold_depth_max"] = [max(depths)] if depths else []
    memory = lines.samples("swale", "rank_memory_bytes_max") + lines.samples("ranks_swale", "rank_memory_bytes_max")
    found["rank_memory_bytes_max"] = [max(memory)] if memory else []
    for key, rival in CPU_RATIOS.items():
        if swale_net:
            found[key] = lines.combine([(rival + ".load", ("cpu_ns_per_record",)), ("generate", ("cpu_ns_per_record",)),
                                        ("swale", ("cpu_ns_per_record",))], lambda a, b, c: (a - b) / (c - b))
    return found


def cold_problem(lines, epochs):
    """Why the cold queries were not cold, or None: each epoch's block is at least one page that only storage has."""
    for name in ("query_cold", "query_first"):
        for fetched in lines.samples(name, "fetched_bytes", "min"):
            if fetched < epochs * 4096:
                return f"{name} fetched {fetched:.0f} bytes for {epochs} epochs: the page cache was not empty"
    return None


def judge(lines, epochs):
    """{key: figure with must, aim, met, aim_met}; a key that was not measured is not met."""
    found = judged_samples(lines)
    not_cold = cold_problem(lines, epochs)
    results = {}
    for key in KEYS:
        samples = found.get(key.name) or []
        entry = figure(samples, key.unit) if samples else {"value": None, "unit": key.unit, "note": "not available"}
        met, aim_met = (key.meets(entry["value"], bound) if samples else (False if bound is not None else None)
                        for bound in (key.must, key.aim))
        if not_cold and "cold" in key.name:
            entry["note"], met, aim_met = not_cold, False, False
        results[key.name] = {**entry, "what": key.what, "must": key.must, "aim": key.aim,
                             "less_is_better": key.less_is_better, "met": met, "aim_met": aim_met}
    return results


RIVALS = ("leveldb-4m", "leveldb-4m-uncompressed", "leveldb-64m", "rocksdb", "rocksdb-uncompressed",
          "rocksdb-compacted", "sst", "sst-uncompressed")


def stores(lines):
    """{store: {figure: ...}} for Swale, the rivals and plain appends: what the README's table shows."""
    table = {}

    def put(store, name, samples, unit):
        if samples:
            table.setdefault(store, {})[name] = figure(samples, unit)

    for store, load in (("swale", "swale"), ("append", "append"), *((rival, rival + ".load") for rival in RIVALS)):
        put(store, "cpu_ns_per_record", net_cpu(lines, load), "ns")
        put(store, "wall_s_per_20M", [wall / records * 20e6 for wall, records in
                                      zip(lines.samples(load, "wall_s"), lines.samples(load, "records"))], "s")
        put(store, "bytes_ratio", lines.samples(load, "bytes_ratio"), "")
        put(store, "records", lines.samples(load, "records"), "")
    put("swale", "cold_us_p50", lines.samples("query_cold", "us", "p50"), "us")
    put("swale", "cold_us_p99", lines.samples("query_cold", "us", "p99"), "us")
    put("swale", "open_and_query_ms", lines.samples("query_open", "ms", "p50"), "ms")
    put("swale", "warm_us_p50", lines.samples("query_warm", "us", "p50"), "us")
    put("swale", "miss_us_p50", lines.samples("query_miss", "us", "p50"), "us")
    put("swale", "first_query_us_p50", lines.samples("query_first", "us", "p50"), "us")
    for rival in RIVALS:
        query = rival + ".query"
        for name, measure, part in (("cold_us_p50", "cold_us", "p50"), ("cold_us_p99", "cold_us", "p99"),
                                    ("warm_us_p50", "warm_us", "p50")):
            # A range or a get per epoch: whichever is faster for the rival, judged by the median.
            pairs = zip(lines.samples(query, "gets"), lines.samples(query, "range"))
            put(rival, name, [min(both, key=lambda way: way[measure]["p50"])[measure][part] for both in pairs], "us")
        put(rival, "open_and_query_ms", lines.samples(query, "open_and_query_ms", "p50"), "ms")
    put("append", "cold_us_p50", [x * 1e3 for x in lines.samples("scan", "cold_ms", "p50")], "us")
    put("append", "warm_us_p50", [x * 1e3 for x in lines.samples("scan", "warm_ms", "p50")], "us")
    for name, unit in (("cpu_ns_per_record", "ns"), ("wall_s_per_20M", "s"), ("bytes_ratio", ""), ("cold_us_p50", "us"),
                       ("warm_us_p50", "us"), ("open_and_query_ms", "ms"), ("records", "")):
        put("duckdb", name, lines.samples("duckdb", name), unit)
    return table
