"""duckdb_parquet.py APPENDS OUT KEYS EPOCHS: what one would do after the run: DuckDB over Parquet sorted by
key.

Reads the plain appends of bench_ingest (a file per epoch), writes one sorted Parquet file, asks for
trajectories and checks the answers. Prints one line of JSON. Cold: pages dropped, a fresh connection; its
opening is included.
"""
import json
import os
import pathlib
import resource
import statistics
import sys
import time

import duckdb
import numpy

RECORD = numpy.dtype([("key", "<u8"), *((f"w{i}", "<u8") for i in range(5))])
WORDS = (1 << 64) - 1


def cpu_s():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def mix(x):  # as workload.h
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & WORDS
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & WORDS
    return x ^ (x >> 31)


def rotate(x, by):
    return (x << by | x >> (64 - by)) & WORDS


def value_of(key, epoch):
    seed = mix((key * 0x9E3779B97F4A7C15 + epoch + 1) & WORDS)
    return ((seed >> 12) | (1023 << 52), seed * 0xD6E8FEB86659FD93 & WORDS,
            rotate(seed, 23) * 0xA0761D6478BD642F & WORDS, rotate(seed, 41) * 0xE7037ED1A0B428DB & WORDS,
            seed ^ 0x8EBC6AF09C88C6E3)


def sort(appends, parquet, epochs):
    columns = {"epoch": [], **{name: [] for name in RECORD.names}}
    for epoch in range(epochs):
        records = numpy.fromfile(appends / f"epoch-{epoch}.rank-0", RECORD)
        columns["epoch"].append(numpy.full(len(records), epoch, numpy.uint32))
        for name in RECORD.names:
            columns[name].append(numpy.ascontiguousarray(records[name]))
    # DuckDB finds it by its name
    records = {name: numpy.concatenate(parts) for name, parts in columns.items()}
    assert records
    duckdb.connect().execute(
        f"COPY (SELECT * FROM records ORDER BY key, epoch) TO '{parquet}' (FORMAT parquet, COMPRESSION "
        f"uncompressed)"
    )
    descriptor = os.open(parquet, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
    return len(records["key"])


def query(connection, parquet, key, epochs):
    begin = time.perf_counter()
    rows = connection.execute(f"SELECT * FROM '{parquet}' WHERE key = {key} ORDER BY epoch").fetchall()
    took = time.perf_counter() - begin
    expected = [(epoch, key, *value_of(key, epoch)) for epoch in range(epochs)]
    if rows != expected:
        sys.exit(f"duckdb_parquet.py: WRONG ANSWER: key {key}: {rows}")
    return took


def evict(path):
    descriptor = os.open(path, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def main():
    appends, out, keys, epochs = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), int(sys.argv[3]), int(
        sys.argv[4])
    out.mkdir(parents=True, exist_ok=True)
    parquet = out / "sorted.parquet"
    wall, cpu = time.perf_counter(), cpu_s()
    records = sort(appends, parquet, epochs)
    wall, cpu = time.perf_counter() - wall, cpu_s() - cpu
    cold, warm = [], []
    for n in range(10):
        evict(parquet)
        begin = time.perf_counter()
        connection = duckdb.connect()
        query(connection, parquet, mix(n) % keys, epochs)
        cold.append(time.perf_counter() - begin)
    for n in range(10):
        warm.append(query(connection, parquet, mix(1000 + n) % keys, epochs))
    print(json.dumps({
        "program": "duckdb", "records": records, "cpu_ns_per_record": cpu / records * 1e9,
        "wall_s_per_20M": wall / records * 20e6,
        "bytes_ratio": parquet.stat().st_size / (records * RECORD.itemsize),
        "cold_us_p50": statistics.median(cold) * 1e6, "warm_us_p50": statistics.median(warm) * 1e6,
        "open_and_query_ms": statistics.median(cold) * 1e3,
    }))  # fmt: skip


if __name__ == "__main__":
    main()
