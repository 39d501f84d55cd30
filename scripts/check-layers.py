#!/usr/bin/env python3
"""check-layers.py [TREE] [--self-test]: which file may include what (docs/architecture.md tells why).

An #include in src/ points to a lower layer or stays in its folder; each third-party API is named by the
sources of one place; nobody but tests and benchmarks sees the simulator. The self-test breaks each rule once
in a scratch tree and expects to be told so.
"""
import os
import re
import sys
import tempfile

import checker

LAYERS = {
    "base": 0,
    "io": 1, "net": 1,
    "run": 2, "source": 2, "store": 2,
    "tier": 3, "meta": 3, "imd": 3,
    "query": 4, "fs": 4, "iond": 4, "stage": 4,
    "capi": 5, "fuse": 5, "preload": 5,
}
# Lower, and yet hidden: (the folder, what it does not see).
HIDDEN = {("run", "net"), ("source", "net"), ("store", "net"), ("tier", "net"), ("stage", "net")}

# Rooms of one folder and their layers inside it: production code of a room sees lower rooms and its own.
ROOM_LAYERS = {
    "net": {"fabric": 0, "meeting": 1, "route": 2, "job": 3, "talk": 4, "rpc": 5},
    "meta": {"index": 0, "attributes": 1, "names": 1, "server": 2, "client": 3, "store": 4},
    "tier": {"policy": 0, "trace": 0, "log": 1, "engine": 2, "store": 3},
    "imd": {"format": 0, "write": 1, "read": 1, "check": 2, "optimize": 3},
    "fs": {"log": 0, "share": 0, "epochs": 0, "client": 1, "locks": 1, "node": 1, "peers": 2, "job": 3,
           "losses": 4},
}
# Where test rigs stand, in any folder or room: only tests and other rigs see them.
RIGS = "testing"

# Folders beside src/, and whether they may drive the simulator. They may include anything else of ours.
BESIDE = {"tools": False, "examples": False, "python": False, "sim": True, "tests": True, "bench": True,
          "fuzz": True}

# Third-party headers: what they are called, and where alone they may be named (prefixes of paths).
THIRD_PARTY = [
    (r"(ucp|ucs|uct|ucm)/", ["src/net/", "bench/net/"]),
    (r"liburing(\.h|/)", ["src/io/", "tests/faults/failing_calls.c"]),
    (r"(fuse3/|fuse(_\w+)?\.h)", ["src/fuse/", "bench/tier/"]),
    (r"mpi\.h", ["include/swale/swale_mpi.h", "examples/", "tests/"]),
    (r"(isa-l|xxhash|xxh3|spdlog/|lz4|zstd)", ["src/base/"]),
    (r"CLI/", ["tools/", "examples/"]),
    (r"(leveldb|rocksdb)/", ["bench/"]),
    (r"nlohmann/", ["tools/", "examples/", "tests/", "bench/", "fuzz/"]),  # src/ has base/json.h
]
TEST_LIBRARY = re.compile(r"(gtest|gmock)/")

SOURCE = re.compile(r"\.(h|hpp|c|cc|cpp|inc)$")
INCLUDE = re.compile(r'^\s*#\s*include\s*(?P<quote>[<"])(?P<target>[^>"]+)[>"]')


def check_ours(path, target, quoted):
    """What is wrong with an include of one of our own headers, or None."""
    top, *rest = path.split("/")
    first = target.split("/")[0]
    if ".." in target.split("/"):
        return "includes are spelled from src/, never with '..'"
    if top == "include":
        if first in LAYERS or first in BESIDE or first == "src":
            return "public headers include nothing from src/"
        return None
    if first == "sim" and not BESIDE.get(top, False):
        return "only tests and benchmarks see sim/"
    if top != "src":
        return None
    own = rest[0]
    if first in LAYERS:
        if first != own and LAYERS[first] >= LAYERS[own]:
            return f"{own} is layer {LAYERS[own]} and does not see {first}, layer {LAYERS[first]}"
        if (own, first) in HIDDEN:
            return f"{own} does not see {first}"
        return check_rooms(path, target)
    if first == "swale":
        return None if LAYERS[own] == 5 else "only the faces (layer 5) know the public headers"
    if first in BESIDE and "/" in target:
        return f"src/ includes nothing from {first}/"
    if quoted:
        return "is in no folder of src/ that this check knows; spell it 'folder/file.h', from src/"
    return None


def room(path):
    """(folder, room) of a path from src/, e.g. ("net", "rpc"); None where the folder has no rooms or the path
    no room.
    """
    folder, *rest = path.split("/")
    return (folder, rest[0]) if len(rest) > 1 and rest[0] in ROOM_LAYERS.get(folder, {}) else None


def check_rooms(path, target):
    """Production code of a room sees lower rooms and its own, and no rig. Tests and rigs may see all."""
    if is_test(path):
        return None
    if RIGS in target.split("/"):
        return "only tests see test rigs"
    mine, theirs = room(path.removeprefix("src/")), room(target)
    if mine is None or theirs is None or mine == theirs or mine[0] != theirs[0]:
        return None
    layers = ROOM_LAYERS[mine[0]]
    if layers[theirs[1]] >= layers[mine[1]]:
        return f"{'/'.join(mine)} does not see {'/'.join(theirs)}"
    return None


def is_test(path):
    return os.path.basename(path).split(".")[0].endswith("_test") or RIGS in path.split("/")


def check_third_party(path, target):
    for pattern, places in THIRD_PARTY:
        if is_test(path) and target.startswith("nlohmann/"):
            continue
        if re.match(pattern, target) and not any(path.startswith(place) for place in places):
            return f"only named in {', '.join(places)}"
    if TEST_LIBRARY.match(target) and not is_test(path) and "test" not in os.path.basename(
        path) and not path.startswith("tests/"):
        return "only tests name the test library"
    return None


def check_file(root, path):
    with open(os.path.join(root, path), encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            include = INCLUDE.match(line)
            if not include:
                continue
            target = include["target"]
            for wrong in (check_ours(path, target, include["quote"] == '"'), check_third_party(path, target)):
                if wrong:
                    yield f"{path}:{number}: #include of {target}: {wrong}"


def check_tree(root):
    """All violations under root, as lines of text."""
    found = []
    src = os.path.join(root, "src")
    for name in sorted(os.listdir(src)) if os.path.isdir(src) else []:
        if os.path.isdir(os.path.join(src, name)):
            if name not in LAYERS:
                found.append(f"src/{name}: unknown folder; give it a layer in scripts/check-layers.py")
        elif SOURCE.search(name):
            found.append(f"src/{name}: sources belong into a layer's folder")
    for top in ("src", "include", *BESIDE):
        for folder, _, names in os.walk(os.path.join(root, top)):
            for name in sorted(names):
                path = os.path.relpath(os.path.join(folder, name), root)
                known = top != "src" or (path.count("/") > 1 and path.split("/")[1] in LAYERS)
                if SOURCE.search(name) and known:
                    found.extend(check_file(root, path))
    return found


# One violation of each kind: (file, its text, what the report must say).
CANARIES = [
    ("src/base/a.cc", '#include "io/device.h"', "does not see io"),
    ("src/io/a.cc", '#include "net/fabric/transport.h"', "does not see net"),
    ("src/net/a.cc", '#include "io/device.h"', "does not see io"),
    ("src/run/a.cc", '#include "net/fabric/transport.h"', "run does not see net"),
    ("src/source/a.cc", '#include "net/fabric/transport.h"', "source does not see net"),
    ("src/store/a.cc", '#include "net/fabric/transport.h"', "store does not see net"),
    ("src/store/b.cc", '#include "tier/log/log_format.h"', "store is layer 2 and does not see tier"),
    ("src/tier/a.cc", '#include <net/fabric/transport.h>', "tier does not see net"),
    ("src/run/b.cc", '#include "imd/read/reader.h"', "does not see imd"),
    ("src/imd/a.cc", '#include "meta/server.h"', "does not see meta"),
    ("src/preload/a.cc", '#include "capi/handles.h"', "does not see capi"),
    ("src/imd/b_test.cc", '  #  include "sim/cluster.h"', "see sim/"),
    ("src/imd/c.cc", '#include "tests/helper.h"', "nothing from tests/"),
    ("src/imd/read/h.cc", '#include "imd/check/repair.h"', "does not see imd/check"),
    ("src/imd/read/i.cc", '#include "imd/write/writer.h"', "does not see imd/write"),
    ("src/net/fabric/a.cc", '#include "net/rpc/rpc.h"', "does not see net/rpc"),
    ("src/meta/index/a.cc", '#include "meta/attributes/attributes.h"', "does not see meta/attributes"),
    ("src/meta/names/a.cc", '#include "meta/server/server_core.h"', "does not see meta/server"),
    ("src/tier/log/a.cc", '#include "tier/engine/engine.h"', "does not see tier/engine"),
    ("src/tier/engine/a.cc", '#include "tier/engine/testing/crash_world.h"', "only tests see test rigs"),
    ("src/fs/a.cc", '#include "iond/iond.h"', "does not see iond"),
    ("src/stage/a.cc", '#include "net/meeting/topology.h"', "stage does not see net"),
    ("src/imd/j.cc", '#include "query/columns.h"', "does not see query"),
    ("src/imd/d.cc", '#include "../base/status.h"', "never with '..'"),
    ("src/imd/e.cc", '#include "reader.h"', "from src/"),
    ("src/imd/f.cc", '#include "swale/swale.h"', "only the faces"),
    ("src/imd/g.cc", "#include <ucp/api/ucp.h>", "src/net/"),
    ("src/net/b.cc", "#include <liburing.h>", "src/io/"),
    ("src/preload/b.cc", "#include <fuse3/fuse.h>", "src/fuse/"),
    ("src/net/c.cc", "#include <mpi.h>", "examples/"),
    ("src/run/c.cc", "#include <isa-l/crc.h>", "src/base/"),
    ("src/run/d.cc", "#include <xxhash.h>", "src/base/"),
    ("src/run/g.cc", "#include <lz4.h>", "src/base/"),
    ("src/run/h.cc", "#include <zstd.h>", "src/base/"),
    ("tools/a.cc", "#include <spdlog/spdlog.h>", "src/base/"),
    ("src/capi/a.cc", "#include <CLI/CLI.hpp>", "tools/"),
    ("src/run/f.cc", "#include <leveldb/db.h>", "bench/"),
    ("src/io/c.cc", "#include <nlohmann/json.hpp>", "bench/"),
    ("src/run/e.cc", "#include <gtest/gtest.h>", "test library"),
    ("tools/b.cc", '#include "sim/cluster.h"', "see sim/"),
    ("examples/a/b.cc", '#include "sim/cluster.h"', "see sim/"),
    ("include/swale/a.h", '#include "base/status.h"', "nothing from src/"),
    ("src/newcomer/a.h", "", "unknown folder"),
    ("src/stray.cc", "", "into a layer's folder"),
]
ALLOWED = [
    ("src/imd/a.cc", '#include "imd/a.h"\n#include "run/run.h"\n#include "base/status.h"\n#include '
     '<fmt/format.h>'),
    ("src/imd/check/b.cc", '#include "imd/read/reader.h"\n#include "imd/format/manifest.h"'),
    ("src/imd/read/b_test.cc", '#include "imd/write/writer.h"'),
    ("src/net/rpc/a.cc", '#include "net/fabric/transport.h"'),
    ("src/tier/engine/testing/a.h", '#include "tier/store/store.h"\n#include <gtest/gtest.h>'),
    ("src/base/a_test.cc", "#include <nlohmann/json.hpp>"),
    ("src/imd/a_test.cc", '#include <gtest/gtest.h>\n// #include "sim/cluster.h"'),
    ("src/net/a.cc", "#include <ucp/api/ucp.h>"),
    ("src/capi/a.cc", '#include "swale/swale.h"\n#include "imd/read/reader.h"'),
    ("include/swale/swale_mpi.h", '#include <mpi.h>\n#include "swale/swale.h"'),
    ("tools/a.cc", '#include "imd/read/reader.h"\n#include <CLI/CLI.hpp>\n#include "local.h"'),
    ("tests/a_test.cc", '#include "sim/cluster.h"\n#include "net/fabric/transport.h"'),
    ("sim/a.cc", '#include "sim/a.h"\n#include "imd/write/writer_core.h"'),
]


def check_scratch(files):
    with tempfile.TemporaryDirectory(prefix="swale-layers-") as root:
        for path, text in files:
            os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                file.write(text + "\n")
        return check_tree(root)


def self_test():
    failures = [f"not allowed, though it should be: {found}" for found in check_scratch(ALLOWED)]
    for path, text, expected in CANARIES:
        found = check_scratch([(path, text)])
        if not any(expected in line for line in found):
            failures.append(f"{path} with {text!r} went unnoticed (expected '{expected}', found {found})")
    return checker.canaries_noticed("check-layers.py", failures, f"layers: the check notices all "
                                    f"{len(CANARIES)} canaries")


if __name__ == "__main__":
    sys.exit(checker.main(self_test, check_tree, "layers: every #include points downwards"))
