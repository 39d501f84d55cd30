"""golden_test.py SWALE MAKE_DIRECTORY GOLDEN: every released version of a directory is read by this build.

GOLDEN/dir-v1 was written by `make_directory PATH 0 1` as two ranks, then by `make_directory PATH 1 1` as
one; GOLDEN/large-v1 and attributes-v1 likewise, with the word `large` or `attributes`, and
GOLDEN/indirect-v1 and lossy-v1 also with SWALE_IMD_FORMAT=indirect and lossy; GOLDEN/keys-v1 by
`make_directory PATH 0 1` as one, with SWALE_IMD_KEY=u64; GOLDEN/clusters-v2 is dir-v1 after `swale
optimize`, cluster-ranks-v2 after the same by two ranks, and freed-v2 the first after `swale optimize
--free`; GOLDEN/columns-v2 is `make_directory PATH 0 4 400` as one, with SWALE_IMD_COMPRESSION=lz4, after
`swale optimize`; the versions 1 of these are of a build that had logs in the folders of clusters;
GOLDEN/layout-v1/COMPRESSION-INDEX by
`make_directory PATH 0 1 400` as one, with SWALE_IMD_COMPRESSION and SWALE_IMD_INDEX set (for `papers0`
SWALE_IMD_BLOOM_BITS=0, too). All of it by `tests/golden/make_golden.py
build/checked/tests/api/make_directory`. Folders of a released version are never written again: a new
version of a format adds a folder.
"""
import contextlib
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SWALE, MAKE_DIRECTORY, GOLDEN = sys.argv[1:4]
# Each compression and each index once.
LAYOUTS = ["lz4-bloom", "lz4-sketch", "none-papers0", "zstd-blocked_bloom"]
LAYOUT_KEYS = 400


def shown(number):
    """A value of 8 bytes, as text output has it."""
    return "0x" + number.to_bytes(8, "little").hex()


def expected_records(keys=20, epochs=2):
    """make_directory.c says so: [epoch, key, value], as `scan --u64` prints them."""
    records = []
    for epoch in range(epochs):
        records += [f"{epoch}\tu64:{key}\t{shown(epoch * 100 + key)}" for key in range(keys)]
        records.append(f"{epoch}\tname\tfirst {epoch}")
    return records


@contextlib.contextmanager
def copy_of(name):
    with tempfile.TemporaryDirectory(prefix="swale-test-") as scratch:
        path = os.path.join(scratch, "copy")
        shutil.copytree(os.path.join(GOLDEN, name), path)
        yield path


def damage(path, log, offset, folder="p000"):
    with open(os.path.join(path, folder, log), "r+b") as file:
        file.seek(offset)
        file.write(b"?")


class Golden(unittest.TestCase):
    def run_swale(self, *arguments, expect=0):
        done = subprocess.run([SWALE, *arguments], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, expect, (arguments, done.stdout, done.stderr))
        return done.stdout

    def check(self, path, epochs, partitions=2):
        lines = self.run_swale("scan", path, "--u64").splitlines()
        self.assertLessEqual(set(expected_records()), set(lines))
        self.assertEqual(len(lines), 22 + 23 + 22 * (epochs - 2))
        self.assertEqual(self.run_swale("get", path, "u64:7", "--u64", "-e", "1"),
                         f"u64:7\t1\t{shown(107)}\n")
        self.assertEqual(self.run_swale("top", path, "number", "-k", "1", "--smallest", "--u64", "-e", "0"),
                         f"0\tu64:0\t{shown(0)}\n")
        self.assertIn(f"all good ({epochs} epochs, {partitions} partitions", self.run_swale("verify", path))

    def test_every_released_version_is_read(self):
        versions = sorted(name for name in os.listdir(GOLDEN) if name.startswith("dir-v"))
        self.assertEqual(versions, ["dir-v1"])
        for version in versions:
            path = os.path.join(GOLDEN, version)
            self.check(path, 2)
            (info,) = [json.loads(line) for line in self.run_swale("info", path, "--json").splitlines()]
            self.assertEqual([epoch["step"] for epoch in info["epochs"]], [0, 10])
            things = [json.loads(line) for line in self.run_swale("dump", path, "--json").splitlines()]
            self.assertEqual(sum(thing["records"] for thing in things if thing["what"] == "run"), 45)
            self.assertEqual(sum(thing["what"] == "summary" for thing in things), 1)
            self.assertIn("nothing to repair", self.run_swale("repair", path, "--dry-run"))
        print(f"read {len(versions)} released versions")

    def test_attributes_are_read_and_continued(self):
        path = os.path.join(GOLDEN, "attributes-v1")
        self.check(path, 2)
        (info,) = [json.loads(line) for line in self.run_swale("info", path, "--json").splitlines()]
        self.assertEqual(info["attributes"], {"units": "lj"})
        self.assertEqual([epoch.get("attributes") for epoch in info["epochs"]], [{"box": [0, 1, 1]}, None])
        text = self.run_swale("info", path)
        self.assertIn('attributes: {"units":"lj"}\n  1 epochs have attributes', text)
        things = [json.loads(line) for line in self.run_swale("dump", path, "--json").splitlines()]
        (line,) = [thing["content"] for thing in things if thing["what"] == "attributes"]
        self.assertEqual((line["directory"], line["attributes"]), ({"units": "lj"}, {"box": [0, 1, 1]}))
        self.assertEqual({thing["described_by"] for thing in things if thing["what"] == "epoch"}, {0})
        with open(os.path.join(path, "swale.json"), encoding="utf-8") as manifest:
            self.assertEqual(json.load(manifest)["incompatible_features"], ["attributes"])
        self.assertIn("nothing to repair", self.run_swale("repair", path, "--dry-run"))
        with copy_of("attributes-v1") as copy:
            subprocess.run([MAKE_DIRECTORY, copy, "2", "1", "attributes"], check=True, timeout=60)
            info = json.loads(self.run_swale("info", copy, "--json"))
            self.assertEqual((info["attributes"], info["epochs"][2]["attributes"]),
                             ({"units": "lj"}, {"box": [2, 1, 1]}))
            file = os.path.join(copy, "jobs", "0001", "attributes.jsonl")
            with open(file, "r+b") as lines:
                lines.seek(60)
                lines.write(b"?")
            self.run_swale("verify", copy, expect=1)
            self.assertIn("attributes.jsonl", self.run_swale("dump", file, expect=1))
            self.run_swale("info", copy, expect=3)
            self.run_swale("get", copy, "u64:7")
            self.assertIn("lost: attributes of epoch 0", self.run_swale("repair", copy, expect=1))
            self.run_swale("verify", copy)
            info = json.loads(self.run_swale("info", copy, "--json"))
            self.assertEqual((info["attributes"], info["epochs"][2]["attributes"]), ({}, {"box": [2, 1, 1]}))

    def test_keys_that_are_numbers(self):
        path = os.path.join(GOLDEN, "keys-v1")
        with open(os.path.join(path, "swale.json"), encoding="utf-8") as manifest:
            self.assertEqual(json.load(manifest)["key"], "u64")
        self.assertEqual(self.run_swale("get", path, "7"), f"7\t0\t{shown(7)}\n")
        self.assertIn("all good (1 epochs", self.run_swale("verify", path))
        with copy_of("keys-v1") as copy:
            subprocess.run([MAKE_DIRECTORY, copy, "1", "1"], check=True, timeout=60)
            self.assertEqual(self.run_swale("get", copy, "7", "-e", "1"), f"7\t1\t{shown(107)}\n")

    def large_value(self, epoch, rank):
        return bytes((epoch + rank + i // 64) & 255 for i in range(16385 + rank))

    def check_large(self, path, epochs):
        for epoch, rank in ((0, 0), (0, 1), (1, 0)):
            lines = self.run_swale("get", path, f"large {rank}", "--hex", "-e", str(epoch)).splitlines()
            values = [line.split("\t")[2] for line in lines]
            self.assertEqual([value.removeprefix("0x") for value in values],
                             [self.large_value(epoch, rank).hex(), b"after".hex()])
        least = self.run_swale("top", path, "number", "-k", "2", "--smallest", "--json", "-e",
                               "0").splitlines()
        self.assertEqual(json.loads(least[1])["key"], "large 0")
        self.assertIn(f"all good ({epochs} epochs, 2 partitions", self.run_swale("verify", path))

    def test_large_values_are_read(self):
        path = os.path.join(GOLDEN, "large-v1")
        self.check_large(path, 2)
        with open(os.path.join(path, "swale.json")) as manifest:
            self.assertEqual(json.load(manifest)["epochs"], 2)
        things = [json.loads(line) for line in self.run_swale("dump", path, "--json").splitlines()]
        self.assertEqual(sum(thing["bytes"] for thing in things if thing["what"] == "value"), 3 * 16385 + 1)
        self.assertEqual(sum(thing["values"] for thing in things if thing["what"] == "values"), 3)
        self.assertIn("nothing to repair", self.run_swale("repair", path, "--dry-run"))
        with copy_of("large-v1") as copy:
            subprocess.run([MAKE_DIRECTORY, copy, "2", "1", "large"], check=True, timeout=60)
            self.check_large(copy, 3)

    def test_values_in_pages_are_read(self):
        path = os.path.join(GOLDEN, "indirect-v1")
        self.check_large(path, 2)
        with open(os.path.join(path, "swale.json")) as file:
            manifest = json.load(file)
        self.assertEqual((manifest["shuffle"], manifest["incompatible_features"]), ("indirect", ["format"]))
        self.assertIn("format: indirect", self.run_swale("info", path))
        things = [json.loads(line) for line in self.run_swale("dump", path, "--json").splitlines()]
        self.assertEqual(sum(thing["values"] for thing in things if thing["what"] == "page"), 3)
        self.assertEqual({thing["values"] for thing in things if thing["what"] == "run"}, {"in pages"})
        self.assertIn("nothing to repair", self.run_swale("repair", path, "--dry-run"))
        with copy_of("indirect-v1") as copy:
            subprocess.run([MAKE_DIRECTORY, copy, "2", "1", "large"], check=True, timeout=60)
            self.check_large(copy, 3)
            damage(copy, "part-000001.j0001.pages", 9000)
            self.run_swale("verify", copy, expect=1)
            self.run_swale("get", copy, "large 1", expect=3)

    def test_records_that_stayed_are_read(self):
        path = os.path.join(GOLDEN, "lossy-v1")
        self.check_large(path, 2)
        for key in range(20):
            self.assertEqual(self.run_swale("get", path, f"u64:{key}", "--u64", "-e", "0"),
                             f"u64:{key}\t0\t{shown(key)}\n")
        with open(os.path.join(path, "swale.json")) as file:
            self.assertEqual(json.load(file)["shuffle"], "lossy")
        things = [json.loads(line) for line in self.run_swale("dump", path, "--json").splitlines()]
        self.assertEqual({thing["home"] for thing in things if thing["what"] == "run"}, {"writer"})
        # Of the epoch of two ranks; the other one has a single rank.
        self.assertEqual([thing["epoch"] for thing in things if thing["what"] == "table"], [0, 0])
        self.assertIn("nothing to repair", self.run_swale("repair", path, "--dry-run"))
        with copy_of("lossy-v1") as copy:
            damage(copy, "part-000001.j0001.source", 20)
            self.run_swale("verify", copy, expect=1)
            self.run_swale("repair", copy)
            self.check_large(copy, 2)

    def test_canary_a_changed_byte_of_a_large_value_is_noticed(self):
        with copy_of("large-v1") as path:
            damage(path, "part-000001.j0001.values", 9000)
            self.run_swale("verify", path, expect=1)
            self.run_swale("get", path, "large 1", expect=3)

    def check_layout(self, name, path, epochs):
        lines = self.run_swale("scan", path, "--u64").splitlines()
        self.assertLessEqual(set(expected_records(LAYOUT_KEYS, epochs)), set(lines))
        self.assertEqual(len(lines), (LAYOUT_KEYS + 2) * epochs + epochs // 2)
        self.assertEqual(self.run_swale("get", path, "u64:7", "--u64", "-e", "0"), f"u64:7\t0\t{shown(7)}\n")
        self.run_swale("get", path, "u64:1000", expect=1)
        self.assertEqual(self.run_swale("top", path, "number", "-k", "1", "--smallest", "--u64", "-e", "0"),
                         f"0\tu64:0\t{shown(0)}\n")
        self.assertIn(f"all good ({epochs} epoch", self.run_swale("verify", path))
        layout = json.loads(self.run_swale("info", path, "--json"))["layout"]
        bits = "" if layout.get("bloom_bits", 10) == 10 else str(layout["bloom_bits"])
        self.assertEqual(f"{layout['compression']}-{layout['index']}{bits}", name)
        things = [json.loads(line) for line in self.run_swale("dump", path, "--json").splitlines()]
        runs = [thing for thing in things if thing["what"] == "run"]
        self.assertEqual(sum(run["records"] for run in runs), len(lines))
        self.assertEqual("packed" in {run["kind"] for run in runs}, not name.startswith("none"), name)
        self.assertEqual(any(thing["what"] == "filter-piece" for thing in things), "sketch" not in name, name)
        self.assertIn("nothing to repair", self.run_swale("repair", path, "--dry-run"))

    def test_every_layout_is_read_and_written_behind(self):
        self.assertEqual(sorted(os.listdir(os.path.join(GOLDEN, "layout-v1"))), LAYOUTS)
        for name in LAYOUTS:
            self.check_layout(name, os.path.join(GOLDEN, "layout-v1", name), 1)
            with copy_of(os.path.join("layout-v1", name)) as path:
                subprocess.run([MAKE_DIRECTORY, path, "1", "1", str(LAYOUT_KEYS)], check=True, timeout=60)
                self.check_layout(name, path, 2)

    def test_a_layouts_index_is_made_anew(self):
        for name in LAYOUTS:
            with copy_of(os.path.join("layout-v1", name)) as path:
                os.truncate(os.path.join(path, "p000", "part-000000.j0001.index"), 0)
                self.run_swale("verify", path, expect=1)
                self.run_swale("repair", path)
                self.check_layout(name, path, 1)

    def test_canary_a_changed_byte_of_a_layout_is_noticed(self):
        for name in LAYOUTS:
            for log in "data", "index":
                with copy_of(os.path.join("layout-v1", name)) as path:
                    damage(path, f"part-000000.j0001.{log}", 20)
                    self.run_swale("verify", path, expect=1)

    def test_a_writer_goes_on_behind_them(self):
        with copy_of("dir-v1") as path:
            subprocess.run([MAKE_DIRECTORY, path, "2", "1"], check=True, timeout=60)
            self.check(path, 3)

    def test_clusters_answer(self):
        for name in "clusters-v1", "clusters-v2", "cluster-ranks-v1", "cluster-ranks-v2":
            self.check(os.path.join(GOLDEN, name), 2)
            with copy_of(name) as path:
                for partition in range(2):
                    os.remove(os.path.join(path, "p000", f"part-{partition:06}.j0001.data"))
                for key in range(20):
                    self.assertEqual(self.run_swale("get", path, f"u64:{key}", "--u64"),
                                     "".join(f"u64:{key}\t{epoch}\t{shown(epoch * 100 + key)}\n"
                                             for epoch in range(2)))

    def test_a_pass_takes_every_older_version(self):
        names = [*(name for name in sorted(os.listdir(GOLDEN)) if re.fullmatch(
            "(attributes|dir|indirect|keys|large|lossy)-v1", name)),
                 *(os.path.join("layout-v1", name) for name in LAYOUTS)]
        self.assertEqual(len(names), 10)
        for name in names:
            with copy_of(name) as path, self.subTest(name):
                number = "" if name.startswith("keys") else "u64:"
                keys = [f"{number}{key}" for key in (0, 7, 19)]
                keys += ["large 0", "large 1"] if name[:8] in ("indirect", "large-v1", "lossy-v1") else []
                ask = ("get", path, *keys, "--json")
                before = sorted(self.run_swale(*ask).splitlines())
                self.assertGreaterEqual(len(before), len(keys))
                self.assertIn("cluster 0001 has", self.run_swale("optimize", path))
                self.assertIn(", 1 clusters", self.run_swale("verify", path))
                for log in glob.glob(os.path.join(path, "p000", "*.data")):
                    os.remove(log)
                self.assertEqual(sorted(self.run_swale(*ask).splitlines()), before)

    def test_columns_answer(self):
        for name, features in ("columns-v1", ["columns"]), ("columns-v2", ["columns", "beside"]):
            with self.subTest(name):
                self.check_columns(name, features)

    def check_columns(self, name, features):
        path = os.path.join(GOLDEN, name)
        with open(os.path.join(path, "clusters", "0001", "manifest.json"), encoding="utf-8") as listed:
            self.assertEqual(json.load(listed)["incompatible_features"], features)
        self.assertIn(", in columns", self.run_swale("info", path))
        self.run_swale("verify", path)
        with copy_of(name) as copy:
            os.remove(os.path.join(copy, "p000", "part-000000.j0001.data"))
            for key in range(0, 400, 57):
                self.assertEqual(self.run_swale("get", copy, f"u64:{key}", "--u64"),
                                 "".join(f"u64:{key}\t{epoch}\t{shown(epoch * 100 + key)}\n"
                                         for epoch in range(4)))

    def test_freed_epochs_are_read(self):
        for name, log in ("freed-v1", "0001/p000/part-000000.j0001.data"), ("freed-v2",
                                                                            "0001.part-000000.j0001.data"):
            with self.subTest(name):
                self.check_freed(name, log)

    def check_freed(self, name, log):
        path = os.path.join(GOLDEN, name)
        self.check(path, 2, partitions=1)
        info = json.loads(self.run_swale("info", path, "--json"))
        self.assertEqual([epoch.get("freed", False) for epoch in info["epochs"]], [True, False])
        with open(os.path.join(path, "swale.json"), encoding="utf-8") as manifest:
            self.assertEqual(json.load(manifest)["incompatible_features"], ["clusters"])
        self.assertIn("nothing to repair", self.run_swale("repair", path, "--dry-run"))
        with copy_of(name) as copy:
            subprocess.run([MAKE_DIRECTORY, copy, "2", "1"], check=True, timeout=60)
            self.check(copy, 3, partitions=1)
            damage(copy, log, 100, "clusters")
            self.run_swale("verify", copy, expect=1)

    def test_canary_a_changed_byte_is_noticed(self):
        with copy_of("dir-v1") as path:
            damage(path, "part-000001.j0001.data", 100)
            self.run_swale("verify", path, expect=1)


unittest.main(argv=sys.argv[:1])
