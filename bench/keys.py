"""The figures that are judged: what each is, its unit, what it must be and what it aims at, and whether less
is better.

A must or an aim of None is not judged. The bounds are those of the issues "Fast" and "Measured honestly";
nothing else in bench/ knows them. A bound on a time holds for the hour in which it was set: `by` names the
factor by which the figure is divided first (calibration.py). A count, a number of bytes or a ratio is judged
as it is, but for the ratio of a wall time that computes to one that only waits for a device.
"""
from dataclasses import dataclass


@dataclass(frozen=True)
class Key:
    name: str
    what: str
    unit: str
    must: float | None
    aim: float | None
    less_is_better: bool = True
    by: str | None = None

    def meets(self, value, bound):
        """None where there is no bound."""
        if bound is None:
            return None
        return value <= bound if self.less_is_better else value >= bound

    def normalised(self, value, factors):
        """What it would be in the hour of the bounds; a rate falls as a time grows."""
        if self.by is None:
            return value
        return value / factors[self.by] if self.less_is_better else value * factors[self.by]


KEYS = (
    Key("index_cpu_ns_per_record", "one stream: user and system CPU of the process, net of generating", "ns",
        40, 26, by="cpu"),
    Key("index_wall_over_raw_append", "the same work: wall time over raw O_DIRECT appends of the same "
        "bytes, synced at their "
        "end; epoch ends overlap", "", 1.5, 1.25, by="wait"),
    Key("index_wall_plain_over_raw_append", "the same without overlap: each epoch's end is waited for, over "
        "raw appends that "
        "are synced as often", "", None, None, by="wait"),
    Key("pipeline_cpu_ns_per_record", "4 ranks, shuffle through shared memory: CPU of all, net of "
        "generating", "ns", 85, 50,
        by="cpu"),
    Key("bytes_ratio", "bytes on disk over bytes of keys and values", "", 1.036, 1.031),
    Key("slowdown_storage_bound", "time of a frame over plain files, a device of 100 MB/s for each of 4 "
        "ranks", "", 1.05, 1.036),
    Key("slowdown_memory_speed", "time of a frame over plain files by write(), on /dev/shm that was touched "
        "before, in either "
        "order", "", 5, 3),
    Key("query_first_us_p50", "a trajectory of 5 epochs, fresh process, nothing resident, opening not "
        "included", "us", 330, 200,
        by="cold"),
    Key("query_first_us_p99", "the same, 99 of 100 are faster", "us", None, 300, by="cold"),
    Key("query_first_bytes_p50", "the same: bytes fetched from storage or asked for, the larger", "B",
        80_000, 50_000),
    Key("query_depth_max", "cold: longest chain of reads that waited for one another", "", 3, 2),
    Key("query_footer_resident_us_p50", "a trajectory, nothing resident but the partition's footer", "us",
        None, 200, by="cold"),
    Key("query_footer_resident_us_p99", "the same, 99 of 100 are faster", "us", None, None, by="cold"),
    Key("query_footer_resident_bytes_p50", "the same: bytes fetched from storage or asked for, the larger",
        "B", None, None),
    Key("open_and_query_cold_ms_p50", "a trajectory from a fresh process, nothing resident, path walk "
        "included", "ms", 1.3, 0.9,
        by="cold"),
    Key("query_warm_us_p50", "a trajectory from the page cache by system calls (the default), checksums "
        "verified", "us", 14, 6.5,
        by="cpu"),
    Key("query_warm_mapped_us_p50", "the same with imd.map=auto", "us", 14, 6.5, by="cpu"),
    Key("topk_bytes_read", "the 10 largest of a field in one epoch: bytes fetched or asked for, the larger",
        "B", 2_000_000, 200_000),
    Key("topk_cold_us_p50", "the same query: directory open, nothing else resident", "us", None, None,
        by="cold"),
    Key("topk_warm_us_p50", "the same query from the page cache", "us", None, None, by="cpu"),
    Key("topk_index_cpu_ns_per_record", "CPU of writing with the field indexed, less that without", "ns",
        None, None, by="cpu"),
    Key("topk_index_bytes", "bytes on disk with the field indexed, less those without", "B", None, None),
    Key("batch_get_keys_per_s", "100,000 random keys of one epoch, from the page cache, in a second of one "
        "core", "keys/s", 800_000, 2_300_000,
        less_is_better=False, by="cpu"),
    Key("rank_memory_bytes_max", "peak memory of a rank above its baseline, budget 64 MiB", "B", 67_108_864,
        None),
    Key("leveldb_cpu_over_swale", "CPU of LevelDB, its defaults (Snappy), for the same records over "
        "Swale's, both net of "
        "generating", "", 60, 100, less_is_better=False),
    Key("leveldb_uncompressed_cpu_over_swale", "the same without compression", "", None, None,
        less_is_better=False),
    Key("rocksdb_cpu_over_swale", "CPU of RocksDB's bulk load, its defaults (Snappy), likewise", "", None,
        None, less_is_better=False),
    Key("rocksdb_uncompressed_cpu_over_swale", "the same without compression", "", None, None,
        less_is_better=False),
    Key("sst_cpu_over_swale", "CPU of RocksDB's SstFileWriter without compression (the values do not "
        "compress), sorted by the "
        "caller, likewise", "", 7, None, less_is_better=False),
    Key("sst_snappy_cpu_over_swale", "the same with RocksDB's default, Snappy", "", None, None,
        less_is_better=False),
)
