"""What the papers print and what was measured, part by part: the tables of docs/results/README.md.

Printed values are those of the papers' text, each with its place; values that can only be read off a plot are
not used.
"""
from ablation_table import Claim, bytes_text, percent, time_text


def delivery(table):
    equal = [mb_s for mb_s in table.cases("mb_s") if table.has(mb_s=mb_s, first_mb_s=mb_s)]
    ratios, waited = [], []
    for mb_s in equal:
        case = dict(mb_s=mb_s, first_mb_s=mb_s)
        ratios.append(table.median("share_of_storage", delivery="queue", **case) /
                      table.median("share_of_storage", delivery="wait", **case))
        waited.append(table.median("progress_waited_share", delivery="wait", **case))
    skew = next(row for row in table.rows if row["first_mb_s"] != row["mb_s"])
    case = dict(mb_s=skew["mb_s"], first_mb_s=skew["first_mb_s"])
    skewed = (table.median("share_of_storage", delivery="queue", **case) /
              table.median("share_of_storage", delivery="wait", **case))
    slow_waits = table.median("progress_waited_share", delivery="wait", **case)
    yield Claim(
        "2018 IV-D", "without a delivery queue the thread that serves the network is often blocked by "
        "storage",
        f"it waits {percent(min(waited))} to {percent(max(waited))} of the time ({percent(slow_waits)} of "
        f"it where one "
        "rank's storage is four times slower), and never with the queue",
        max(waited) > 0.05 and not any(table.samples("progress_waited_share", delivery="queue")),
        "the queue does what it is for")
    yield Claim(
        "2018 IV-D", "delayed forwarding and replies slow everything down; no figure printed",
        f"throughput with the queue {min(ratios):.3g} to {max(ratios):.3g} times that without; one slow "
        f"rank: {skewed:.3g} "
        "times",
        min(*ratios, skewed) > 1.02,
        "a rank that does not hear of its credits stops sending to ranks whose storage is free",
        "one node, the direct route: nobody forwards for others, and two memtables and the window bridge "
        "the waits. What "
        "the queue protects here is liveness (heartbeats, the news of a failure), not throughput; it costs "
        "nothing")


def ways(table):
    limited = sorted(mb_s for mb_s in table.cases("mb_s") if mb_s > 0)

    def share(ways, mb_s):
        return table.median("written_mb_s", ways=ways, mb_s=mb_s) / mb_s

    slow, fast = limited[0], limited[-1]
    loss = {mb_s: 1 - share("turns", mb_s) / share("2 ways", mb_s) for mb_s in limited}
    yield Claim(
        "2018 IV-D, Fig. 10f", "1-way indexing, which sorts and writes in turns, loses up to 10 % of I/O "
        "efficiency",
        "in turns, against 2 ways: " + ", ".join(f"{percent(loss[mb_s])} lost at {mb_s} MB/s"
                                                 for mb_s in limited),
        max(loss.values()) > 0.05, "a gap after every write, as there")
    yield Claim(
        "2018 IV-D, Fig. 10f", "the loss grows as there is more storage bandwidth for a rank",
        f"{percent(loss[slow])} at {slow} MB/s, {percent(loss[fast])} at {fast} MB/s",
        loss[fast] > loss[slow], "the gap is the time of sorting, which is constant; the time of writing "
        "shrinks beside it")
    alone, two, four = (table.median("written_mb_s", ways=ways, mb_s=0)
                        for ways in ("1 way", "2 ways", "4 ways"))
    gain = max(abs(share("1 way", mb_s) / share("2 ways", mb_s) - 1) for mb_s in limited)
    yield Claim(
        "2018 IV-D, Fig. 10f", "several ways are what overlaps sorting with writing",
        f"one way that overlaps is within {percent(gain)} of two ways; storage without a limit: {alone:.0f} "
        f"MB/s with 1 "
        f"way, {two:.0f} with 2, {four:.0f} with 4", gain > 0.1,
        "two ways hide more of each other's gaps, if the machine was quiet: look at the spread in the CSV",
        "here one way overlaps by itself (two memtables, several output buffers), so that ways are needed "
        "only "
        "where storage outruns a core's sorting. That is why `imd.ways` is 1 by default")


FILTER_NAMES = {"sketch": "sketch (Swale's)", "bloom": "Bloom", "blocked_bloom": "blocked Bloom",
                "papers": "papers' layout",
                "papers, no filter": "papers' layout, no filter"}  # fmt: skip


def reads(table):
    last = max(row["epochs"] for row in table.rows)
    swale = dict(store="swale", filters="sketch", in_flight=64)

    def at(column, epochs, **where):
        return table.median(column, epochs=epochs, **where)

    scan, ours = at("us", last, store="scan"), at("us", last, **swale)
    yield Claim(
        "2018 IV-B, Fig. 10a", "one core with filters is up to 910 times faster than a scan by all 1,024 "
        "cores, 310 times "
        "without filters; LevelDB 20 times",
        f"{scan / ours:.0f} times faster than a scan of {bytes_text(at('bytes', last, store='scan'))} by "
        f"all cores of this "
        "machine", scan / ours > 20, "the ratio is that of the data's size to a few blocks: see the part "
        "`size`",
        "the data are too small here for a large ratio, or the machine too loaded: see the part `size`")
    serial = at("us", last, **{**swale, "in_flight": 1}) / at("us", 1, **{**swale, "in_flight": 1})
    parallel = ours / at("us", 1, **swale)
    yield Claim(
        "2018 IV-C, Fig. 10e", "with parallel reads latency grows slowly from 1 to 5 timesteps",
        f"from 1 to {last} epochs {parallel:.2g} times as long with parallel reads, {serial:.2g} times with "
        f"one at a time",
        parallel < serial, "all epochs' slices are read at once, then all blocks: depth 3 at any number of "
        "epochs",
        "local storage answers from its own cache faster than two reads can be told apart; the depth (3) is "
        "the same")
    none = [row["filters"] for row in table.rows if row["filters"] == "papers, no filter"]
    if none:
        without = dict(store="swale", filters="papers, no filter", in_flight=64)
        with_filter = dict(store="swale", filters="papers", in_flight=64)
        us, us_without = at("us", last, **with_filter), at("us", last, **without)
        read, read_without = at("bytes", last, **with_filter), at("bytes", last, **without)
        yield Claim(
            "2018 IV-C, Fig. 10c–e", "filters let a query leave out the runs that lack the key, and so "
            "answer sooner; they are "
            "3–4 % of the data",
            f"papers' layout, {last} epochs: {time_text(us)}, {at('reads', last, **with_filter):.0f} reads "
            f"and {bytes_text(read)} "
            f"with filters, {time_text(us_without)}, {at('reads', last, **without):.0f} and "
            f"{bytes_text(read_without)} without; the "
            f"filtered index is {percent(at('index_bytes_ratio', last, **with_filter))} of the data, Swale's "
            f"{percent(at('index_bytes_ratio', last, **swale))}",
            us < us_without and read < read_without, "every run left out is a block not read",
            "fewer reads, but each filter is read as a whole, and is longer than the block that it saves; "
            "on a fast local disk "
            "bytes count. A sketch is read by slices instead")
    if table.has(store="leveldb, no compaction"):
        level = dict(store="leveldb, no compaction", in_flight=1)
        bloom, plain = at("reads", last, filters="bloom", **level), at("reads", last, filters="none", **level)
        yield Claim(
            "2018 IV-C, Fig. 10d, e", "for LevelDB without compaction filters are offset by random reads of "
            "the filters",
            f"{last} epochs: {plain:.0f} reads, {bytes_text(at('bytes', last, filters='none', **level))} "
            f"without filters; "
            f"{bloom:.0f} and {bytes_text(at('bytes', last, filters='bloom', **level))} with them",
            bloom > plain * 0.75, "each table's footer, index and filter are read from a file of their own",
            "reads of blocks are saved, as there; more than those of filters cost")
        ldb = at("reads", last, filters="bloom", **level)
        yield Claim(
            "2018 IV-B, Fig. 10c–e", "clustered indexes are read in few large reads; LevelDB's one by one, "
            "which dominates",
            f"{last} epochs: {at('reads', last, **swale):.0f} reads of "
            f"{bytes_text(at('bytes', last, **swale))} in all; "
            f"LevelDB without compaction {ldb:.0f}", ldb > 2 * at("reads", last, **swale),
            "beyond the papers: sketches of an epoch are transposed, so that one slice answers for all of "
            "its runs")


ALIKE = 1.25  # what differs by no more than this is alike


def leveldb(table):
    stores = table.cases("store")
    biggest, smallest = max(table.cases("mb")), min(table.cases("mb"))

    def at(column, store, mb=biggest):
        return table.median(column, store=store, mb=mb)

    if "leveldb" not in stores:
        return
    nc = "leveldb, no compaction"
    yield Claim(
        "2018 IV-A, Fig. 8a; 2020 4.1, Fig. 8b", "LevelDB's I/O time is substantially higher with "
        "compaction than without",
        f"{biggest:.0f} MB, until the last epoch has ended: {at('io_s', 'leveldb'):.3g} s with, "
        f"{at('io_s', nc):.3g} s without",
        at("io_s", "leveldb") > 1.5 * at("io_s", nc), "compaction shares the storage with the tables that "
        "are written",
        "part of the compaction comes after the last epoch, and is not in this time")
    alike = at("io_s", nc) / at("io_s", "swale")
    yield Claim(
        "2018 IV-A, Fig. 8a", "DeltaFS and LevelDB without compaction are alike",
        f"{biggest:.0f} MB: Swale {at('io_s', 'swale'):.3g} s, LevelDB without compaction "
        f"{at('io_s', nc):.3g} s ({alike:.3g} times)",
        max(alike, 1 / alike) < ALIKE, "both write every table once, at the speed of the storage",
        "LevelDB without compaction stays behind, too: a skip list in front of every table costs it "
        f"{at('cpu_ns', nc):.0f} ns a record, against {at('cpu_ns', 'swale'):.0f}, and two cores are not "
        f"enough to hide it")
    yield Claim(
        "2018 IV-A, Fig. 8b", "amplification is 1 without compaction and grows significantly with it",
        f"Swale {at('amplification', 'swale'):.3g}, LevelDB without compaction "
        f"{at('amplification', nc):.3g}, with it "
        f"{at('amplification', 'leveldb', smallest):.3g} at {smallest:.0f} MB and "
        f"{at('amplification', 'leveldb'):.3g} at "
        f"{biggest:.0f} MB", at("amplification", "leveldb") > 2 > at("amplification", nc),
        "bytes, so no noise; a table has keys of 20 bytes (epoch, particle, sequence number) where a record "
        "has 8, an index "
        "and a filter")
    yield Claim(
        "2018 IV-A, Fig. 8c; 2020 4.1, Fig. 8a", "LevelDB answers much faster with compaction than without",
        f"{time_text(at('query_us', 'leveldb'))} with ({at('query_reads', 'leveldb'):.0f} reads), "
        f"{time_text(at('query_us', nc))} "
        f"without ({at('query_reads', nc):.0f})", at("query_us", nc) > 2 * at("query_us", "leveldb"),
        "without it, every table of an epoch is asked")
    ours, theirs = at("query_us", "swale"), at("query_us", "leveldb")
    yield Claim(
        "2018 IV-A, Fig. 8c; 2020 4.1, Fig. 8a", "DeltaFS answers almost as fast as LevelDB with compaction",
        f"Swale {time_text(ours)} ({at('query_reads', 'swale'):.0f} reads), LevelDB {time_text(theirs)}: "
        f"{theirs / ours:.3g} times "
        "ours. Both open what they need of an open directory and database", ours < ALIKE * theirs,
        "faster, in fact: the slices of an epoch's sketches stand together, and all epochs are read at once")
    yield Claim(
        "2018 IV-A, Fig. 8d", "DeltaFS touches fewer objects than LevelDB",
        f"Swale {at('objects', 'swale'):.3g} files, counted; LevelDB {at('objects', 'leveldb'):.3g} tables, "
        f"without compaction "
        f"{at('objects', nc):.3g}",
        at("objects", nc) > at("objects", "leveldb") > at("objects", "swale"),
        "as there, for the same reason: one data and one index log")
    files = {store: [at("files", store, mb) for mb in (smallest, biggest)]
             for store in ("swale", "leveldb", nc)}
    yield Claim(
        "2018 IV-B, Fig. 10b", "LevelDB makes a file every few MB, so their number grows with the data; "
        "DeltaFS's is fixed",
        f"from {smallest:.0f} to {biggest:.0f} MB: Swale {files['swale'][0]:.0f} to {files['swale'][1]:.0f} "
        f"files in all, LevelDB "
        f"{files['leveldb'][0]:.0f} to {files['leveldb'][1]:.0f} tables, without compaction "
        f"{files[nc][0]:.0f} to {files[nc][1]:.0f}",
        files["swale"][0] == files["swale"][1] and all(files[store][1] > 1.5 * files[store][0]
                                                       for store in ("leveldb", nc)),
        "data and index logs of a partition, and a few files of the job",
        "at one size alone nothing can grow" if smallest == biggest else "look at the CSV")


def size(table):
    mbs, query = table.line("mb", "query_us")
    scan = [table.median("scan_us", mb=mb) for mb in mbs]
    grown, scan_grown, data = query[-1] / query[0], scan[-1] / scan[0], mbs[-1] / mbs[0]
    best = max(s / q for s, q in zip(scan, query))
    yield Claim(
        "2017 section 4, Fig. 3a", "the scan is proportional to the data: 40 s to 20 minutes (30 times) for "
        "97 times as much",
        f"{time_text(scan[0])} to {time_text(scan[-1])} ({scan_grown:.3g} times) for {data:.3g} times as "
        f"much",
        scan_grown > data / 4, "storage bandwidth, on any machine")
    yield Claim(
        "2017 section 4, Fig. 3a", "the query grows from 150 to 260 ms (1.7 times) meanwhile",
        f"{time_text(query[0])} to {time_text(query[-1])} ({grown:.2g} times), "
        f"{table.line('mb', 'query_reads')[1][-1]:.0f} "
        f"reads; {bytes_text(table.line('mb', 'query_bytes')[1][0])} to "
        f"{bytes_text(table.line('mb', 'query_bytes')[1][-1])}",
        grown < 4, "DeltaFS reads a partition's whole index, Swale one slice of it for each epoch")
    yield Claim(
        "2017 Fig. 3a: 245 to 5,112 times; 2018 Fig. 12a and 2020 Fig. 17a: up to 1,740",
        "a query on one core beats a scan by all cores, the more the larger the data",
        f"{scan[0] / query[0]:.3g} times at {mbs[0]:.3g} MB, {best:.3g} times at most",
        scan[-1] / query[-1] > 4 * scan[0] / query[0],
        "the scan here has the machine's fast local disk and the query its latency; on a shared file system "
        "both are "
        "slower, and the ratio goes on growing with the data")
    opened = table.line("mb", "open_and_query_us")[1]
    # Tables without the column are older than the dropping.
    dropped = table.knows("all_caches_dropped") and all(table.samples("all_caches_dropped"))
    yield Claim(
        "2018 Fig. 4a: within 300 ms; Fig. 12a: within 500 ms; 2020 Fig. 17a: about 300 ms",
        "a cold query, opening included",
        f"{time_text(min(opened))} to {time_text(max(opened))}, in a fresh process, "
        + ("all caches of the machine dropped" if dropped else "the files' pages dropped"),
        max(opened) < 300e3,
        "local storage instead of Lustre; what carries over is the number of dependent reads: "
        f"{max(table.samples('depth'))}, and the opening's")


def frame(table):
    at_scale = [row for row in table.rows if row["mb_s"] == 25]
    keys = at_scale[0]["keys_per_rank"]
    ranks, bound = table.line("ranks", "ratio", mb_s=25, keys_per_rank=keys)
    free = table.line("ranks", "ratio", mb_s=0, keys_per_rank=keys)[1]
    ratio = table.line("ranks", "bytes_ratio", mb_s=25, keys_per_rank=keys)[1]
    sizes = table.line("keys_per_rank", "bytes_ratio", mb_s=100)
    times = table.line("keys_per_rank", "ratio", mb_s=100)
    yield Claim(
        "2017 section 4, Fig. 3b", "output is around 8 % larger, at every scale",
        f"{percent(ratio[0] - 1)} at {ranks[0]} rank, {percent(ratio[-1] - 1)} at {ranks[-1]}; frames of "
        + ", ".join(f"{bytes_text(k * 48)} a rank: {percent(r - 1)}" for k, r in zip(*sizes)),
        max(*ratio, *sizes[1]) < 1.08, "less: 10 bits a record instead of a filter and a block index, "
        "records without headers; "
        "constant in ranks, as there",
        "small frames pay for slices of a fixed stride")
    yield Claim(
        "2017 section 4, Fig. 3c; 2018 Fig. 4b, 12b", "where storage is the bottleneck a frame takes about "
        "15 % longer (2017), "
        "10 % (2018); 35 % at 131,072 processes",
        f"{percent(bound[0] - 1)} at {ranks[0]} rank to {percent(bound[-1] - 1)} at {ranks[-1]}, at 25 MB/s "
        f"a rank; at 100 MB/s "
        "and 4 ranks, frames of " + ", ".join(f"{bytes_text(k * 48)} a rank: {percent(r - 1)}" for k,
                                              r in zip(*times)),
        max(*bound, *times[1]) < 1.25, "the extra bytes and the end of the epoch; up to the ranks that two "
        "cores carry",
        "more ranks than two cores carry: indexing and shuffling of all ranks no longer fits into the time "
        "of writing")
    yield Claim(
        "2017 section 4, Fig. 3c", "jobs too small to saturate storage see large overheads, of the work on "
        "the index",
        f"{min(free):.2g} to {max(free):.2g} times the plain frame by write() in memory (/dev/shm, touched "
        f"before)", max(free) > 1.25,
        "at memory speed there is nothing to hide the work behind")


def overlap(table):
    frames = sorted(table.cases("frame_mb"))

    def seen(end, mb):
        return table.median("seen_s", end=end, frame_mb=mb)

    hidden = {mb: 1 - seen("begin", mb) / seen("wait", mb) for mb in frames}
    deferred = {mb: 1 - seen("next", mb) / seen("wait", mb) for mb in frames}
    yield Claim(
        "2017 section 3", "buffered data are flushed at the beginning of the next frame, so that flushing "
        "overlaps computing; "
        "no figure printed",
        "hidden of what waiting at the end shows: "
        + ", ".join(f"{percent(deferred[mb])} of a frame of {mb:.3g} MB" for mb in frames),
        max(deferred.values()) > 0.05, "full memtables are written while the application computes; the last "
        "ones and the index are not",
        "almost nothing at these sizes: what is not yet a full memtable waits for the next frame, and that "
        "is most of a small "
        "frame; of a large one most is written before the appends end")
    yield Claim(
        "beyond the papers", "`epoch_end_begin` before computing, `epoch_end_wait` after the next frame's "
        "appends",
        "hidden: " + ", ".join(f"{percent(hidden[mb])} of {mb:.3g} MB" for mb in frames),
        max(hidden.values()) > max(deferred.values()),
        "what fits into the pipeline's memory is written while the application computes, the commit with "
        "it; larger frames "
        "wait in their appends")
    stolen = table.median("compute_wall_over_cpu",
                          end="begin") / table.median("compute_wall_over_cpu", end="wait")
    yield Claim(
        "2020 2.2", "overlapping is not always better: I/O takes cores and network from computing",
        f"computing took {stolen:.3g} times as long while an epoch ended in the background (2 ranks on 2 "
        f"cores)",
        stolen > 1.02, "sorting and transposing take their share of the cores; `swale_dir_pause` gives them "
        "back",
        "25 to 30 ns a record are too little to be seen beside a second of computing")


def compression(table):
    def at(column, **case):
        return table.median(column, store="swale", **case)

    kinds = table.cases("values")
    saved = {values: 1 - at("bytes_ratio", values=values,
                            codec="lz4") / at("bytes_ratio", values=values, codec="none")
             for values in kinds}
    yield Claim(
        "beyond the papers", "lz4 on blocks of 4 KiB makes particles a third smaller, random words by no "
        "more than "
        "the upper bytes of their keys",
        "smaller by: " + ", ".join(f"{values} {percent(saved[values])}" for values in kinds),
        saved["particles"] > 1 / 3 and saved["words"] < 0.14,
        "the bytes of a block are put in columns first, so that exponents and the upper bytes of small "
        "numbers stand together",
        "predicted from numbers that are not negative: the upper bytes of images from -2 to 2 are 00 or ff "
        "by chance, which is "
        "one bit to an entropy coder and no repeat to lz4")
    cost = {codec: at("write_ns", values="particles",
                      codec=codec) - at("write_ns", values="particles", codec="none")
            for codec in ("lz4", "zstd")}
    asked = {codec: at("query_us", values="particles", codec=codec) for codec in ("none", "lz4", "zstd")}
    yield Claim(
        "beyond the papers", "zstd takes a few per cent more off than lz4, for twice the time",
        f"particles: {at('bytes_ratio', values='particles', codec='lz4'):.3g} and "
        f"{at('bytes_ratio', values='particles', codec='zstd'):.3g} of the data; {cost['lz4']:.0f} and "
        f"{cost['zstd']:.0f} ns a "
        f"record; a warm query {time_text(asked['none'])}, {time_text(asked['lz4'])}, "
        f"{time_text(asked['zstd'])}",
        at("bytes_ratio", values="particles", codec="zstd") < at("bytes_ratio", values="particles",
                                                                 codec="lz4")
        and cost["zstd"] > 1.5 * cost["lz4"],
        "its entropy coder shortens what has no repeats; a query unpacks one block an epoch with either")
    if not table.has(store="rocksdb"):
        return

    def both(column, codec):
        return [table.median(column, store=store, values="particles", codec=codec)
                for store in ("swale", "rocksdb")]

    yield Claim(
        "beyond the papers", "smaller and sooner written than RocksDB's tables (SstFileWriter) with the "
        "same codec",
        "particles, Swale and RocksDB: " + "; ".join(
            "{} {:.3g} and {:.3g} of the data, {:.0f} and {:.0f} ns a record".format(
                codec, *both("bytes_ratio", codec), *both("write_ns", codec)) for codec in ("lz4", "zstd")),
        all(ours < theirs for codec in ("lz4", "zstd")
            for ours, theirs in (both("bytes_ratio", codec), both("write_ns", codec))),
        "RocksDB compresses a block as it stands, and every record has a key of 12 bytes and a header; the "
        "caller's sort "
        "is in its times, as ours is in ours")
    texts = {column: " and ".join(time_text(us) for us in both(column, "lz4"))
             for column in ("query_us", "cold_us")}
    yield Claim(
        "beyond the papers", "RocksDB answers sooner where its cache holds the unpacked block; cold both "
        "take the same",
        f"particles with lz4, Swale and RocksDB: {texts['query_us']} warm; {texts['cold_us']} cold",
        both("query_us", "lz4")[0] > both("query_us", "lz4")[1]
        and both("cold_us", "lz4")[0] < 1.1 * both("cold_us", "lz4")[1], "a reader keeps no unpacked "
        "blocks: it unpacks one for every value",
        "RocksDB is sooner in both: its cache holds unpacked blocks, and where it is cold its tables are "
        "open, indexes and "
        "filters in memory, and each epoch takes one read; Swale reads a slice of the index and then a block")


CLAIMS = {"delivery": delivery, "ways": ways, "reads": reads, "leveldb": leveldb, "size": size,
          "frame": frame,
          "overlap": overlap, "compression": compression}  # fmt: skip
