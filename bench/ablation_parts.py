"""The parts of `make bench-imd-ablation`: which programs run with which options, and the rows that they give.

A row is one measurement: what was set, the round, what was measured. Rounds are interleaved; medians are the
report's. Sizes are chosen so that a frame takes about half a second on storage of the stated speed.
"""
RECORD_BYTES = 48
MIB = 1 << 20
# Of what is measured: raise it when a column's meaning changes (ablation_page.OLDER says how).
DEFINITIONS = 2
SMALL_MEMORY = 8 * MIB  # of a rank: LevelDB's own default, as in the 2018 paper's Fig. 8

PROFILES = {
    "full": dict(drop_all=1, rounds=3, frame_s=0.5, delivery_mb_s=(25, 50, 100),
                 ways_mb_s=(100, 200, 400, 800, 0), ways_s=1.2, epochs=5, reads_keys=1_000_000, samples=60,
                 level_keys=(250_000, 500_000, 1_000_000, 2_000_000), level_epochs=3, level_rounds=2,
                 sizes=(50_000, 200_000, 800_000, 3_200_000, 12_800_000), scans=2,
                 frame_ranks=(1, 2, 4, 8, 16), frame_keys=1_000_000,
                 frame_sizes=(125_000, 500_000, 2_000_000), frames=2,
                 overlap_keys=(250_000, 500_000, 1_000_000, 2_000_000), compute_ms=1000, overlap_epochs=3,
                 overlap_rounds=2, codec_keys=1_000_000, codec_rounds=5),
    "quick": dict(drop_all=1, rounds=1, frame_s=0.25, delivery_mb_s=(25, 100), ways_mb_s=(100, 400, 0),
                  ways_s=0.5, epochs=5, reads_keys=250_000, samples=20, level_keys=(125_000, 500_000),
                  level_epochs=3, level_rounds=1, sizes=(50_000, 400_000, 3_200_000), scans=1,
                  frame_ranks=(1, 2, 4), frame_keys=500_000, frame_sizes=(125_000, 500_000), frames=1,
                  overlap_keys=(250_000, 1_000_000), compute_ms=500, overlap_epochs=2, overlap_rounds=1,
                  codec_keys=200_000, codec_rounds=1),
    "tiny": dict(drop_all=0, rounds=1, frame_s=0.001, delivery_mb_s=(25,), ways_mb_s=(100, 200, 0),
                 ways_s=0.001, epochs=2, reads_keys=2_000, samples=2, level_keys=(1_000, 2_000),
                 level_epochs=2, level_rounds=1, sizes=(500, 2_000), scans=1, frame_ranks=(1, 2),
                 frame_keys=1_000, frame_sizes=(500,), frames=1, overlap_keys=(1_000,),
                 compute_ms=5, overlap_epochs=2, overlap_rounds=1, codec_keys=2_000, codec_rounds=1),
}  # fmt: skip


def keys_for(seconds, ranks, mb_s):
    """Keys of a frame that so many ranks write in so many seconds at so many MB/s each."""
    return max(ranks * 100, int(seconds * ranks * mb_s * 1e6 / RECORD_BYTES))


def delivery(run):
    """The progress thread never waits, or waits for room."""
    ranks, epochs = 4, 2
    cases = [(mb_s, mb_s) for mb_s in run.p["delivery_mb_s"]]
    cases.append((run.p["delivery_mb_s"][-1], run.p["delivery_mb_s"][-1] // 4))  # one rank's storage is slow
    path = run.scratch / "delivery"
    for number in range(run.p["rounds"]):
        for mb_s, first in cases:
            keys = keys_for(run.p["frame_s"], ranks, first)
            for way in ("queue", "wait"):
                line = run.measure("pipeline", path=path, ranks=ranks, keys=keys, epochs=epochs,
                                   memory=SMALL_MEMORY, limit=mb_s * 1_000_000,
                                   limit_first=first * 1_000_000, delivery=way)
                run.row(mb_s=mb_s, first_mb_s=first, delivery=way, round=number,
                        share_of_storage=line["bytes_per_s"] / ranks / (min(mb_s, first) * 1e6),
                        progress_waited_share=line["progress_waited_share"],
                        queue_frames=line["delivery_queue_frames_max"], credit_waits=line["credit_waits"],
                        cpu_ns=line["cpu_ns_per_record"])
                if number == 0:
                    run.measure("query", path=path, mode="verify", keys=keys, epochs=epochs)
    run.clear(path)


WAYS = (("turns", dict(ways=1, turns=1)), ("1 way", dict(ways=1)), ("2 ways", dict(ways=2)),
        ("4 ways", dict(ways=4)))


def ways(run):
    """Sorting and writing in turns, or overlapped, by 1, 2, 4 ways. Storage of 0 MB/s is not limited."""
    path = run.scratch / "ways"
    fastest = max(run.p["ways_mb_s"])
    for number in range(run.p["rounds"]):
        for mb_s in run.p["ways_mb_s"]:
            keys = keys_for(run.p["ways_s"], 1, mb_s or fastest)
            for name, options in WAYS:
                line = run.measure("pipeline", path=path, ranks=1, keys=keys, epochs=1,
                                   limit=mb_s * 1_000_000, **options)
                run.row(mb_s=mb_s, ways=name, round=number, written_mb_s=line["bytes_per_s"] / 1e6,
                        cpu_ns=line["cpu_ns_per_record"])
                if number == 0:
                    run.measure("query", path=path, mode="verify", keys=keys, epochs=1)
    run.clear(path)


# Index kinds by the name of the row: options of the directory. Those that this build does not know are left
# out.
INDEXES = (("sketch", ""), ("bloom", "imd.index=bloom"), ("blocked_bloom", "imd.index=blocked_bloom"),
           ("papers", "imd.index=papers"), ("papers, no filter", "imd.index=papers,imd.bloom_bits=0"))


def known_indexes(run):
    path = run.scratch / "probe"
    found = [(name, options) for name, options in INDEXES
             if run.accepts("ingest", store="swale", path=path, keys=10, epochs=1,
                            options=",".join(filter(None, ("imd.memory=8M", options))))]
    run.clear(path)
    return found


def query_row(run, store, filters, in_flight, epochs, line, objects):
    run.row(store=store, filters=filters, in_flight=in_flight, epochs=epochs, us=line["us"]["p50"],
            us_p99=line["us"]["p99"], reads=line["reads"]["p50"], bytes=line["bytes"]["p50"], objects=objects)


def reads(run):
    """Filters and parallel reads: a trajectory of 1 to 5 epochs, by index kind, beside LevelDB and a scan."""
    p, path = run.p, run.scratch / "reads"
    for epochs in range(1, p["epochs"] + 1):
        work = dict(path=path, keys=p["reads_keys"], epochs=epochs)
        for name, options in known_indexes(run):
            options = ",".join(filter(None, (f"imd.memory={SMALL_MEMORY}", options)))
            written = run.measure("ingest", store="swale", ranks=2, options=options, **work)
            for in_flight in (1, 64):
                ask = dict(mode="first", samples=p["samples"], options=f"imd.reads_in_flight={in_flight}",
                           **work)
                line = run.measure("query", **ask)
                line["bytes"] = line["asked_bytes"]
                query_row(run, "swale", name, in_flight, epochs, line, line["objects"]["p50"])
                run.rows[-1].update(depth=line["depth_max"], index_bytes_ratio=written["bytes_ratio"] - 1)
        run.measure("ingest", store="append", **work)
        scan = run.measure("scan", samples=p["scans"], **work)
        run.row(store="scan", filters="", in_flight="", epochs=epochs, us=scan["cold_ms"]["p50"] * 1e3,
                bytes=p["reads_keys"] * epochs * RECORD_BYTES)
        run.clear(path)
    if not run.has("shuffled_leveldb"):
        return
    for filter_bits in (0, 10):
        for compaction in ("off", "on"):
            line = run.measure("shuffled_leveldb", path=path, ranks=2, keys=p["reads_keys"],
                               epochs=p["epochs"], memory=SMALL_MEMORY, compaction=compaction,
                               filter_bits=filter_bits, samples=max(2, p["samples"] // 3))
            store = "leveldb" if compaction == "on" else "leveldb, no compaction"
            for query in line["queries"]:
                query_row(run, store, "bloom" if filter_bits else "none", 1, query["epochs"], query,
                          query["objects"]["p50"])
            run.clear(path)


def leveldb(run):
    """The store behind the shuffle: Swale's, LevelDB, LevelDB without compaction; at equal memory."""
    p, path, ranks, mb_s = run.p, run.scratch / "leveldb", 2, 100
    for number in range(p["level_rounds"]):
        for keys in p["level_keys"]:
            work = dict(path=path, keys=keys, epochs=p["level_epochs"])
            line = run.measure("pipeline", ranks=ranks, memory=SMALL_MEMORY, limit=mb_s * 1_000_000, **work)
            query = run.measure("query", mode="first", samples=p["samples"], **work)
            # I/O time: from when the store is open to the end of the last epoch. Amplification: what the
            # store has written to its logs or tables and read from them meanwhile (Swale reads nothing back),
            # over the bytes of the records.
            run.row(store="swale", mb=line["bytes"] / 1e6, round=number, io_s=line["wall_s"],
                    amplification=line["log_bytes_written"] / line["bytes"], cpu_ns=line["cpu_ns_per_record"],
                    query_us=query["us"]["p50"], query_reads=query["reads"]["p50"],
                    query_bytes=query["asked_bytes"]["p50"], objects=query["objects"]["p50"],
                    files=line["files"])
            run.clear(path)
            for compaction in ("on", "off") if run.has("shuffled_leveldb") else ():
                line = run.measure("shuffled_leveldb", ranks=ranks, memory=SMALL_MEMORY,
                                   limit=mb_s * 1_000_000, compaction=compaction,
                                   samples=max(2, p["samples"] // 4), **work)
                query = line["queries"][-1]
                run.row(store="leveldb" if compaction == "on" else "leveldb, no compaction",
                        mb=line["bytes"] / 1e6, round=number, io_s=line["until_last_epoch_s"],
                        amplification=(line["table_bytes_written"] + line["bytes_read"]) / line["bytes"],
                        cpu_ns=line["cpu_ns_per_record"], query_us=query["us"]["p50"],
                        query_reads=query["reads"]["p50"], query_bytes=query["bytes"]["p50"],
                        objects=query["objects"]["p50"], files=line["tables"])
                run.clear(path)


def size(run):
    """A trajectory of 5 epochs beside a scan by all cores, against the data's size."""
    p = run.p
    for keys in p["sizes"]:
        work = dict(keys=keys, epochs=p["epochs"])
        path = run.scratch / "size"
        written = run.measure("ingest", store="swale", path=path, **work)
        first = run.measure("query", path=path, mode="first", samples=p["samples"], **work)
        opened = run.measure("query", path=path, mode="open", samples=max(2, p["samples"] // 10),
                             drop_all=p["drop_all"], **work)
        run.clear(path)
        run.measure("ingest", store="append", path=path, **work)
        scan = run.measure("scan", path=path, samples=p["scans"], **work)
        run.clear(path)
        run.row(mb=keys * p["epochs"] * RECORD_BYTES / 1e6, query_us=first["us"]["p50"],
                query_us_p99=first["us"]["p99"], query_bytes=first["asked_bytes"]["p50"],
                query_reads=first["reads"]["p50"], depth=first["depth_max"],
                open_and_query_us=opened["ms"]["p50"] * 1e3,
                all_caches_dropped=int(opened["all_caches_dropped"]), scan_us=scan["cold_ms"]["p50"] * 1e3,
                bytes_ratio=written["bytes_ratio"])


def frame(run):
    """A frame as one plain file per process and as a directory, against ranks and against particles per rank.
    The order of the two changes from frame to frame; in memory plain files are written by write(), into pages
    that were touched before."""
    p = run.p
    cases = [(ranks, p["frame_keys"], 25) for ranks in p["frame_ranks"]]
    cases += [(ranks, p["frame_keys"], 0) for ranks in p["frame_ranks"]]
    cases += [(4, keys, 100) for keys in p["frame_sizes"]]
    for ranks, keys, mb_s in cases:
        path = (run.scratch if mb_s else run.memory_scratch) / "frame"
        in_memory = dict(plain="write", touch=1) if mb_s == 0 else {}
        line = run.measure("slowdown", path=path, ranks=ranks, keys=keys * ranks, frames=p["frames"],
                           limit=mb_s * 1_000_000, **in_memory)
        run.clear(path)
        for number, (plain, swale) in enumerate(zip(line["plain_s"], line["swale_s"])):
            run.row(ranks=ranks, keys_per_rank=keys, mb_s=mb_s, round=number, plain_s=plain, swale_s=swale,
                    ratio=swale / plain, bytes_ratio=line["swale_bytes"] / (line["records"] * RECORD_BYTES))


def overlap(run):
    """How a frame ends, beside an application that computes: what of the writing it sees."""
    p, path, ranks, mb_s = run.p, run.scratch / "overlap", 2, 100
    for number in range(p["overlap_rounds"]):
        for keys in p["overlap_keys"]:
            for end in ("wait", "next", "begin"):
                line = run.measure("pipeline", path=path, ranks=ranks, keys=keys * ranks,
                                   epochs=p["overlap_epochs"], limit=mb_s * 1_000_000,
                                   compute_ms=p["compute_ms"], end=end)
                if number == 0:
                    run.measure("query", path=path, mode="verify", keys=keys * ranks,
                                epochs=p["overlap_epochs"])
                frames = p["overlap_epochs"]
                run.row(frame_mb=keys * RECORD_BYTES / 1e6, end=end, round=number,
                        seen_s=(line["append_s"] + line["end_s"]) / frames,
                        compute_share=line["compute_cpu_s"] / line["wall_s"],
                        compute_wall_over_cpu=line["compute_wall_s"] / line["compute_cpu_s"],
                        append_s=line["append_s"] / frames, end_s=line["end_s"] / frames,
                        storage_s=keys * RECORD_BYTES / (mb_s * 1e6))
    run.clear(path)


VALUES = ("words", "doubles", "floats", "particles")
CODECS = (("none", "sst-uncompressed"), ("lz4", "sst-lz4"), ("zstd", "sst-zstd"))


def compression(run):
    """Codecs by kind of values: bytes, processor time of writing, scanning, asking; beside RocksDB's tables.
    """
    p, path = run.p, run.scratch / "compression"
    for number in range(p["codec_rounds"]):
        for values in VALUES:
            work = dict(keys=p["codec_keys"], epochs=2, values=values, path=path)
            making = run.measure("ingest", store="nothing", **work)
            for codec, table in CODECS:
                case = dict(values=values, codec=codec, round=number)
                wrote = run.measure("ingest", store="swale",
                                    options=f"imd.memory=64M,imd.compression={codec}", **work)
                if number == 0:
                    run.measure("query", mode="verify", **work)
                scan = run.measure("query", mode="scan", samples=3, **work)
                warm = run.measure("query", mode="warm", samples=100 * p["samples"], **work)
                cold = run.measure("query", mode="cold", samples=p["samples"], **work)
                run.clear(path)
                run.row(store="swale", **case, bytes_ratio=wrote["bytes_ratio"],
                        write_ns=wrote["cpu_ns_per_record"] - making["cpu_ns_per_record"],
                        query_us=warm["us"]["p50"], cold_us=cold["us"]["p50"],
                        scan_ns=scan["cpu_ns_per_record"]["p50"])
                if not run.has("rocksdb"):
                    continue
                wrote = run.measure("rocksdb", store=table, mode="load", **work)
                asked = run.measure("rocksdb", store=table, mode="query", samples=p["samples"], drop_all=0,
                                    **work)["gets"]
                run.clear(path)
                run.row(store="rocksdb", **case, bytes_ratio=wrote["bytes_ratio"],
                        write_ns=wrote["cpu_ns_per_record"] - making["cpu_ns_per_record"],
                        query_us=asked["warm_us"]["p50"], cold_us=asked["cold_us"]["p50"])


PARTS = {"delivery": delivery, "ways": ways, "reads": reads, "leveldb": leveldb, "size": size, "frame": frame,
         "overlap": overlap, "compression": compression}  # fmt: skip
