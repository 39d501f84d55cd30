"""optimize_command_test.py SWALE MAKE_DIRECTORY: `swale optimize`, and what other commands say then."""
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

from command_case import DATA, INDEX, MAKE_DIRECTORY, SWALE, CommandCase


class OptimizeCommand(CommandCase):
    def test_optimize(self):
        path = self.copy()
        keys = self.lines("keys", "--epoch", "1", "--u64")
        ask = [["get", key, "--json"] for key in keys[:5] + keys[-1:]]
        before = [self.run_swale(*words, path=path)[0] for words in ask]
        text = self.run_swale("optimize", path=path)[0]
        self.assertRegex(text, r"3 epochs, 67 records, \d+ bytes of keys and values; they stay")
        self.assertRegex(text, r"cluster 0001 has 3 epochs: \d+ series")
        self.assertEqual([self.run_swale(*words, path=path)[0] for words in ask], before)
        (info,) = self.objects("info", path=path)
        self.assertEqual([(one["number"], one["epochs"], one["epochs_dropped"]) for one in info["clusters"]],
                         [(1, 3, 0)])
        self.assertIn("cluster 0001: 3 epochs by key", self.run_swale("info", path=path)[0])
        (report,) = self.objects("verify", path=path)
        self.assertEqual((report["ok"], report["clusters"], report["records"]), (True, 1, 67))
        (again,) = self.objects("optimize", path=path)
        self.assertEqual((again["cluster"], again["epochs"]), (None, 0))
        self.assertIn("nothing to do", self.run_swale("optimize", path=path)[0])
        (full,) = self.objects("optimize", "--full", path=path)
        self.assertEqual((full["cluster"], full["epochs"], full["records"]), (2, 3, 67))
        # The epochs themselves are gone; a cluster answers. Its own directory is one, too.
        os.remove(os.path.join(path, DATA))
        self.assertEqual([self.run_swale(*words, path=path)[0] for words in ask], before)
        cluster = os.path.join(path, "clusters", "0002")
        self.assertIn("1 epochs", self.run_swale("info", path=cluster)[0])
        self.assertTrue(self.lines("dump", path=cluster))

    def start_ranks(self, path, *words):
        """`swale optimize` by two ranks: exit status, output and messages of each."""
        libraries = os.path.join(os.path.dirname(SWALE), "..", "src", "capi")
        with tempfile.TemporaryDirectory(prefix="swale-command-") as meet:
            ranks = [subprocess.Popen(
                [SWALE, "optimize", path, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                env=dict(os.environ, LD_LIBRARY_PATH=libraries, SWALE_JOB_SIZE="2", SWALE_JOB_RANK=str(rank),
                         SWALE_JOB_ID="command", SWALE_JOB_RENDEZVOUS=meet)) for rank in range(2)]
            outputs = [rank.communicate(timeout=110) for rank in ranks]
        return [(rank.returncode, *output) for rank, output in zip(ranks, outputs)]

    def test_optimize_by_ranks(self):
        path = self.copy()
        keys = self.lines("keys", "--epoch", "1", "--u64")
        ask = [["get", key, "--json"] for key in keys]
        before = [self.run_swale(*words, path=path)[0] for words in ask]
        (first, second) = self.start_ranks(path, "--json")
        self.assertEqual((first[0], second), (0, (0, "", "")), first[2])
        made = json.loads(first[1])
        self.assertEqual((made["cluster"], made["epochs"], made["records"]), (1, 3, 67))
        (report,) = self.objects("verify", path=path)
        self.assertEqual((report["ok"], report["clusters"], report["records"]), (True, 1, 67))
        os.remove(os.path.join(path, DATA))
        self.assertEqual([self.run_swale(*words, path=path)[0] for words in ask], before)
        for rank in self.start_ranks(path, "--follow"):
            self.assertEqual(rank[0], 2, rank)
            self.assertIn("work for one process; started were 2 ranks", rank[2])

    def test_optimize_frees_what_clusters_have(self):
        path = self.copy()
        keys = self.lines("keys", "--epoch", "1", "--u64")
        ask = [["get", key, "--json"] for key in keys[:5] + keys[-1:]]
        ask += [["keys", "--epoch", "0"]] + [["scan", "--epoch", epoch, "--json"] for epoch in "02"]
        before = [sorted(self.lines(*words, path=path)) for words in ask]
        self.assertIn("nothing to free", self.run_swale("optimize", "--free", path=path)[0])
        self.run_swale("optimize", path=path)
        (planned,) = self.objects("optimize", "--free", "--dry-run", path=path)
        self.assertEqual((planned["dry_run"], planned["epochs"], planned["epochs_copied"]), (True, 2, 1))
        self.assertTrue(os.path.exists(os.path.join(path, DATA)))
        done = subprocess.run([SWALE, "optimize", path, "--free"], stdin=subprocess.DEVNULL, timeout=60,
                              capture_output=True, text=True)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("a cluster of 3 epochs costs 3 times its bytes", done.stdout)
        self.assertIn("say --yes; nothing was changed", done.stderr)
        self.assertIn("2 files of", self.run_swale("optimize", "--free", "--yes", path=path)[0])
        self.assertFalse(os.path.exists(os.path.join(path, DATA)))
        self.assertEqual([sorted(self.lines(*words, path=path)) for words in ask], before)
        (info,) = self.objects("info", path=path)
        self.assertEqual([epoch.get("freed", False) for epoch in info["epochs"]], [True, True, False])
        self.assertIn("only in a cluster", self.run_swale("info", path=path)[0])
        (report,) = self.objects("verify", path=path)
        self.assertEqual((report["ok"], report["clusters"], report["records"]), (True, 1, 67))
        self.assertIn("nothing to repair", self.run_swale("repair", "--dry-run", path=path)[0])
        moved = [thing for thing in self.objects("dump", path=path) if "origin" in thing]
        self.assertEqual([(one["job"], one["origin"], one.get("freed", False)) for one in moved],
                         [(2, 1, True), (2, 1, True), (2, 1, False)])
        wrong = self.run_swale("optimize", "--free", "--keep", "first", path=path, expect=2)[1]
        self.assertIn('"first" says not which epochs to keep', wrong)
        self.run_swale("optimize", "--free", "--full", path=path, expect=2)
        self.run_swale("optimize", "--yes", path=path, expect=2)

    def test_optimize_follows_a_job_that_has_ended(self):
        path = self.copy()
        (made,) = self.objects("optimize", "--follow", "--rate", "64M", "--threads", "2", path=path)
        self.assertEqual((made["cluster"], made["epochs"]), (1, 3))
        self.assertEqual(self.objects("optimize", "--follow", path=path), [])
        self.run_swale("optimize", "--follow", "--full", path=path, expect=2)
        self.run_swale("optimize", "--rate", "1K", path=path, expect=2)

    @staticmethod
    def lock_from_elsewhere(name):
        """A process of another machine holds it."""
        lock = {"counter": "1".zfill(20), "nonce": "0123456789abcdef", "lease_s": 600, "host": "elsewhere",
                "boot": "b", "pid_namespace": "n", "pid": 7, "start_time": "1", "allocation": "",
                "job": "00000000000000ab", "since": "2026-01-01T00:00:00Z"}
        with open(name, "w", encoding="ascii") as file:
            file.write(json.dumps(lock, separators=(",", ":")) + "\n")

    def test_a_second_optimize_waits_for_the_first(self):
        path = self.copy()
        lock = os.path.join(path, "clusters", "optimize.lock")
        self.lock_from_elsewhere(lock)
        process = subprocess.Popen([SWALE, "optimize", path, "--json"], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.kill)
        said = process.stderr.readline()
        self.assertIn("process 7 on host elsewhere", said)
        self.assertRegex(said, "waiting up to [0-9]+ s to see whether .* still renews its lock")
        os.remove(lock)
        out, errors = process.communicate(timeout=100)
        self.assertEqual((process.returncode, errors), (0, ""))
        self.assertEqual(json.loads(out)["cluster"], 1)

    def test_optimize_follows_until_it_is_told_to_end(self):
        path = self.copy()
        # Three epochs are too few for a pass.
        self.lock_from_elsewhere(os.path.join(path, "swale.lock"))
        process = subprocess.Popen([SWALE, "optimize", path, "--follow", "--json"], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.kill)
        while not self.catches(process.pid, signal.SIGTERM):
            self.assertIsNone(process.poll())
        # The job's threads go first.
        self.assertEqual(os.getpriority(os.PRIO_PROCESS, process.pid), 19)
        process.terminate()
        out, errors = process.communicate(timeout=100)
        self.assertEqual((process.returncode, out), (0, ""))
        self.assertIn("as it was told to", errors)
        self.assertEqual(self.objects("info", path=path)[0]["clusters"], [])

    @staticmethod
    def catches(pid, number):
        with open(f"/proc/{pid}/status", encoding="ascii") as file:
            caught = int(next(line for line in file if line.startswith("SigCgt:")).split()[1], 16)
        return caught >> (number - 1) & 1

    def test_a_pass_that_is_told_to_end_leaves_no_files(self):
        path = self.copy()
        for told in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # It says its plan first, into a full pipe: it waits there until the signal has come.
            reading, writing = os.pipe()
            os.set_blocking(writing, False)
            with contextlib.suppress(BlockingIOError):
                while True:
                    os.write(writing, b"x" * 4096)
            os.set_blocking(writing, True)
            process = subprocess.Popen(  # nohup has SIGHUP ignored
                [SWALE, "optimize", path], stdout=writing, stderr=subprocess.PIPE, text=True,
                preexec_fn=lambda number=told: signal.signal(number, signal.SIG_DFL))
            self.addCleanup(process.kill)
            os.close(writing)
            while not self.catches(process.pid, told):
                self.assertIsNone(process.poll())
            process.send_signal(told)
            while self.catches(process.pid, told):  # the second one would end it at once
                pass
            with open(reading, "rb") as out:
                self.assertIn(b"they stay", out.read())
            errors = process.communicate(timeout=100)[1]
            self.assertEqual(process.returncode, -told, errors)
            self.assertIn("told to end; nothing was changed", errors)
            clusters = os.path.join(path, "clusters")
            self.assertEqual([name for _, _, names in os.walk(clusters) for name in names], [])
        self.run_swale("optimize", path=path)
        self.run_swale("verify", path=path)

    def test_a_cluster_is_not_itself_optimized_nor_freed(self):
        path = self.copy()
        keys = self.lines("keys", "--epoch", "1", "--u64")[:5]
        before = [self.lines("get", key, path=path) for key in keys]
        self.run_swale("optimize", path=path)
        self.run_swale("optimize", "--free", "--keep", "none", "--yes", path=path)
        cluster = os.path.join(path, "clusters", "0001")
        for words in ([], ["--full"], ["--free", "--yes", "--keep", "none"], ["--free", "--dry-run"]):
            said = self.run_swale("optimize", *words, path=cluster, expect=2)[1]
            self.assertIn("is a cluster of a massive directory", said)
        self.assertEqual([self.lines("get", key, path=path) for key in keys], before)
        self.run_swale("verify", path=path)

    def test_clusters_that_lead_nowhere_are_told(self):
        path = self.copy()
        os.rmdir(os.path.join(path, "clusters"))
        os.symlink(os.path.join(self.scratch, "nowhere"), os.path.join(path, "clusters"))
        for words in ([], ["--free", "--yes"]):
            said = self.run_swale("optimize", *words, path=path, expect=3)[1]
            self.assertIn("clusters: listing the directory: No such file", said)
        self.assertEqual(len(self.lines("keys", "--epoch", "1", path=path)), 22)

    def test_clusters_that_cannot_be_read_hide_no_epochs(self):
        path = self.copy()
        before = self.lines("get", "name", path=path)
        os.rmdir(os.path.join(path, "clusters"))
        with open(os.path.join(path, "clusters"), "x", encoding="ascii"):
            pass
        out, errors = self.run_swale("get", "name", path=path)
        self.assertEqual(out.splitlines(), before)
        self.assertEqual(errors.count("the epochs themselves answer"), 1, errors)
        self.run_swale("verify", path=path, expect=1)

    def test_dump_shows_clusters(self):
        path = self.copy()
        self.run_swale("optimize", path=path)
        listed = os.path.join(path, "clusters", "0001", "manifest.json")
        (content,) = self.objects("dump", path=listed)
        self.assertEqual((content["what"], content["content"]["clusters"][0]["number"]), ("clusters", 1))
        files = [line for line in self.lines("dump", path=path) if line.startswith(path)]
        self.assertIn(listed, files)
        self.assertIn(os.path.join(path, "clusters", "0001." + os.path.basename(DATA)), files)
        with open(listed, "r+b") as file:
            file.seek(100)
            file.write(b"~")
        self.assertIn("DAMAGE", self.run_swale("dump", path=path, expect=1)[0])

    def test_optimize_of_what_is_damaged(self):
        path = self.damage(DATA, 4096 + 100)
        self.assertIn("offset 4096", self.run_swale("optimize", path=path, expect=3)[1])
        self.assertEqual(self.objects("info", path=path)[0]["clusters"], [])
        self.run_swale("optimize", "--memory", "1M", expect=2)

    def test_what_one_pass_has_no_memory_for_is_for_the_next(self):
        path = os.path.join(self.scratch, "many")
        subprocess.run([MAKE_DIRECTORY, path, "0", "200", "1"], check=True, timeout=60)
        before = self.lines("get", "name", path=path)
        passes = self.objects("optimize", "--memory", "32M", path=path)
        self.assertEqual([(one["cluster"], one["epochs"], one["epochs_left"]) for one in passes],
                         [(1, 170, 30), (2, 30, 0)])
        self.assertEqual(self.lines("get", "name", path=path), before)
        self.run_swale("verify", path=path)
        shutil.rmtree(os.path.join(path, "clusters"))
        passes = self.objects("optimize", "--memory", "32M", "--follow", path=path)
        self.assertEqual([one["epochs"] for one in passes], [170, 30])
        shutil.rmtree(os.path.join(path, "clusters"))
        ((status, out, errors), other) = self.start_ranks(path, "--memory", "32M")
        self.assertEqual((status, other), (0, (0, "", "")), errors)
        self.assertIn("; 30 do not fit into --memory: another pass", out)
        self.assertIn("cluster 0002 has 30 epochs", out)
        self.assertEqual(self.lines("get", "name", path=path), before)

    def small_file_system(self, kilobytes, script):
        """What the script prints, to which $1 is a folder with so little space, $2 the directory."""
        space = "" if os.geteuid() == 0 else "-r"  # a user mounts in a name space of his own
        done = subprocess.run(
            ["unshare", *space.split(), "-m", "sh", "-c",
             'mount -t tmpfs -o size="$3"k small "$1" && ' + script,
             "sh", tempfile.mkdtemp(dir=self.scratch), self.path, str(kilobytes)],
            capture_output=True, text=True, timeout=100, env=dict(os.environ, SWALE=SWALE))
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_too_little_space_is_said_before_anything_is_written(self):
        script = ('cp -r "$2" "$1/copy" && { "$SWALE" optimize "$1/copy" 2>&1; echo "status $?"; } && '
                  '{ find "$1/copy/clusters" -type f; "$SWALE" verify "$1/copy"; }')
        said = self.small_file_system(300, script)
        self.assertRegex(said, r"the cluster takes up to \d+ bytes, and \d+ are free; nothing was changed")
        self.assertIn("status 3\n", said)
        self.assertIn("all good (3 epochs", said)
        self.assertNotIn("clusters/", said)
        # The canary: with more space the same script makes a cluster.
        made = self.small_file_system(8_000, script)
        self.assertIn("cluster 0001 has 3 epochs", made)
        self.assertIn("clusters/0001/manifest.json", made)

    def test_stats_and_repair_beside_a_cluster(self):
        path = self.copy()
        stats = self.lines("stats", "--json", path=path)
        keys = self.lines("keys", "--epoch", "1", "--u64")[:5]
        before = [self.lines("get", key, path=path) for key in keys]
        self.run_swale("optimize", path=path)
        self.assertEqual(self.lines("stats", "--json", path=path), stats)
        os.truncate(os.path.join(path, INDEX), 100)
        self.run_swale("verify", path=path, expect=1)
        self.assertEqual([self.lines("get", key, path=path) for key in keys], before)
        self.run_swale("repair", path=path)
        (report,) = self.objects("verify", path=path)
        self.assertEqual((report["ok"], report["clusters"], report["records"]), (True, 1, 67))
        self.assertEqual([self.lines("get", key, path=path) for key in keys], before)
        # Without logs of their own, epochs have their statistics still.
        self.run_swale("optimize", "--free", "--keep", "none", "--yes", path=path)
        self.assertEqual([one["records"] for one in self.objects("stats", path=path)], [22, 23, 22])
        self.assertEqual([self.lines("get", key, path=path) for key in keys], before)

    def test_a_damaged_cluster_is_told_once_and_made_anew(self):
        path = self.copy()
        before = self.lines("get", "u64:7", "name", "--u64", path=path)
        self.run_swale("optimize", path=path)
        log = os.path.join(path, "clusters", "0001." + os.path.basename(DATA))
        with open(log, "r+b") as file:
            file.seek(100)
            file.write(b"damage")
        out, errors = self.run_swale("get", "u64:7", "name", "--u64", path=path)
        self.assertEqual(out.splitlines(), before)
        self.assertEqual(errors.count("the epochs themselves answer instead"), 1, errors)
        self.assertIn(log, errors)
        self.run_swale("verify", path=path, expect=1)
        self.run_swale("optimize", "--full", path=path)
        self.assertEqual(self.run_swale("get", "u64:7", "name", "--u64", path=path)[1], "")
        self.run_swale("verify", path=path)


unittest.main(argv=sys.argv[:1])
