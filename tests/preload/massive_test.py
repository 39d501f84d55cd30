#!/usr/bin/env python3
"""massive_test.py SWALE LIBRARY PARTICLES: a program that writes a file for each particle with fopen, fwrite
and fclose writes a massive directory, alone and as several ranks.

What was written is read back by swale's commands. The same program without the library leaves plain files and
no epoch: the checks below must notice (test_without_the_library).
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SWALE, LIBRARY, PARTICLES = map(os.path.abspath, sys.argv[1:4])
PATIENCE_S = 100
RANKS = 3


def swale(*words):
    done = subprocess.run([SWALE, *words], capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    if done.returncode != 0:
        raise AssertionError(f"swale {' '.join(words)}: {done.returncode}: {done.stderr}")
    return done.stdout


class Programs(unittest.TestCase):
    """A massive directory, and programs that write it."""
    maxDiff = None

    def setUp(self):
        self.scratch = tempfile.mkdtemp(prefix="swale-massive-", dir=os.getcwd())
        self.addCleanup(shutil.rmtree, self.scratch)
        self.directory = f"{self.scratch}/particles"
        swale("mkdir", "--massive", self.directory, "--options", "imd.key=text")

    def start(self, *words, rank=0, ranks=1, preload=LIBRARY, directory=None, **more):
        environment = {**os.environ, "LD_PRELOAD": preload, "SWALE_JOB_RANK": str(rank),
                       "SWALE_JOB_SIZE": str(ranks)}
        if ranks > 1:
            environment.update(SWALE_JOB_RENDEZVOUS=f"{self.scratch}/meet",
                               SWALE_JOB_ID=f"massive-{os.getpid()}")
        environment.update(more)
        return subprocess.Popen([PARTICLES, directory or self.directory, *map(str, words)], env=environment,
                                cwd=self.scratch, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def finish(self, *processes):
        """(exit status, output, errors) of each"""
        done = []
        for each in processes:
            out, errors = each.communicate(timeout=PATIENCE_S)
            done.append((each.returncode, out, errors))
        return done

    def write(self, *words, **more):
        status, out, errors = self.finish(self.start(*words, **more))[0]
        self.assertEqual(status, 0, errors)
        return out, errors

    def epochs(self):
        return json.loads(swale("info", "--json", self.directory))["epochs"]

    def values(self):
        """{(epoch, name): values}"""
        found = {}
        for line in swale("scan", "--json", "--hex", self.directory).splitlines():
            record = json.loads(line)
            key = record["key"]
            key = bytes.fromhex(key[2:]).decode() if key.startswith("0x") else key
            found.setdefault((record["epoch"], key), []).append(bytes.fromhex(record["value"][2:]))
        return found

    def check_epochs(self, ranks, epochs, particles):
        self.assertEqual(
            self.values(),
            {(epoch, f"r{rank}.{i}"): [b"%-40d" % (epoch * 1000 + i)]
             for epoch in range(epochs) for rank in range(ranks) for i in range(particles)})
        self.assertEqual([each["step"] for each in self.epochs()], list(range(epochs)))
        self.assertEqual(sorted(os.listdir(self.directory)), ["clusters", "jobs", "p000", "swale.json"])
        swale("verify", self.directory)


class Massive(Programs):
    def test_one_process(self):
        self.write(3, 50)
        self.check_epochs(1, 3, 50)
        trajectory = swale("get", self.directory, "r0.7")
        self.assertEqual(len(re.findall(r"\b[012]\b", trajectory)) >= 3, True, trajectory)

    def test_a_second_job_goes_on(self):
        self.write(2, 5)
        self.write(1, 5)
        self.assertEqual([each["step"] for each in self.epochs()], [0, 1, 2])

    def test_several_ranks(self):
        os.mkdir(f"{self.scratch}/meet", 0o700)
        for status, _, errors in self.finish(*(self.start(2, 40, rank=i, ranks=RANKS) for i in range(RANKS))):
            self.assertEqual(status, 0, errors)
        self.check_epochs(RANKS, 2, 40)

    def test_a_rank_that_dies_is_named(self):
        """It dies between two epochs: the others' closedir fails, and the first epoch stays."""
        os.mkdir(f"{self.scratch}/meet", 0o700)
        done = self.finish(*(self.start(1, 9, "dies", rank=i, ranks=RANKS, SWALE_NET_SILENCE_DEADLINE_S="5")
                             for i in range(RANKS)))
        self.assertEqual(done[1][0], -9)
        for rank in (0, 2):
            self.assertEqual(done[rank][0], 1, done[rank][2])
            self.assertRegex(done[rank][2], r"rank 1\b")
            self.assertIn("closedir", done[rank][2])
        self.check_epochs(RANKS, 1, 9)

    def test_a_rank_that_comes_too_late_is_named(self):
        """The epoch fails on all, and the one before stays. A machine that is too slow for the others to end
        theirs within the deadline gets a longer one.
        """
        self.write(1, 9)
        for deadline in ("3", "20", "90"):
            meet = f"{self.scratch}/meet-{deadline}"
            os.mkdir(meet, 0o700)
            done = self.finish(*(self.start(0, 0, "late", rank=i, ranks=RANKS, SWALE_JOB_RENDEZVOUS=meet,
                                            SWALE_IMD_COLLECTIVE_DEADLINE_S=deadline) for i in range(RANKS)))
            named = rf"epoch did not end: .*waited {deadline} s .* for rank 1 to end epoch 1 "
            if all(re.search(named, errors) for _, _, errors in done):
                break
        self.assertEqual([status for status, _, _ in done], [0] * RANKS)
        for _, _, errors in done:
            self.assertRegex(errors, named)
        said = [out.strip() for _, out, _ in done]
        self.assertIn("closedir ETIMEDOUT", said)  # whose deadline it was; it tells the others
        self.assertLessEqual(set(said), {"closedir ETIMEDOUT", "closedir EIO"})
        self.check_epochs(1, 1, 9)

    def test_spellings_of_the_folder(self):
        self.write(0, 0, "spellings")
        self.assertEqual(self.values(), {(0, name): [value] for name, value in (
            ("absolute", b"1"), ("relative", b"2"), ("dot", b"3"), ("up", b"4"), ("by-link", b"5"))})
        for path, value in (("outside", b"6"), ("link/elsewhere", b"7")):
            with open(f"{self.scratch}/{path}", "rb") as file:
                self.assertEqual(file.read(), value)

    def test_sizes_and_pieces(self):
        self.write(0, 0, "sizes")
        found = self.values()
        self.assertEqual(found.pop((0, "large")), [b"x" * 300000])
        self.assertEqual(found.pop((0, "page")), [b"x" * 4097])
        self.assertEqual(sorted(found.pop((0, "pieces"))), [b"one two ", b"three"])
        lines = b"".join(b"line %d\n" % i for i in range(100))
        self.assertEqual(found, {(0, "buffer0"): [lines], (0, "buffer1"): [lines]})

    def test_other_processes(self):
        self.write(1, 1, "processes")
        self.assertEqual(self.values(), {(0, "before"): [b"1"], (0, "by-parent"): [b"once"],
                                         (1, "r0.0"): [b"%-40d" % 0]})

    def test_a_pattern_makes_empty_directories_massive(self):
        os.symlink(".", f"{self.scratch}/link")
        by_link = f"{self.scratch}/link/particles"
        for pattern, given in ((f"{self.scratch}/part*", self.directory), ("part*", self.directory),
                               ("./particles/", "particles"), ("link/part*", self.directory),
                               (f"{self.scratch}/link/part*", self.directory), ("l*k/part*", by_link[len(
                                   self.scratch) + 1:]), (f"{self.scratch}/l*k/p*", by_link)):
            with self.subTest(pattern=pattern, given=given):
                self.make_empty()
                self.write(1, 3, SWALE_FS_MASSIVE=pattern, directory=given)
                self.assertEqual(len(self.epochs()), 1)
                self.assertEqual(len(self.values()), 3)

    def test_another_pattern_makes_none_massive(self):
        for pattern in ("par", "part*/x", "*/part*", f"{self.scratch}/Part*", f"{self.scratch}/none/*", "/*"):
            with self.subTest(pattern=pattern):
                self.make_empty()
                self.write(1, 3, SWALE_FS_MASSIVE=pattern)
                self.assertEqual(sorted(os.listdir(self.directory)), ["r0.0", "r0.1", "r0.2"])

    def make_empty(self):
        shutil.rmtree(self.directory)
        os.mkdir(self.directory)

    def test_an_attribute_makes_empty_directories_massive(self):
        self.make_empty()
        self.need_attributes()
        os.setxattr(self.directory, "user.swale.massive", b"1")
        self.write(1, 3)
        self.assertEqual(len(self.values()), 3)

    def need_attributes(self):
        try:
            os.setxattr(self.directory, "user.swale.test", b"1")
        except OSError as error:
            self.skipTest(f"{self.directory}: no attributes here: {error}")

    def test_attributes_say_step_and_time(self):
        self.need_attributes()
        out, errors = self.write(0, 0, "labels", LC_ALL="de_DE.UTF-8")
        self.assertEqual(dict(line.split() for line in out.splitlines()),
                         {"both": "OK", "again": "EINVAL", "no-number": "EINVAL", "later": "OK", "time": "OK",
                          "none": "OK"})
        self.assertEqual([(each["step"], each["time"]) for each in self.epochs()],
                         [(100, 2.5), (105, 0.125), (106, 0.125), (107, None)])
        self.assertEqual(self.values(), {(0, "both"): [b"1"], (1, "again"): [b"2"], (2, "time"): [b"3"],
                                         (3, "none"): [b"4"]})
        self.assertIn("user.swale.step is no number", errors)

    def test_ranks_with_other_steps_are_named(self):
        self.need_attributes()
        os.mkdir(f"{self.scratch}/meet", 0o700)
        for status, out, errors in self.finish(*(self.start(0, 0, "labels-differ", rank=i, ranks=2)
                                                 for i in range(2))):
            self.assertEqual((status, out), (0, "closedir EINVAL\n"), errors)
            self.assertRegex(errors, r"rank [01]\b.*step.*rank [01]\b")
        self.assertEqual(self.epochs(), [])

    def test_listings_do_not_write(self):
        self.write(1, 3)
        for command in (["ls", "-la"], ["find"], ["du", "-s"], ["cat", f"{self.directory}/swale.json"]):
            done = subprocess.run([*command, self.directory][:2 if command[0] == "cat" else None],
                                  env={**os.environ, "LD_PRELOAD": LIBRARY, "SWALE_JOB_RANK": "0",
                                       "SWALE_JOB_SIZE": "2"},  # a peer that never comes
                                  capture_output=True, text=True, check=False, timeout=PATIENCE_S)
            self.assertEqual((done.returncode, done.stderr), (0, ""), command)
        self.check_epochs(1, 1, 3)

    def test_without_the_library(self):
        """The canary: plain files, and the check fails."""
        self.write(1, 3, preload="")
        with self.assertRaises(AssertionError):
            self.check_epochs(1, 1, 3)
        self.assertEqual(self.epochs(), [])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
