#!/usr/bin/env python3
"""The same trajectories as impact-query, by DuckDB over Parquet sorted by atom: what one would do after the
run.

Reads OUT/dump.*.bin and OUT/fastest.json; writes OUT/atoms.parquet, OUT/answer-parquet.csv and
OUT/cost-parquet.json. Cold and warm mean the same as in measure.h. Needs numpy and duckdb.
"""

import argparse
import json
import os
import pathlib
import statistics
import struct
import time

import duckdb
import numpy

# impact::DumpRecord of record.h.
RECORD = numpy.dtype(
    [("atom", "<i8"), ("x", "<f4"), ("y", "<f4"), ("z", "<f4"), ("vx", "<f4"), ("vy", "<f4"), ("vz", "<f4"),
     ("energy", "<f4"), ("type", "<i4"), ("step", "<i8")]
)  # fmt: skip
COLUMNS = ("atom", "step", "type", "x", "y", "z", "vx", "vy", "vz", "energy")


def seconds(work):
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def read_dumps(out):
    records = numpy.concatenate([numpy.memmap(path, RECORD, "r") for path in sorted(out.glob("dump.*.bin"))])
    return {name: numpy.ascontiguousarray(records[name]) for name in RECORD.names}


def convert(out, unsorted):
    dumps = read_dumps(out)  # DuckDB finds it by its name
    assert dumps
    duckdb.connect().execute(f"COPY (SELECT * FROM dumps) TO '{unsorted}' (FORMAT parquet)")


def sort(unsorted, parquet):
    duckdb.connect().execute(
        f"COPY (SELECT * FROM '{unsorted}' ORDER BY atom, step) TO '{parquet}' (FORMAT parquet)"
    )


def trajectories(connection, parquet, ids):
    query = (f"SELECT {', '.join(COLUMNS)} FROM '{parquet}' WHERE atom IN ({', '.join(map(str, ids))}) "
             "ORDER BY atom, step")
    return connection.execute(query).fetchnumpy()


def evict(path):
    descriptor = os.open(path, os.O_RDONLY)
    os.fdatasync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def io_counters():
    lines = pathlib.Path("/proc/self/io").read_text().splitlines()
    return {name: int(value) for name, value in (line.split(": ") for line in lines)}


def measure(parquet, ids):
    evict(parquet)
    before = io_counters()
    cold_s, connection = seconds(lambda: connect_and_ask(parquet, ids))
    after = io_counters()
    trajectories(connection, parquet, ids)
    warm = [seconds(lambda: trajectories(connection, parquet, ids))[0] for _ in range(21)]
    return {
        "cold_s": cold_s,
        "warm_s": statistics.median(warm),
        "bytes": after["rchar"] - before["rchar"],
        "reads": after["syscr"] - before["syscr"],
        "storage_bytes": after["read_bytes"] - before["read_bytes"],
    }


def connect_and_ask(parquet, ids):
    connection = duckdb.connect()
    trajectories(connection, parquet, ids)
    return connection


def footer_bytes(parquet):
    with open(parquet, "rb") as file:
        file.seek(-8, os.SEEK_END)
        length, magic = struct.unpack("<I4s", file.read(8))
    assert magic == b"PAR1"
    return length


def write_answer(path, answer):
    floats = [numpy.char.mod("%.9g", answer[name].astype("f8")) for name in COLUMNS[3:]]
    columns = [answer[name].astype(str) for name in COLUMNS[:3]] + floats
    rows = "\n".join(",".join(row) for row in zip(*columns, strict=True))
    path.write_text(",".join(COLUMNS) + "\n" + rows + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("out", type=pathlib.Path, help="the directory that impact wrote")
    out = parser.parse_args().out
    ids = json.loads((out / "fastest.json").read_text())["ids"]
    unsorted, parquet = out / "unsorted.parquet", out / "atoms.parquet"

    convert_s, _ = seconds(lambda: convert(out, unsorted))
    sort_s, _ = seconds(lambda: sort(unsorted, parquet))
    unsorted.unlink()
    write_answer(out / "answer-parquet.csv", trajectories(duckdb.connect(), parquet, ids))
    groups = duckdb.sql(f"SELECT max(row_group_id) + 1, max(row_group_num_rows) FROM "
                        f"parquet_metadata('{parquet}')")
    group_count, group_rows = groups.fetchall()[0]
    cost = {
        "convert_s": convert_s,
        "sort_s": sort_s,
        "bytes": parquet.stat().st_size,
        "row_groups": group_count,
        "row_group_rows": group_rows,
        "footer_bytes": footer_bytes(parquet),
        "costs": {"one": measure(parquet, ids[:1]), "ten": measure(parquet, ids)},
    }
    (out / "cost-parquet.json").write_text(json.dumps(cost, indent=2) + "\n")
    print(f"  converted in {convert_s:.2f} s, sorted in {sort_s:.2f} s; {cost['bytes'] / 1e6:.0f} MB of "
          f"Parquet")


if __name__ == "__main__":
    main()
