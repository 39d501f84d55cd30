"""stage_command_test.py SWALE: `swale stage` in processes of its own: copies beside those of cp -a, kills,
signals, full destinations, two at once, ranks.
"""
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

SWALE = os.path.abspath(sys.argv[1])
DEADLINE_S = 300
MIB = 1 << 20
PIECE_MIB = 8  # of a file, that is staged once


def noise(seed, count):
    block = bytes((i * (seed * 2 + 7) >> 3) & 255 for i in range(4096))
    return (block * (count // len(block) + 1))[:count]


def looks(root):
    """Each path below root: kind, mode, time, links' targets, contents."""
    found = {}
    for folder, folders, names in os.walk(root):
        for name in folders + names:
            path = os.path.join(folder, name)
            stat = os.lstat(path)
            if os.path.islink(path):
                what = os.readlink(path)
            elif os.path.isdir(path):
                what = (stat.st_mode, stat.st_mtime_ns)
            else:
                with open(path, "rb") as file:
                    what = (stat.st_mode, stat.st_mtime_ns, file.read())
            found[os.path.relpath(path, root)] = what
    return found


class StageCommand(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.mkdtemp(prefix="swale-test-")
        self.source, self.copy = os.path.join(self.root, "from"), os.path.join(self.root, "to")
        os.mkdir(self.source)
        self.words = ["out", "--from", self.source, "--to", self.copy]

    def tearDown(self):
        shutil.rmtree(self.root)

    def put(self, name, content):
        path = os.path.join(self.source, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content)
        return path

    def begin(self, *words, **options):
        return subprocess.Popen([SWALE, "stage", *(words or self.words)], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, cwd=self.root, **options)

    def stage(self, *words, expect=0, **options):
        process = self.begin(*words, **options)
        out, complaints = process.communicate(timeout=DEADLINE_S)
        self.assertEqual(process.returncode, expect, complaints + out)
        return out + complaints

    def status(self, expect=0, name="to.status.json"):
        out = self.stage("status", os.path.join(self.root, name), "--json", expect=expect)
        return json.loads(out)

    def nothing_left(self):
        left = [name for _, _, names in os.walk(self.root) for name in names
                if name.endswith((".swale-part", ".journal", ".lock", ".draft"))]
        self.assertEqual(left, [])

    def make_large(self, mib=200):
        """Takes a while, and is more than one piece."""
        self.put("d/large", noise(1, mib * MIB))
        self.put("small", noise(2, 5000))

    def test_the_copy_is_that_of_cp(self):
        for i, name in enumerate(("plain", "with blank", "line\nfeed", "étage", "-n", "d/e/f/deep", "empty")):
            self.put(name, b"" if name == "empty" else noise(i, 1000 + 70_000 * i))
        os.symlink("plain", os.path.join(self.source, "link"))
        os.symlink("/nowhere", os.path.join(self.source, "d/dangling"))
        os.mkdir(os.path.join(self.source, "d/none"))
        os.chmod(os.path.join(self.source, "plain"), 0o4751)
        os.chmod(os.path.join(self.source, "d"), 0o750)
        theirs = os.path.join(self.root, "theirs")
        subprocess.run(["cp", "-a", self.source, theirs], check=True)
        self.stage()
        self.assertEqual(looks(self.copy), looks(theirs))
        self.assertEqual(self.status()["state"], "done")
        self.nothing_left()

    def test_ten_thousand_small_files(self):
        for i in range(10_000):
            self.put(f"d{i % 7}/f{i}", b"x" * (i % 50))
        self.stage()
        self.assertEqual(looks(self.copy), looks(self.source))
        found = self.status()
        self.assertEqual((found["files"], found["files_done"], found["failures"]), (10_000, 10_000, []))
        self.nothing_left()

    def wait_for_pieces(self, process, pieces):
        """Until the journal says that so many pieces are whole."""
        journal = os.path.join(self.root, "to.status.json.journal")
        end = time.monotonic() + DEADLINE_S
        while process.poll() is None and time.monotonic() < end:
            if os.path.exists(journal):
                with open(journal, "rb") as file:
                    if len(re.findall(b"d/large", file.read())) > pieces:
                        return
            time.sleep(0.001)

    def test_killed_and_run_again(self):
        self.make_large()
        killed = tries = 0
        while killed < 3 and tries < 20:  # one may be quicker than this process
            process = self.begin()
            self.wait_for_pieces(process, killed)
            tries += 1
            process.kill()
            process.communicate()
            killed += process.returncode == -signal.SIGKILL
            large = os.path.join(self.copy, "d/large")
            if os.path.exists(large):
                self.assertEqual(looks(self.copy)["d/large"], looks(self.source)["d/large"])
        self.assertGreater(killed, 0)
        print(f"killed {killed} times of {tries}")
        if os.path.exists(os.path.join(self.root, "to.status.json.journal")):
            self.assertEqual(self.status(expect=3)["state"], "killed")
        self.stage()
        self.assertEqual(looks(self.copy), looks(self.source))
        self.nothing_left()

    def test_a_signal_stops_it(self):
        self.make_large()
        process = self.begin("out", "--from", self.source, "--to", self.copy, "--threads", "1")
        self.wait_for_pieces(process, 1)
        process.send_signal(signal.SIGTERM)
        out, complaints = process.communicate(timeout=DEADLINE_S)
        if process.returncode == 0:  # it was quicker
            return
        self.assertEqual(process.returncode, 1, complaints)
        self.assertIn("goes on where it was", complaints)
        self.assertEqual(self.status(expect=1)["state"], "stopped")
        self.assertFalse(os.path.exists(os.path.join(self.copy, "d/large")))
        self.stage()
        self.assertGreaterEqual(self.status()["bytes_before"], PIECE_MIB * MIB)
        self.assertEqual(looks(self.copy), looks(self.source))
        self.nothing_left()

    def test_a_limit_of_the_process_is_told(self):
        self.make_large(100)
        self.put("other", b"fits")
        limit = 50 * MIB
        told = self.stage(expect=3,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
        self.assertIn("File too large", told)
        self.assertEqual(self.status(expect=3)["files_failed"], 1)
        self.assertEqual(sorted(looks(self.copy)), ["d", "other", "small"])
        self.stage()
        self.assertEqual(looks(self.copy), looks(self.source))

    def test_manifest_and_way_back(self):
        self.put("a b", noise(1, 100_000))
        self.put("c", b"123456789")
        out = self.stage(*self.words, "--write-manifest", "back")
        self.assertIn("read back", out)
        with open(os.path.join(self.root, "back")) as file:
            back = file.read()
        self.assertIn("crc32c:e3069283", back)
        before = looks(self.source)
        shutil.rmtree(self.source)
        self.stage("in", "back")
        self.assertEqual(looks(self.source), before)
        # The canary: a manifest with a false checksum.
        with open(os.path.join(self.root, "back"), "w") as file:
            file.write(back.replace("crc32c:e3069283", "crc32c:e3069282"))
        shutil.rmtree(self.source)
        told = self.stage("in", "back", expect=3)
        self.assertIn("/c: expected the content of checksum crc32c:e3069282", told)
        self.assertEqual(list(looks(self.source)), ["a b"])
        self.assertEqual(self.status(expect=3, name="back.status.json")["files_failed"], 1)

    def test_damage_is_seen_by_the_checksum_of_the_way_back(self):
        self.put("c", noise(3, 50_000))
        self.stage(*self.words, "--write-manifest", "back")
        stat = os.stat(os.path.join(self.copy, "c"))
        with open(os.path.join(self.copy, "c"), "r+b") as file:
            file.seek(40_000)
            byte = file.read(1)[0]
            file.seek(40_000)
            file.write(bytes([byte ^ 1]))
        os.utime(os.path.join(self.copy, "c"), ns=(stat.st_atime_ns, stat.st_mtime_ns))
        self.assertIn("expected the content of checksum", self.stage("in", "back", expect=3))

    def test_mistakes(self):
        self.put("a", b"a")
        for words, told in ((["out"], "needs either a MANIFEST"), (["out", "--from", "x"], "belong together"),
                            (["in", "none"], "none"), (["out", "--from", "none", "--to", "x"], "none"),
                            (["out", "--from", "from", "--to", "from/x"], "one is in the other"),
                            (["status"], "needs the FILE")):
            process = self.begin(*words)
            out, complaints = process.communicate(timeout=DEADLINE_S)
            self.assertIn(process.returncode, (2, 3), words)
            self.assertIn(told, complaints)
        with open(os.path.join(self.root, "m"), "w") as file:
            file.write("a b\nonly-one\n")
        self.assertIn("m: line 2: expected SOURCE DESTINATION", self.stage("in", "m", expect=2))
        self.assertEqual(self.status(expect=3, name="m.status.json")["state"], "failed")
        self.assertIn("is no status of a stage", self.stage("status", "m", expect=3))
        with open(os.path.join(self.root, "forged"), "w") as file:
            file.write('{"swale_stage": 1, "state": "done", "files": "many"}')
        self.assertIn("is no status of a stage", self.stage("status", "forged", expect=3))

    def test_ranks_of_a_launcher(self):
        for i in range(40):
            self.put(f"f{i}", noise(i, 3000))
        ranks = [self.begin(env=dict(os.environ, SWALE_JOB_RANK=str(rank), SWALE_JOB_SIZE="3",
                                     SWALE_JOB_ID="stage-test")) for rank in range(3)]
        for process in ranks:
            out, complaints = process.communicate(timeout=DEADLINE_S)
            self.assertEqual(process.returncode, 0, complaints)
        self.assertEqual({name: what[2] for name, what in looks(self.copy).items()},
                         {name: what[2] for name, what in looks(self.source).items()})
        found = [self.status(name=f"to.status.json.{rank}")["files_done"] for rank in range(3)]
        self.assertEqual(sum(found), 40)
        self.assertTrue(all(found))
        self.nothing_left()

    def test_a_fifo_is_named_and_the_rest_is_staged(self):
        self.put("a", b"a")
        os.mkfifo(os.path.join(self.source, "fifo"))
        os.link(os.path.join(self.source, "a"), os.path.join(self.source, "b"))
        told = self.stage(expect=3)
        self.assertIn("fifo: is a FIFO", told)
        self.assertIn("2 files have more than one name", told)
        self.assertEqual(sorted(looks(self.copy)), ["a", "b"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
