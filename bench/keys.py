"""The figures that are judged: what each is, its unit, what it must be and what it aims at, and whether less is better.

A must or an aim of None is not judged. The bounds are those of the issue "Fast"; nothing else in bench/ knows them.
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

    def meets(self, value, bound):
        """None where there is no bound."""
        if bound is None:
            return None
        return value <= bound if self.less_is_better else value >= bound


KEYS = (
    Key("index_cpu_ns_per_record", "one stream: user and system CPU of the process, net of generating", "ns", 40, 26),
    Key("index_wall_over_raw_append", "the same work: wall time over raw O_DIRECT appends of the same bytes", "", 1.5, 1.25),
    Key("pipeline_cpu_ns_per_record", "4 ranks, shuffle through shared memory: CPU of all, net of generating", "ns", 85, 50),
    Key("bytes_ratio", "bytes on disk over bytes of keys and values", "", 1.036, 1.031),
    Key("slowdown_storage_bound", "time of a frame over plain files, a device of 100 MB/s for each of 4 ranks", "", 1.05, 1.036),
    Key("slowdown_memory_speed", "the same on /dev/shm, without limit", "", 5, 3),
    Key("query_cold_us_p50", "a trajectory of 5 epochs, directory open, nothing else resident", "us", 330, 200),
    Key("query_cold_us_p99", "the same, 99 of 100 are faster", "us", None, 300),
    Key("query_cold_bytes_p50", "the same: bytes fetched from storage or asked for, the larger", "B", 80_000, 50_000),
    Key("query_cold_depth_max", "the same: longest chain of reads that waited for one another", "", 3, 2),
    Key("open_and_query_cold_ms_p50", "a trajectory from a fresh process, nothing resident, path walk included", "ms", 1.3, 0.9),
    Key("query_warm_us_p50", "a trajectory from the page cache, checksums verified", "us", 14, 6.5),
    Key("topk_bytes_read", "the 10 largest of a field in one epoch: bytes fetched or asked for, the larger", "B",
        2_000_000, 200_000),
    Key("topk_cold_us_p50", "the same query: directory open, nothing else resident", "us", None, None),
    Key("topk_warm_us_p50", "the same query from the page cache", "us", None, None),
    Key("topk_index_cpu_ns_per_record", "CPU of writing with the field indexed, less that without", "ns", None, None),
    Key("topk_index_bytes", "bytes on disk with the field indexed, less those without", "B", None, None),
    Key("batch_get_keys_per_s", "100,000 random keys of one epoch, one core, from the page cache", "keys/s", 800_000, 2_300_000,
        less_is_better=False),
    Key("rank_memory_bytes_max", "peak memory of a rank above its baseline, budget 64 MiB", "B", 67_108_864, None),
    Key("leveldb_cpu_over_swale", "CPU of LevelDB, its defaults (Snappy), for the same records over Swale's, both net of "
        "generating", "", 60, 100, less_is_better=False),
    Key("leveldb_uncompressed_cpu_over_swale", "the same without compression", "", None, None, less_is_better=False),
    Key("rocksdb_cpu_over_swale", "CPU of RocksDB's bulk load, its defaults (Snappy), likewise", "", None, None,
        less_is_better=False),
    Key("rocksdb_uncompressed_cpu_over_swale", "the same without compression", "", None, None, less_is_better=False),
    Key("sst_cpu_over_swale", "CPU of RocksDB's SstFileWriter, its defaults (Snappy), sorted by the caller, likewise", "",
        9, 15, less_is_better=False),
    Key("sst_uncompressed_cpu_over_swale", "the same without compression", "", None, None, less_is_better=False),
)
