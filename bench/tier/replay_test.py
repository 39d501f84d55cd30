#!/usr/bin/env python3
"""replay_test.py BENCH_TIER TREE: traces and presets that bench_tier takes, and what it refuses.

The trace is written here, by its specification (docs/formats/tier-trace.md): a second implementation of the
format.
"""
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import unittest

BENCH_TIER, TREE = (os.path.abspath(path) for path in sys.argv[1:3])
READ, WRITE, TRUNCATE, UNLINK, RENAME, SYNC = range(1, 7)
POLICIES = ["backing", "ssd", "ssd-overflow", "ssdup", "ssdup+", "swale"]
TABLE = []
for byte in range(256):
    for _ in range(8):
        byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
    TABLE.append(byte)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ TABLE[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


def varint(number):
    out = b""
    while number >= 128:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def sealed(magic, rest):
    return magic + struct.pack("<I", crc32c(rest)) + rest


def trace(requests):
    """(kind, nanoseconds since the one before, file, numbers...) in blocks of 2,000, and the end."""
    out = sealed(b"STwT", struct.pack("<HHIqQ", 1, 0, 0, 0, 0))
    time = 0
    for at in range(0, len(requests), 2000):
        payload, begin = b"", time
        some = requests[at:at + 2000]
        for kind, step, *numbers in some:
            payload += bytes([kind]) + varint(step) + b"".join(map(varint, numbers))
            time += step
        out += sealed(b"STwB", struct.pack("<IIQQ", len(payload), len(some), begin, 0) + payload)
    return out + sealed(b"STwB", struct.pack("<IIQQ", 0, 0, 0, 0))


def mixed():
    """Two files: one in order, one at random with reads; then one is cut and removed, its inode used again,
    all synced.
    """
    chance = random.Random(3)
    requests = []
    for i in range(3000):
        requests.append((WRITE, 100_000, 11, i * 131072, 131072))
        requests.append((WRITE, 100_000, 12, chance.randrange(4000) * 65536, 65536))
        if i % 20 == 0:
            requests.append((READ, 0, 12, chance.randrange(4000) * 65536, 300_000))
    requests += [(RENAME, 5, 12), (TRUNCATE, 5, 12, 1000), (SYNC, 5, 11), (UNLINK, 5, 12, 1),
                 (UNLINK, 5, 12, 0),
                 (WRITE, 5, 12, 0, 1_000_000), (SYNC, 0, 12)]
    return requests


class Replay(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory(prefix="swale-test-")
        self.path = os.path.join(self.scratch.name, "t.trace")
        self.write(trace(mixed()))

    def tearDown(self):
        self.scratch.cleanup()

    def write(self, content):
        with open(self.path, "wb") as file:
            file.write(content)

    def run_bench(self, *words, status=0):
        done = subprocess.run([BENCH_TIER, "--trace", self.path, *words], capture_output=True, text=True,
                              timeout=200)
        self.assertEqual(done.returncode, status, done.stderr)
        return [json.loads(line) for line in done.stdout.splitlines()], done.stderr

    def test_every_policy_gets_the_same_requests(self):
        lines, said = self.run_bench("C")
        self.assertEqual(said, "")
        self.assertEqual([line["policy"] for line in lines], POLICIES)
        written = sum(numbers[-1] for kind, _, *numbers in mixed() if kind == WRITE)
        for line in lines:
            self.assertEqual((line["preset"], line["write_bytes"]), ("C", written))
            self.assertGreaterEqual(line["drained_s"], line["acknowledged_s"])
            self.assertGreater(line["acknowledged_s"], 0.6)  # as long as the trace
        shares = {line["policy"]: line["ssd_share"] for line in lines}
        self.assertEqual((shares["backing"], shares["ssd"]), (0, 1))
        again, _ = self.run_bench("C")
        self.assertEqual(again, lines)

    def test_as_fast_as_answers_come_is_sooner(self):
        slow, _ = self.run_bench("A", "ssd", "speed=0.1")
        fast, _ = self.run_bench("A", "ssd", "speed=0")
        self.assertGreater(slow[0]["acknowledged_s"], 6)
        self.assertLess(fast[0]["acknowledged_s"], slow[0]["acknowledged_s"] / 2)

    def test_a_measured_preset_takes_the_place_of_a_letter(self):
        preset = os.path.join(TREE, "tests/golden/disk-preset-v1/preset")
        lines, _ = self.run_bench(preset, "backing")
        self.assertEqual((lines[0]["preset"], lines[0]["preset_source"]), ("node7", "golden"))
        self.assertNotEqual(lines[0]["drained_s"], self.run_bench("C", "backing")[0][0]["drained_s"])

    def test_canary_what_is_damaged_is_told_or_refused(self):
        whole = trace(mixed())
        self.write(whole[:-1])
        lines, said = self.run_bench("A", "backing")
        self.assertIn("ends early", said)
        self.write(whole[:8] + b"x" + whole[9:])
        self.assertEqual(self.run_bench("A", "backing", status=2)[0], [])
        with open(os.path.join(TREE, "tests/golden/disk-preset-v1/preset"), "rb") as file:
            damaged = file.read().replace(b"node7", b"node8")
        path = os.path.join(self.scratch.name, "damaged.preset")
        with open(path, "wb") as file:
            file.write(damaged)
        self.write(whole)
        self.assertIn("checksum", self.run_bench(path, "backing", status=2)[1])


unittest.main(argv=sys.argv[:1])
