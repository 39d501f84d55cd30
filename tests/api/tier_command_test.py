"""tier_command_test.py SWALE: `swale info`, `verify`, `stats`, `dump` and `repair` on the directories of a
tiered write buffer, and `swale tier measure`.

Each command knows them, answers or says where the answer is, and its exit status means something.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../mount"))
import probe  # noqa: E402

SWALE = os.path.abspath(sys.argv[1])
NO_MOUNTS = probe.no_mounts()
PRESET = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../golden/disk-preset-v1/preset")
OK, PROBLEMS, USAGE, FAILURE = range(4)


def swale(*words, **variables):
    done = subprocess.run([SWALE, *words], capture_output=True, text=True, timeout=100,
                          env=dict(os.environ, **variables))
    return done.returncode, done.stdout, done.stderr


def unmount(mountpoint):
    """Again, while it is busy: any process may look at all mounts of the machine for a moment (df, fuser)."""
    end = time.monotonic() + 60
    while subprocess.run(["fusermount3", "-u", mountpoint], timeout=60).returncode != 0:
        if time.monotonic() > end:
            raise AssertionError(f"{mountpoint} stays mounted")
        time.sleep(0.02)


class TierCommand(unittest.TestCase):
    def setUp(self):
        # /tmp may be without extended attributes
        self.root = tempfile.mkdtemp(prefix="swale-test-", dir=os.getcwd())
        self.ssd, self.backing = (os.path.join(self.root, name) for name in ("ssd", "slow"))
        os.mkdir(self.backing)
        self.assertEqual(swale("tier", "make", self.ssd, self.backing, "--size", "16M")[0], OK)

    def tearDown(self):
        shutil.rmtree(self.root)

    def damage_a_header(self):
        with open(os.path.join(self.ssd, "log"), "r+b") as file:
            file.seek(2**20 + 20)  # of the second of 16 segments
            file.write(b"\xff")

    def test_info_knows_both_directories(self):
        status, out, error = swale("info", self.ssd, "--json")
        self.assertEqual((status, error), (OK, ""))
        found = json.loads(out)
        self.assertEqual((found["format"], found["part"], found["segments"]), ("swale-tier", "ssd", 16))
        status, out, _ = swale("info", self.ssd)
        self.assertEqual(status, OK)
        self.assertIn("the SSD directory of a tiered write buffer", out)
        status, out, _ = swale("info", self.backing, "--json")
        marker = json.loads(out)
        self.assertEqual((status, marker["part"], marker["lost"]), (OK, "backing", 0))
        self.assertEqual(marker["log"], "log " + found["log"])
        self.assertIn("swale tier drain", swale("info", self.backing)[1])

    def test_an_ssd_directory_is_known_by_its_seal_or_its_log(self):
        log, seals = os.path.join(self.ssd, "log"), [os.path.join(self.ssd, name)
                                                     for name in ("seal", "seal.copy")]
        kept = {path: open(path, "rb").read() for path in (log, *seals)}

        def said(*damaged):
            """The part that info knows while these files have other bytes, or why it fails.

            One of two seals is enough for verify."""
            for path in damaged:
                with open(path, "r+b") as file:
                    for at in (0, os.path.getsize(path) - 4096):  # both ends
                        file.seek(max(at, 0))
                        file.write(b"\xff" * 16)
            status, out, error = swale("info", self.ssd, "--json")
            verified = swale("verify", self.ssd)[0]
            for path, content in kept.items():
                with open(path, "wb") as file:
                    file.write(content)
            self.assertEqual(verified == OK, not damaged or damaged == (seals[0],), damaged)
            return json.loads(out)["part"] if status == OK else error

        self.assertEqual(said(), "ssd")
        self.assertEqual(said(seals[0]), "ssd", "the copy is whole")
        for damaged in ((log,), seals, (log, seals[1])):
            told = said(*damaged)
            self.assertTrue(told == "ssd" or self.ssd in told and "swale.json" not in told, (damaged, told))
        os.remove(log)
        status, _, error = swale("info", self.ssd)
        self.assertEqual(status, FAILURE)
        self.assertIn(log, error)

    def test_a_file_of_the_directory_leads_to_it(self):
        status, out, error = swale("dump", os.path.join(self.ssd, "log"))
        self.assertEqual((status, error), (OK, ""))

    def test_verify_is_1_if_the_log_is_damaged(self):
        status, out, _ = swale("verify", self.ssd)
        self.assertEqual(status, OK)
        self.assertIn("all good (16 segments", out)
        self.assertEqual(swale("verify", self.backing)[0], OK)
        self.damage_a_header()
        status, out, error = swale("verify", self.ssd)
        self.assertEqual(status, PROBLEMS)
        self.assertIn("a copy of the header", error)
        self.assertEqual(swale("dump", self.ssd)[0], PROBLEMS)
        self.assertEqual(json.loads(swale("info", self.ssd, "--json")[1])["problems"], 1)

    def made(self, *words, **variables):
        """How many segments of how many bytes a log has that is made so; or what was said instead."""
        ssd = tempfile.mkdtemp(dir=self.root)
        backing = tempfile.mkdtemp(dir=self.root)
        status, out, error = swale("tier", "make", ssd, backing, *words, **variables)
        if status != OK:
            return error
        found = json.loads(swale("info", ssd, "--json")[1])
        return found["segments"], found["segment_bytes"]

    def test_options_come_by_string_flag_and_environment(self):
        self.assertEqual(self.made("--size", "16M", "--options", "tier.segments=2"), (2, 8 << 20))
        self.assertEqual(self.made("--options", "tier.size=32M"), (16, 2 << 20))
        self.assertEqual(self.made(SWALE_TIER_SIZE="16M", SWALE_TIER_SEGMENTS="4"), (4, 4 << 20))
        self.assertEqual(self.made("--size", "16M", "--options", "tier.size=32M", SWALE_TIER_SIZE="64M"),
                         (16, 1 << 20), "a flag wins")
        for words, said in (("tier.segments=0", "tier.segments"), ("tier.segment=2", "tier.segments"),
                            ("imd.ways=1", "swale_dir_open"),
                            ("tier.segments=1", "at least 2 segments"), ("tier.preset=/nowhere", "/nowhere")):
            self.assertIn(said, self.made("--size", "16M", "--options", words))
        self.assertIn("SWALE_TIER_SIZ", self.made(SWALE_TIER_SIZ="16M"))

    @unittest.skipIf(NO_MOUNTS, f"no FUSE mounts here: {NO_MOUNTS}")
    def test_a_mount_takes_the_papers_two_regions(self):
        mounted, ssd = os.path.join(self.root, "mnt"), os.path.join(self.root, "two")
        backing = tempfile.mkdtemp(dir=self.root)
        os.mkdir(mounted)
        status, _, error = swale("tier", "mount", "--ssd", ssd, "--backing", backing, "--size", "16M",
                                 "--policy", "ssdup+", "--options", "tier.segments=2,tier.dirty_age_s=1",
                                 mounted)
        self.assertEqual((status, error), (OK, ""))
        stats = json.loads(swale("tier", "stats", mounted, "--json")[1])["stats"]
        unmount(mounted)
        self.assertEqual(stats["log.capacity"]["sum"], 16 << 20)
        until = time.monotonic() + 60  # the process ends after the unmount
        while (told := swale("info", ssd, "--json"))[0] != OK or "segments" not in json.loads(told[1]):
            self.assertLess(time.monotonic(), until, told)
            time.sleep(0.05)
        self.assertEqual(json.loads(told[1])["segments"], 2)

    def test_stats_and_repair_point_to_what_answers(self):
        status, _, error = swale("stats", self.ssd)
        self.assertEqual(status, FAILURE)
        self.assertIn("swale tier stats MOUNTPOINT", error)
        status, _, error = swale("repair", self.ssd)
        self.assertEqual(status, FAILURE)
        self.assertIn("swale tier recover", error)

    def test_commands_of_other_engines_refuse_it_by_name(self):
        for command in ("ls", "keys"):
            status, _, error = swale(command, self.ssd)
            self.assertEqual(status, FAILURE, command)
            self.assertIn("is a directory of a tiered write buffer", error)

    def test_a_mistyped_backing_directory_takes_no_log(self):
        other = os.path.join(self.root, "other")
        os.mkdir(other)
        before = json.loads(swale("info", self.ssd, "--json")[1])
        for action, *rest in (("drain",), ("recover",), ("recover", "--accept-loss")):
            status, out, error = swale("tier", action, self.ssd, other, *rest)
            self.assertEqual((status, out), (USAGE, ""), action)
            self.assertIn("was not used with a log yet", error)
        self.assertEqual(os.listdir(other), [])
        self.assertEqual(json.loads(swale("info", self.ssd, "--json")[1]), before)
        self.assertEqual(swale("tier", "drain", self.ssd, self.backing)[0], OK)

    def test_unlock_finds_no_holder_where_there_is_none(self):
        for path in (self.ssd, self.backing, os.path.join(self.backing, ".swale-tier")):
            status, out, error = swale("unlock", path, "--json")
            self.assertEqual((status, error, json.loads(out)["state"]), (OK, "", "none"))

    @unittest.skipIf(NO_MOUNTS, f"no FUSE mounts here: {NO_MOUNTS}")
    def test_unlock_shows_who_has_it_open_and_removes_the_lock_of_the_dead(self):
        mounted = os.path.join(self.root, "mnt")
        os.mkdir(mounted)
        process = subprocess.Popen([SWALE, "tier", "mount", "--foreground", "--ssd", self.ssd, "--backing",
                                    self.backing, mounted],
                                   stdout=subprocess.PIPE, text=True)
        try:
            self.assertIn("in front", process.stdout.readline())
            # What a second one is told to ask is answered, for both directories.
            error = swale("tier", "drain", self.ssd, self.backing)[2]
            self.assertIn(f"swale unlock {self.ssd}", error)
            for path in (self.ssd, self.backing, os.path.join(self.backing, ".swale-tier")):
                status, out, _ = swale("unlock", path, "--json")
                found = json.loads(out)
                self.assertEqual((status, found["state"], found["pid"]), (PROBLEMS, "alive", process.pid),
                                 path)
        finally:
            process.kill()
            process.wait(timeout=100)
            process.stdout.close()
            unmount(mounted)
        for path in (self.ssd, self.backing):
            status, out, _ = swale("unlock", path, "--json")
            found = json.loads(out)
            self.assertEqual((status, found["state"], found["removed"]), (OK, "dead", True), path)
            self.assertEqual(json.loads(swale("unlock", path, "--json")[1])["state"], "none")

    def test_canary_a_directory_with_a_log_of_something_else_is_none(self):
        other = os.path.join(self.root, "other")
        os.mkdir(other)
        with open(os.path.join(other, "log"), "wb") as file:
            file.write(b"x" * 100_000)
        status, _, error = swale("info", other)
        self.assertEqual(status, FAILURE)
        self.assertNotIn("tiered", error)

    @unittest.skipIf(NO_MOUNTS, f"no FUSE mounts here: {NO_MOUNTS}")
    def test_a_mount_answers_for_itself_and_guards_its_log(self):
        mounted, trace = os.path.join(self.root, "mnt"), os.path.join(self.root, "t.trace")
        os.mkdir(mounted)
        process = subprocess.Popen([SWALE, "tier", "mount", "--foreground", "--ssd", self.ssd, "--backing",
                                    self.backing, "--policy", "ssd", "--trace", trace, "--preset", PRESET,
                                    mounted], stdout=subprocess.PIPE, text=True)
        self.assertIn(f"in front, costs from {PRESET}", process.stdout.readline())
        try:
            name = os.path.join(mounted, "f")
            file = os.open(name, os.O_WRONLY | os.O_CREAT)
            os.pwrite(file, b"x" * 300_000, 0)
            os.pwrite(file, b"y" * 100, 300_000)
            os.fsync(file)
            os.close(file)
            os.truncate(name, 1000)
            os.rename(name, name + "2")
            os.unlink(name + "2")
            for command in ("info", "stats"):
                status, out, error = swale(command, mounted, "--json")
                self.assertEqual((status, error), (OK, ""), command)
                self.assertEqual(json.loads(out)["stats"]["write.bytes"]["sum"], 300_100)
            status, out, _ = swale("info", self.ssd)
            self.assertEqual(status, OK)
            self.assertIn("in use by process", out)
            for command in (("verify",), ("dump",), ("tier", "verify"), ("tier", "dump")):
                status, out, error = swale(*command, self.ssd)
                self.assertEqual((status, out), (FAILURE, ""), command)
                self.assertIn("in use by process", error)
            self.assertEqual(swale("tier", "trace", trace)[0], PROBLEMS)  # it has no end yet
        finally:
            unmount(mounted)
            process.stdout.close()
            process.wait(timeout=100)
        status, out, error = swale("tier", "trace", trace, "--json")
        self.assertEqual((status, error), (OK, ""))
        sums = json.loads(out)
        self.assertEqual((sums["complete"], sums["dropped"], sums["written_bytes"]), (True, 0, 300_100))
        self.assertEqual(sums["files"], 1)
        kinds = {kind: sums["requests"][kind] for kind in ("truncate", "unlink", "rename", "sync")}
        self.assertEqual(kinds, {"truncate": 1, "unlink": 1, "rename": 1, "sync": 1})
        lines = swale("tier", "trace", trace, "--records")[1].splitlines()
        self.assertEqual(len(lines), sums["records"])
        self.assertEqual(lines[-1].split()[1:2] + lines[-1].split()[3:4], ["unlink", "0"])
        status, _, error = swale("tier", "trace", os.path.join(self.ssd, "log"))
        self.assertEqual(status, FAILURE)
        self.assertIn("is no trace", error)
        status, _, error = swale("tier", "mount", "--ssd", self.ssd, "--backing", self.backing, "--preset",
                                 trace, mounted)
        self.assertEqual(status, FAILURE)
        self.assertIn("t.trace", error)

    @unittest.skipIf(NO_MOUNTS, f"no FUSE mounts here: {NO_MOUNTS}")
    def test_bytes_of_a_file_that_is_not_found_are_kept_and_named(self):
        mounted = os.path.join(self.root, "mnt")
        os.mkdir(mounted)
        process = subprocess.Popen([SWALE, "tier", "mount", "--foreground", "--ssd", self.ssd, "--backing",
                                    self.backing, "--policy", "ssd", mounted], stdout=subprocess.PIPE,
                                   text=True)
        process.stdout.readline()
        os.mkdir(os.path.join(mounted, "folder"))
        for name in ("folder/.swale-tier", "vanished", "removed"):
            with open(os.path.join(mounted, name), "wb") as file:
                file.write(b"n" * 5000)
                file.flush()
                os.fsync(file.fileno())
        os.unlink(os.path.join(mounted, "removed"))
        process.kill()
        process.wait(timeout=60)
        process.stdout.close()
        subprocess.run(["fusermount3", "-u", "-z", mounted], check=True, timeout=60)
        os.unlink(os.path.join(self.backing, "vanished"))  # nobody tells the tier
        status, out, error = swale("dump", self.ssd)
        self.assertEqual((status, error), (OK, ""))
        self.assertIn("folder/.swale-tier", out)
        for command in (("dump",), ("tier", "dump")):
            lines = [json.loads(line) for line in swale(*command, self.ssd, "--json")[1].splitlines()]
            records = [line for line in lines if line.get("what") in ("write", "queued")]
            self.assertGreater(len(records), 0, lines)
            for line in records:
                self.assertEqual((line["length"] > 0, len(line["id"]),
                                  line["in"].partition(".")[0] in ("log", "queue")), (True, 16, True))
            self.assertEqual({line["file"] for line in records if "file" in line}, {self.ssd}
                             if command == ("dump",) else set())
        status, out, _ = swale("tier", "drain", self.ssd, self.backing)
        self.assertEqual(status, PROBLEMS, out)
        self.assertIn("vanished: 5000 acknowledged bytes", out)
        self.assertIn("swale tier recover --accept-loss", out)
        self.assertEqual(out.count("acknowledged bytes of this file"), 1, out)
        with open(os.path.join(self.backing, "folder/.swale-tier"), "rb") as file:
            self.assertEqual(file.read(), b"n" * 5000)
        status, out, _ = swale("info", self.backing)
        self.assertIn("BYTES OF 1 FILES ARE KEPT ASIDE", out)
        status, out, error = swale("verify", self.backing)
        self.assertEqual(status, PROBLEMS)
        self.assertIn("vanished", out + error)
        status, out, error = swale("tier", "recover", self.ssd, self.backing, "--accept-loss", "--json")
        self.assertEqual(status, OK, error)
        self.assertEqual([lost["path"] for lost in json.loads(out)["lost"]], ["vanished"])
        self.assertEqual(swale("verify", self.backing)[0], OK)
        self.assertEqual(swale("tier", "drain", self.ssd, self.backing)[0], OK)

    @unittest.skipIf(NO_MOUNTS, f"no FUSE mounts here: {NO_MOUNTS}")
    def test_a_mountpoint_may_have_a_name_that_is_no_text(self):
        mounted = os.path.join(os.fsencode(self.root), b"mnt-\xff")
        os.mkdir(mounted)
        process = subprocess.Popen([SWALE, "tier", "mount", "--foreground", "--json", "--ssd", self.ssd,
                                    "--backing", self.backing, mounted], stdout=subprocess.PIPE)
        line = process.stdout.readline().decode()
        if line:
            unmount(mounted)
        process.stdout.close()
        self.assertEqual(process.wait(timeout=100), OK)
        self.assertEqual(json.loads(line)["new_log"], False)

    def test_measure_leaves_nothing_but_its_preset(self):
        preset = os.path.join(self.root, "disk.preset")
        before = sorted(os.listdir(self.backing))
        status, out, error = swale("tier", "measure", self.backing, "--ssd", self.ssd, "--size", "8M",
                                   "--seconds", "1", "--json", "--preset", preset, "--name", "here")
        self.assertEqual((status, error), (OK, ""))
        found = json.loads(out)
        self.assertEqual((found["name"], found["disk"]["file_bytes"] <= 8 * 2**20), ("here", True))
        self.assertGreater(found["disk"]["write_bytes_per_s"], 0)
        self.assertEqual(len(found["flash"]["depths"]), 7)
        self.assertEqual(sorted(os.listdir(self.backing)), before)
        with open(preset, encoding="ascii") as file:
            self.assertEqual(json.load(file)["format"], "swale-disk-preset")
        status, _, error = swale("tier", "measure", self.backing, "--size", "8M", "--seconds", "1",
                                 "--preset", preset)
        self.assertEqual(status, FAILURE)
        self.assertIn("is there already; nothing was measured", error)

    def test_measure_refuses_what_does_not_fit_before_it_writes(self):
        status, _, error = swale("tier", "measure", self.backing, "--size", "1023G", "--seconds", "1")
        self.assertEqual(status, FAILURE)
        self.assertIn("give a smaller --size", error)
        self.assertEqual(os.listdir(self.backing), [".swale-tier"])


unittest.main(argv=sys.argv[:1], verbosity=2)
