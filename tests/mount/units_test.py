#!/usr/bin/env python3
"""units_test.py SWALE UNITS: what the units of systemd start, started as they say, without systemd."""
import configparser
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from mounted import NO_MOUNTS, SWALE

UNITS = sys.argv[2]
PATIENCE_S = 300


class Units(unittest.TestCase):
    def setUp(self):
        if NO_MOUNTS:
            self.skipTest(f"no FUSE mounts here: {NO_MOUNTS}; in a container, add --device /dev/fuse "
                          f"--cap-add SYS_ADMIN")
        self.scratch = tempfile.mkdtemp(prefix="swale-units-", dir=os.getcwd())  # /tmp may lack attributes

    def tearDown(self):
        if hasattr(self, "scratch"):
            shutil.rmtree(self.scratch)

    def words(self, unit, values):
        """Of ExecStart; the unit's own comments say which variables its file has."""
        path = os.path.join(UNITS, unit)
        with open(path, encoding="utf-8") as text:
            named = set(re.findall(r"^#   ([A-Z]+)=", text.read(), re.MULTILINE))
        self.assertEqual(named, set(values))
        parsed = configparser.RawConfigParser(strict=False)
        parsed.optionxform = str
        parsed.read(path)
        service = parsed["Service"]
        self.assertEqual((service["User"], parsed["Install"]["WantedBy"]), ("%i", "multi-user.target"))
        started = shlex.split(service["ExecStart"])
        self.assertEqual(started[0], "@BIN@/swale")
        page = re.search(r"man:(swale[a-z-]*)\(1\)", parsed["Unit"]["Documentation"]).group(1)
        asked = [SWALE, *page.split("-")[1:], "--help"] if page != "swale-tier-mount" else \
            [SWALE, "tier", "mount", "--help"]
        self.assertEqual(subprocess.run(asked, capture_output=True, check=False).returncode, 0, page)
        return [SWALE, *(re.sub(r"\$\{([A-Z]+)\}", lambda name: values[name.group(1)], word)
                         for word in started[1:])]

    def stays_until_it_is_stopped(self, unit, mountpoint, backing, values):
        for folder in {mountpoint, backing}:
            os.mkdir(folder)
        process = subprocess.Popen(self.words(unit, values), stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE, text=True)
        end = time.monotonic() + PATIENCE_S
        while not os.path.ismount(mountpoint):
            self.assertIsNone(process.poll(), process.stderr.read() if process.poll() is not None else "")
            self.assertLess(time.monotonic(), end, "it is not mounted")
            time.sleep(0.02)
        with open(f"{mountpoint}/file", "w", encoding="utf-8") as file:
            file.write("there")
        process.send_signal(signal.SIGTERM)  # as systemctl stop does
        said = process.communicate(timeout=PATIENCE_S)[1]
        self.assertEqual(process.returncode, 0, said)
        self.assertFalse(os.path.ismount(mountpoint))
        with open(f"{backing}/file", encoding="utf-8") as file:
            self.assertEqual(file.read(), "there")

    def test_the_tier_of_a_user(self):
        backing, mountpoint = f"{self.scratch}/backing", f"{self.scratch}/mnt"
        self.stays_until_it_is_stopped("swale-tier@.service", mountpoint, backing, {
            "SSD": f"{self.scratch}/ssd", "BACKING": backing, "MOUNTPOINT": mountpoint, "SIZE": "32M"})

    def test_the_tree_of_a_user(self):
        backing = f"{self.scratch}/backing"
        self.stays_until_it_is_stopped("swale-tree@.service", backing, backing, {
            "DIR": backing, "BUFFER": f"{self.scratch}/buffer", "MEMORY": "64M"})


class Verified(unittest.TestCase):
    """As systemd reads them."""

    def complaints(self, change=lambda text: text):
        if not shutil.which("systemd-analyze"):
            self.skipTest("systemd-analyze is not installed")
        said = {}
        with tempfile.TemporaryDirectory(prefix="swale-units-", dir=os.getcwd()) as scratch:
            for unit in os.listdir(UNITS):
                with open(os.path.join(UNITS, unit), encoding="utf-8") as text:
                    read = text.read().replace("@BIN@/swale", SWALE).replace("/usr/bin/swale", SWALE)
                with open(os.path.join(scratch, unit), "w", encoding="utf-8") as copy:
                    copy.write(change(read))
                done = subprocess.run(["systemd-analyze", "verify", "--man=no", f"{scratch}/{unit}"],
                                      capture_output=True, text=True, timeout=PATIENCE_S, check=False)
                said[unit] = done.stderr
        return said

    def test_systemd_has_nothing_to_say_of_the_units(self):
        self.assertEqual(self.complaints(), dict.fromkeys(os.listdir(UNITS), ""))

    def test_canary_a_key_that_systemd_does_not_know(self):
        for unit, said in self.complaints(lambda text: text.replace("KillMode", "KilMode")).items():
            self.assertIn("KilMode", said, unit)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
