"""The figures of the tiered write buffer that are judged: what each is, what it must be, what it aims at.

Bounds are those of the issue "The tiered write buffer"; nothing else in bench/tier knows them. Ratios, shares
and bytes are judged as they are; a time is divided by the calibration's factor first (bench/calibration.py).
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from keys import Key  # noqa: E402

REAL = "a real device of 150 writes a second, 8 processes, 4 to 64 KiB at random places"
NINE = "W1, W2, W3 on A, B, C, 16 segments and 64 slots for all"
KEYS = (
    Key("swale_over_ssdupplus_throughput_min", f"throughput to the last acknowledgement over SSDUP+, "
        f"{NINE}: least", "", 1.0,
        1.01, less_is_better=False),
    Key("swale_over_ssdupplus_throughput_mean", "the same: mean (1.15 and 1.25 while SSDUP+ had two "
        "segments)", "", 1.13, 1.18,
        less_is_better=False),
    Key("swale_ssd_bytes_over_ssdupplus_max", f"bytes sent to the SSD over SSDUP+'s, {NINE}: largest", "",
        1.0, 0.85),
    Key("swale_ssd_bytes_over_ssdupplus_mean", "the same: mean", "", 0.75, 0.6),
    Key("swale_drained_over_ssdupplus_max", f"time until everything is on the disk over SSDUP+'s, {NINE}: "
        f"largest", "", 1.1, 1.0),
    Key("swale_over_allssd_throughput_min", "F11, 8 to 512 processes, A and B: throughput over all-SSD: "
        "least", "", 0.97, 0.99,
        less_is_better=False),
    Key("swale_ssd_share_32", "F11, 32 processes: share of bytes sent to the SSD, worse of A and B", "",
        0.25, 0.15),
    Key("swale_ssd_share_128", "the same, 128 processes", "", 0.5, 0.35),
    Key("swale_best_rival_over_swale_max", "throughput of the fastest policy that sends no more bytes to "
        "the SSD, over ours: "
        "largest of all workloads", "", 1.05, 1.0),
    Key("beyond_throughput_min", "hot blocks, files that grow, the same region twenty times, half reads, A, "
        "B, C: throughput over SSDUP+: "
        "least", "", 1.0, 1.05, less_is_better=False),
    Key("heldout_throughput_min", "ten seeds and mixes that nothing was tuned on, A, B, C: throughput over "
        "SSDUP+: least", "",
        0.97, 1.0, less_is_better=False),
    Key("heldout_ssd_bytes_max", "the same: bytes sent to the SSD over SSDUP+'s, largest", "", 1.0, 0.9),
    Key("engine_cpu_ns_per_request", "detector, redirector, queue, map, log headers, flush; no device; the "
        "worse of SSDUP+ and "
        "swale, log small and large", "ns", 400, 200, by="cpu"),
    Key("map_bytes_per_extent", "the extent map at its largest, all runs", "B", 40, 24),
    Key("recovery_seconds_per_gib", "wall time of opening a store with a full log of a GiB in the page "
        "cache, payload checksums verified", "s",
        1, 0.5, by="cpu"),
    Key("recovery_cpu_seconds_per_gib", "the same: CPU time", "s", None, None, by="cpu"),
    Key("mount_over_passthrough_seq", "1 MiB writes in order through the mount over a FUSE pass-through "
        "(spliced or not, the better), "
        "page cache, interleaved: median", "", 0.9, 1.0, less_is_better=False),
    Key("mount_over_passthrough_random", "the same: 4 KiB at random offsets", "", 0.9, 1.2,
        less_is_better=False),
    Key("real_fsync_over_plain", f"{REAL}, fsync after every eight writes: bytes a second through the mount "
        f"with its defaults over the "
        "device's own file system", "", 1.4, 1.9, less_is_better=False),
    Key("real_osync_over_plain", "the same, O_SYNC", "", 1.2, 3, less_is_better=False),
    Key("real_fsync_over_ssdupplus", "the mount with its defaults over the mount with SSDUP+, fsync after "
        "every eight", "", 1.0, 1.2,
        less_is_better=False),
    Key("real_fsync_same_requests", "the same, of rounds in which chance has given SSDUP+ different shares: "
        "bytes that SSDUP+ would leave to the "
        "device, of each mount's very own writes, a second", "", 0.95, 1.0, less_is_better=False),
    Key("real_ssd_bytes_over_ssdupplus", "the same: bytes sent to the SSD; the largest of fsync, O_SYNC, "
        "fsync at the end", "", 1.0, 0.7),
    Key("real_ssd_bytes_same_requests", "bytes that the mount sent to the SSD over what SSDUP+ would have "
        "sent of the very same writes, as the mount "
        "counts it beside itself: the largest of all runs (two mounts, as above, get their writes in two "
        "orders)", "", 1.0, 0.9),
    Key("real_drained_over_plain", "time until all is on the limited device, synced, over the file "
        "system's; the largest of the three", "",
        1.1, 0.8),
    Key("mount_create_as_caller_over_root", "empty files made by an ordinary user through root's mount: "
        "requests that run as their caller "
        "over all as root, interleaved: median", "", 0.9, 1.0, less_is_better=False),
    Key("mount_write_as_caller_over_root", "the same: 4 KiB at random offsets", "", 0.97, 1.0,
        less_is_better=False),
)
# An ordinary user who runs the benchmark has no mount that serves others and no limited device: these are
# said to be not measured.
NEED_ROOT = ("mount_create_as_caller_over_root", "mount_write_as_caller_over_root",
             *(key.name for key in KEYS if key.name.startswith("real_")))
