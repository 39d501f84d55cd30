#!/usr/bin/env python3
"""check-numbers.py [TREE] [--self-test]: no header of src/ declares a function that takes two bare integers
side by side of which one is the number, or the count, of a rank, a partition, an epoch or a block: a caller
that swaps them compiles.

What to do instead: a type of base/numbers.h, or a struct whose members are named. EXCEPTIONS
lists the functions that keep two integers, and why. The self-test swaps some and expects to be told so.
"""
import os
import re
import sys
import tempfile

import checker

INTEGER = r"(?:u?int(?:8|16|32|64)?(?:_t)?|size_t|unsigned|long|(?:\w+::)?Rank)"
PARAMETER = re.compile(rf"^(?:const )?(?:std::)?{INTEGER} (?P<name>\w+)(?: ?=.*)?$")
WATCHED = re.compile(r"(?:^|_)(?:rank|partition|epoch|block)s?(?:_(?:number|index))?$")
LIST = re.compile(r"(?P<function>[~\w]*)(?P<list>\([^()]*\))")

# Why a function keeps two integers: (file, function).
EXCEPTIONS = {
    # A rank is an int32_t (net::Rank), and stands beside the size of its job, or beside an offset.
    ("src/imd/write/epoch_protocol.h", "EpochProtocol"), ("src/imd/write/parting.h", "Parting"),
    ("src/net/meeting/bootstrap.h", "take"), ("src/net/meeting/exchange.h", "Exchange"),
    ("src/net/meeting/exchange.h", "ExchangeTree"),
    ("src/net/fabric/fabric_module.h", ""), ("src/net/fabric/rank_table.h", "place_of"),
    ("src/net/fabric/rank_table.h", "put"),
    ("src/net/fabric/tls_fabric.h", "make_tls"), ("src/net/fabric/tls_internal.h", "Tls"),
    ("src/net/fabric/tls_transport.h", "tls_transport"),
    ("src/net/fabric/ucx_fabric.h", "make_ucx"), ("src/net/fabric/ucx_internal.h", "Ucx"),
    ("src/net/fabric/ucx_transport.h", "ucx_transport"),
    # As in the C interface: int64_t is the number of an epoch, or kAllEpochs; a user's function gets bytes
    # and partitions.
    ("src/imd/format/partitioner.h", ""),
    ("src/imd/read/reader.h", "sample"), ("src/imd/read/reader.h", "scan_part"),
    ("src/imd/read/reader_view.h", "sample"), ("src/imd/read/reader_view.h", "scan_part"),
    # Two counts in a formula.
    ("src/imd/read/reader_scan.h", "share_of"), ("src/meta/index/cluster.h", "ClusterQueue"),
    ("src/meta/index/cluster.h", "local_enough"),
    ("src/net/talk/frame_pool.h", "FramePool"), ("src/net/talk/frame_pool.h", "create"),
    ("src/run/extrema.h", "memory_bytes"), ("src/run/sketch.h", "sketch_memory_bytes"),
    # A file's index in its set, and a block's in the file: both index vectors.
    ("src/meta/index/tree.h", "open"),
}


def parameters(text):
    """(line, function, parameters) of each list in parentheses, innermost first: lists within them are
    blanked out.
    """
    text = re.sub(r"//[^\n]*", "", text)
    while LIST.search(text):
        for found in LIST.finditer(text):
            words = re.sub(r"\s+", " ", found["list"][1:-1])
            yield text.count("\n", 0,
                             found.start()) + 1, found["function"], [word.strip()
                                                                     for word in words.split(",")]
        text = LIST.sub(lambda found: "\n" * found["list"].count("\n"), text)


def check_header(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as file:
        text = file.read()
    for line, function, words in parameters(text):
        names = [match and match["name"] for match in map(PARAMETER.match, words)]
        for first, second in zip(names, names[1:]):
            if not first or not second or not (WATCHED.search(first) or WATCHED.search(second)):
                continue
            if (path, function) not in EXCEPTIONS:
                yield (f"{path}:{line}: {function} takes `{first}` and `{second}`, two bare integers that a "
                       f"caller can "
                       "swap; use a type of base/numbers.h, or a struct")
            break


def headers(root):
    for folder, _, names in os.walk(os.path.join(root, "src")):
        for name in sorted(names):
            if name.endswith(".h") and not name.startswith("test_") and "test_" not in name:
                yield os.path.relpath(os.path.join(folder, name), root)


def check_tree(root):
    return [line for path in sorted(headers(root)) for line in check_header(root, path)]


# What must be refused, and what the report says.
CANARIES = [
    ("void f(uint32_t epoch, uint32_t partition);", "`epoch` and `partition`"),
    ("void f(uint64_t epoch_id, uint32_t next_epoch);", "`epoch_id` and `next_epoch`"),
    ("Status verify(Bytes block, uint32_t seed,\n              uint64_t block_number);",
     "`seed` and `block_number`"),
    ("explicit F(net::Rank rank, int32_t size = 1);", "`rank` and `size`"),
    ("void f(int32_t ranks, size_t bytes);", "`ranks` and `bytes`"),
    ("using Fn = std::function<void(size_t key, uint32_t epoch)>;", "`key` and `epoch`"),
    ("void f(const std::function<void(int)>& fn, uint32_t rank, uint32_t way);", "`rank` and `way`"),
]
ALLOWED = [
    "void f(EpochNumber epoch, uint64_t epoch_id);",
    "void f(EpochNumber epoch, PartitionNumber partition);",
    "void f(uint32_t partition, Bytes bytes, uint64_t offset);",
    "void f(uint64_t offset, uint32_t bytes);  // of (uint32_t epoch, uint32_t partition)",
    "void f(uint32_t epoch); void g(uint32_t partition);",
]


def check_scratch(text):
    with tempfile.TemporaryDirectory(prefix="swale-numbers-") as root:
        os.makedirs(os.path.join(root, "src", "run"))
        with open(os.path.join(root, "src", "run", "a.h"), "w", encoding="utf-8") as file:
            file.write(text + "\n")
        return check_tree(root)


def self_test():
    failures = [f"not allowed, though it should be: {found}" for text in ALLOWED
                for found in check_scratch(text)]
    for text, expected in CANARIES:
        found = check_scratch(text)
        if not any(expected in line for line in found):
            failures.append(f"{text!r} went unnoticed (expected '{expected}', found {found})")
    return checker.canaries_noticed("check-numbers.py", failures,
                                    f"numbers: the check notices all {len(CANARIES)} canaries")


if __name__ == "__main__":
    sys.exit(checker.main(self_test, check_tree, "numbers: no header takes two of them that could be "
                          "swapped"))
