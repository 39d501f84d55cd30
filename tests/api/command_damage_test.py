"""command_damage_test.py SWALE MAKE_DIRECTORY: the `swale` command over damaged, lost, locked and foreign
files.
"""
import json
import os
import subprocess
import sys
import tempfile
import threading
import unittest

from command_case import DATA, DOCUMENT, EPOCHS, INDEX, MAKE_DIRECTORY, SLOT, STATS, SWALE, CommandCase


class CommandOnDamage(CommandCase):
    def test_stats_that_are_missing_or_damaged(self):
        path = self.copy()
        os.remove(os.path.join(path, STATS))
        self.assertIn("No statistics were kept of 3 epochs.", self.run_swale("stats", path=path)[0])
        self.assertEqual([epoch["stats"] for epoch in self.objects("stats", path=path)], [{}, {}, {}])
        path = self.damage(STATS, 60)
        self.assertIn("stats.jsonl: offset 0", self.run_swale("stats", expect=3, path=path)[1])
        self.run_swale("verify", path=path)

    def test_directories_of_other_engines_and_newer_ones_are_told_from_damage(self):
        path = self.copy()
        self.seal(os.path.join(path, "swale.json"), b'"swale-imd"', b'"swale-later"')
        commands = [["info"], ["verify"], ["stats"], ["dump"], ["repair"], ["ls"], ["get", "name"], ["scan"],
                    ["keys"],
                    ["top", "number"]]
        for command in commands:
            _, errors = self.run_swale(*command, path=path, expect=3)
            self.assertIn('swale.json: has the format "swale-later", which this swale does not know', errors,
                          command)
        _, errors = self.run_swale("dump", path=os.path.join(path, DOCUMENT), expect=3)
        self.assertIn("swale-later", errors)
        path = self.copy()
        for name in ("swale.json", DOCUMENT):
            self.seal(os.path.join(path, name), b'"version":1', b'"version":2')
        for command in commands:
            if command != ["dump"]:  # it shows what it cannot judge
                _, errors = self.run_swale(*command, path=path, expect=3)
                self.assertIn("format version 2, this build knows up to 1; read it with a newer swale",
                              errors, command)
        text, _ = self.run_swale("dump", path=os.path.join(path, "swale.json"), expect=1)
        self.assertIn("format version 2", text)

    def test_info_names_what_was_lost(self):
        path = self.copy()
        epoch_id = self.objects("dump", path=os.path.join(path, EPOCHS))[2]["epoch_id"]
        lost = ',\n"lost":[\n{"epoch_id":"%s","partition":0,"what":"its blocks"}\n],\n' % epoch_id
        with open(os.path.join(path, "swale.json"), encoding="utf-8") as file:
            self.assertIn("\n],\n", file.read())
        for name in ("swale.json", DOCUMENT):
            self.seal(os.path.join(path, name), b"\n],\n", b"\n]" + lost.encode())
        self.assertEqual(self.objects("info", path=path)[0]["lost"],
                         [{"epoch": 1, "partition": 0, "what": "its blocks"}])
        self.assertIn("epoch 1, partition 0: its blocks", self.run_swale("info", path=path)[0])

    def test_verify(self):
        out, err = self.run_swale("verify")
        self.assertIn("all good (3 epochs, 1 partitions, 67 records", out)
        self.assertEqual(err, "", "no progress bar where there is no terminal")
        (report,) = self.objects("verify")
        self.assertTrue(report["ok"])

    def test_verify_names_the_damage(self):
        name = DATA
        path = self.damage(name, 200)
        out, err = self.run_swale("verify", expect=1, path=path)
        self.assertIn(": 1 problem (", out)
        self.assertIn(os.path.join(path, name) + ": offset 0", err)
        (report,) = self.objects("verify", expect=1, path=path)
        self.assertFalse(report["ok"])
        self.assertEqual(report["problems"][0]["code"], "corruption")
        _, err = self.run_swale("scan", expect=3, path=path)
        self.assertIn("offset 0", err)

    def test_get_from_whole_epochs_beside_a_damaged_one(self):
        path = self.damage(DATA, 200)  # in epoch 0
        self.run_swale("get", "name", expect=3, path=path)
        self.run_swale("get", "name", "-e", "0", expect=3, path=path)
        out, _ = self.run_swale("get", "name", "-e", "1:", path=path)
        self.assertEqual(out.splitlines(), [f"name\t{epoch}\t{word} {epoch}" for epoch in (1, 2)
                                            for word in ("first", "second")])

    def test_dump(self):
        things = self.objects("dump")
        kinds = {thing["what"] for thing in things}
        self.assertLessEqual({"manifest", "run", "block", "segment", "slice", "piece", "extrema", "field",
                              "list-piece", "footer", "header", "epoch", "stats", "job-id"}, kinds)
        self.assertEqual(sum(thing["records"] for thing in things if thing["what"] == "run"), 67)
        self.assertEqual(sum(thing["records"] for thing in things if thing["what"] == "piece"), 67)
        data = os.path.join(self.path, DATA)
        records = [line for line in self.lines("dump", "-v", "--u64", path=data) if " record " in line]
        self.assertEqual(len(records), 67)
        self.assertTrue(any("key=u64:19" in line and "value=0xdb00000000000000" in line for line in records))
        self.assertIn("more lines", self.run_swale("dump", "--limit", "2", path=data)[0])
        for name in ("swale.json", DOCUMENT):
            self.assertIn('"epochs": 3', self.run_swale("dump", path=os.path.join(self.path, name))[0])
        epochs = self.objects("dump", path=os.path.join(self.path, EPOCHS))
        self.assertEqual([(thing["what"], thing["offset"]) for thing in epochs],
                         [("header", 0), ("epoch", SLOT), ("epoch", 2 * SLOT), ("epoch", 3 * SLOT)])
        self.assertEqual([(thing["epoch"], thing["job"], thing["step"], thing["records"])
                          for thing in epochs[1:]],
                         [(0, 1, 0, 22), (1, 1, 10, 23), (2, 1, 20, 22)])
        stats = self.objects("dump", path=os.path.join(self.path, STATS))
        self.assertEqual([thing["content"]["epoch"] for thing in stats], [0, 1, 2])
        self.assertEqual([thing["content"]["epoch_id"] for thing in stats],
                         [thing["epoch_id"] for thing in epochs[1:]])

    def test_dump_of_a_damaged_epoch_log(self):
        path = self.damage(EPOCHS, 2 * SLOT + 130)  # the second copy
        self.assertEqual(self.lines("scan", path=path), self.lines("scan"))
        things = self.objects("dump", expect=1, path=os.path.join(path, EPOCHS))
        self.assertEqual([(thing["what"], thing["offset"]) for thing in things],
                         [("header", 0), ("epoch", SLOT), ("epoch", 2 * SLOT), ("DAMAGE", 2 * SLOT + 128),
                          ("epoch", 3 * SLOT)])
        self.assertIn("copy 2 of the record is damaged", things[3]["cause"])
        with open(os.path.join(path, EPOCHS), "r+b") as log:
            log.seek(2 * SLOT)
            log.write(bytes(SLOT))
            log.seek(4 * SLOT)
            log.write(b"torn")
        things = self.objects("dump", expect=1, path=os.path.join(path, EPOCHS))
        self.assertEqual([(thing["what"], thing["offset"]) for thing in things],
                         [("header", 0), ("epoch", SLOT), ("DAMAGE", 2 * SLOT), ("epoch", 3 * SLOT),
                          ("torn", 4 * SLOT)])
        self.assertIn("epochs: offset 512: the record of epoch 1 is damaged",
                      self.run_swale("scan", expect=3, path=path)[1])

    def test_dump_of_damaged_statistics(self):
        path = self.damage(STATS, 60)
        with open(os.path.join(path, STATS), "ab") as file:
            file.write(b"x" * 200000 + b"\n" + b"torn")
        things = self.objects("dump", expect=1, path=os.path.join(path, STATS))
        self.assertEqual([thing["what"] for thing in things], ["DAMAGE", "stats", "stats", "DAMAGE", "torn"])
        self.assertEqual(things[-1]["bytes"], 4)

    def test_dump_of_damaged_summaries(self):
        golden = os.path.join(os.path.dirname(__file__), "..", "golden", "dir-v1", "jobs", "0001", "extrema")
        with open(golden, "rb") as file:
            summary = file.read()
        damaged = summary[:40] + bytes([summary[40] ^ 1]) + summary[41:]
        path = os.path.join(tempfile.mkdtemp(dir=self.scratch), "extrema")
        with open(path, "wb") as file:
            file.write(summary + damaged + bytes(3 << 20) + summary + summary[:50])
        things = self.objects("dump", expect=1, path=path)
        size = len(summary)
        self.assertEqual([(thing["what"], thing["offset"]) for thing in things
                          if thing["what"] in ("summary", "DAMAGE")],
                         [("summary", 0), ("DAMAGE", size), ("summary", 2 * size + (3 << 20)),
                          ("DAMAGE", 3 * size + (3 << 20))])

    def test_dump_goes_on_behind_damage(self):
        segments = self.objects("dump", path=os.path.join(self.path, INDEX))
        extrema = next(thing["offset"] for thing in segments if thing["what"] == "extrema")
        for name, offset in ((DATA, 200), (INDEX, 20), (INDEX, extrema + 4), ("swale.json", 30),
                             (DOCUMENT, 30),
                             (STATS, 60), (EPOCHS, 300)):
            path = self.damage(name, offset)
            things = self.objects("dump", expect=1, path=path)
            damages = [thing for thing in things if thing["what"] == "DAMAGE"]
            self.assertTrue(damages)
            self.assertTrue(all(os.path.join(path, name) in thing["cause"] for thing in damages), damages)
            self.assertGreater(len(things), 30)
        path = self.damage(DATA, 0)
        with open(os.path.join(path, DATA), "ab") as log:
            log.truncate(os.path.getsize(log.name) + 3 * 4096)
        self.assertIn({"what": "zeros", "blocks": 3}, [
            {key: thing[key] for key in ("what", "blocks")}
            for thing in self.objects("dump", expect=1, path=path) if thing["what"] == "zeros"])
        self.run_swale("dump", expect=2, path=sys.argv[0])

    def lock(self, path, **members):
        """Leaves the lock of a process of another machine."""
        lock = {"counter": "%020d" % 3, "nonce": "0123456789abcdef", "lease_s": 60.0, "host": "n17",
                "boot": "b17",
                "pid_namespace": "pid:[1]", "pid": 17, "start_time": "4711", "allocation": "slurm-70123",
                "job": "00000000000000ab", "since": "2026-11-22T01:02:03Z", **members}
        with open(os.path.join(path, "swale.lock"), "w", encoding="utf-8") as file:
            file.write(json.dumps(lock, separators=(",", ":")) + "\n")

    def left_over(self, path):
        return [name for name in os.listdir(path) if name.startswith("swale.lock")]

    def test_unlock(self):
        self.assertIn("nobody holds it", self.run_swale("unlock")[0])
        self.assertEqual(self.objects("unlock")[0]["state"], "none")
        self.run_swale("unlock", expect=3, path=os.path.join(self.scratch, "nowhere"))
        path = self.copy()
        self.lock(path)
        out, _ = self.run_swale("unlock", "--watch", "0.2", "--dry-run", path=path)
        for text in ("process 17 on host n17 (slurm-70123)", "since 2026-11-22T01:02:03Z", "lease 60 s",
                     "silent: ", "would be"):
            self.assertIn(text, out)
        self.assertEqual(self.left_over(path), ["swale.lock"])
        (found,) = self.objects("unlock", "--watch", "0.2", path=path)
        self.assertEqual((found["state"], found["removed"], found["pid"]), ("silent", True, 17))
        self.assertEqual(self.left_over(path), [])
        for garbage in ("", "no json", "x" * 5000):
            with open(os.path.join(path, "swale.lock"), "w", encoding="utf-8") as file:
                file.write(garbage)
            self.assertEqual(self.objects("unlock", path=path)[0]["state"], "dead")
            self.assertEqual(self.left_over(path), [])
        with open(os.path.join(path, "swale.lock"), "w", encoding="utf-8") as file:
            file.write("no json")
        out, err = self.run_swale("unlock", path=path)
        self.assertTrue(out.startswith("a file that is no lock (its 7 bytes are no JSON object)\n"), out)
        self.assertIn("took over a file that is no lock (its 7 bytes", err)

    def test_unlock_leaves_what_looks_alive(self):
        path = self.copy()
        self.lock(path)
        stop = threading.Event()

        def renew():
            count = 3
            with open(os.path.join(path, "swale.lock"), "r+b", buffering=0) as file:
                while not stop.wait(0.05):
                    count += 1
                    os.pwrite(file.fileno(), b"%020d" % count, 12)
        holder = threading.Thread(target=renew)
        holder.start()
        try:
            out, _ = self.run_swale("unlock", "--watch", "60", path=path, expect=1)
            self.assertIn("alive: renews its lock", out)
            self.assertIn("--force", out)
            self.assertEqual(self.left_over(path), ["swale.lock"])
        finally:
            stop.set()
            holder.join()
        with open(os.path.join(path, "swale.lock"), "w", encoding="utf-8") as file:
            file.write('{"version":9}')
        self.assertEqual(self.objects("unlock", path=path, expect=1)[0]["state"], "alive")
        self.assertTrue(self.objects("unlock", "--force", path=path)[0]["removed"])
        self.assertEqual(self.left_over(path), [])

    def test_dump_of_a_lock(self):
        path = self.copy()
        name = os.path.join(path, "swale.lock")
        self.lock(path)
        (thing,) = self.objects("dump", path=name)
        self.assertEqual((thing["what"], thing["host"], thing["lease_s"]), ("lock", "n17", 60))
        self.assertNotIn("DAMAGE", self.run_swale("dump", path=name)[0])
        for content, what in (("no json at all", "no lock"), ('{"version":9}', "other"),
                              ("[" * 4000, "no lock")):
            with open(name, "w", encoding="utf-8") as file:
                file.write(content)
            things = self.objects("dump", path=name, expect=1)
            self.assertEqual([thing["what"] for thing in things], [what, "DAMAGE"])
            self.assertIn(name, things[1]["cause"])

    def test_repair(self):
        out, _ = self.run_swale("repair")
        self.assertIn("nothing to repair", out)
        path = self.damage(INDEX, 20)
        self.run_swale("verify", expect=1, path=path)
        self.assertIn("would have: made", self.run_swale("repair", "--dry-run", path=path)[0])
        self.run_swale("verify", expect=1, path=path)
        (report,) = self.objects("repair", path=path)
        self.assertEqual((report["indexes_rebuilt"], report["lost"]), (1, []))
        self.run_swale("verify", path=path)
        self.assertEqual(self.lines("top", "number", path=path), self.lines("top", "number"))

    def test_repair_of_a_lost_manifest(self):
        path = self.damage("swale.json", 30)
        out, _ = self.run_swale("repair", path=path)
        self.assertIn("made copies of the manifest: 1 jobs, 3 epochs", out)
        self.assertTrue(os.path.exists(os.path.join(path, "swale.json.damaged")))
        self.assertEqual(self.objects("info", path=path)[0]["epochs"], self.objects("info")[0]["epochs"])
        self.run_swale("verify", path=path)
        self.assertEqual(self.lines("scan", path=path), self.lines("scan"))
        self.run_swale("repair", expect=3, path=os.path.join(self.scratch, "nowhere"))

    def test_damaged_or_missing_manifest(self):
        one_copy = self.damage("swale.json", 30)
        no_copy = self.damage("swale.json", 30)
        with open(os.path.join(no_copy, DOCUMENT), "r+b") as document:
            document.truncate(30)
        for subcommand in ("info", "scan", "keys", "verify"):
            _, err = self.run_swale(subcommand, expect=1 if subcommand == "verify" else 0, path=one_copy)
            self.assertIn("swale.json: offset", err)
            self.assertIn("jobs/0001/manifest.json is taken instead", err)
            _, err = self.run_swale(subcommand, expect=3, path=no_copy)
            self.assertIn("manifest.json", err)
            _, err = self.run_swale(subcommand, expect=3, path=self.scratch)
            self.assertIn("no massive directory", err)

    def test_long_holes_at_the_ends_of_files_are_not_walked(self):
        path, names = self.files_of_a_copy()
        logs = [name for name in names if name.endswith((".data", ".index", ".values"))]
        self.assertGreaterEqual(len(logs), 2)
        for name in logs:
            size = os.path.getsize(name)
            os.truncate(name, 200 << 30)
            for subcommand, *rest in (("scan", "--u64"), ("dump", "--limit", "3"), ("repair", "--dry-run")):
                self.run_swale(subcommand, *rest, path=path)
            self.run_swale("verify", path=path)
            os.truncate(name, size)

    def test_a_fifo_in_place_of_a_file_is_an_error(self):
        _, names = self.files_of_a_copy()
        for index in range(len(names)):
            path, copies = self.files_of_a_copy()
            name = copies[index]
            os.remove(name)
            os.mkfifo(name)
            for subcommand, *rest in (("scan",), ("verify",), ("dump",), ("repair", "--dry-run"), ("info",),
                                      ("stats",)):
                done = subprocess.run([SWALE, subcommand, path, *rest], capture_output=True, text=True,
                                      timeout=60)
                self.assertIn(done.returncode, (0, 1, 3), (name, subcommand, done.stderr))

    def test_json_that_is_nested_deeply_is_damage(self):
        path, _ = self.files_of_a_copy()
        name = os.path.join(path, "swale.json")
        for text in ("[" * 200_000 + "]" * 200_000, '{"a":' * 200_000 + "0" + "}" * 200_000, "[" * 200_000):
            with open(name, "w") as file:
                file.write(text)
            for subcommand, *rest in (("info",), ("verify",), ("dump", "--json"), ("dump",),
                                      ("repair", "--dry-run")):
                done = subprocess.run([SWALE, subcommand, path, *rest], capture_output=True, timeout=60)
                self.assertIn(done.returncode, (0, 1, 3), (subcommand, done.stderr))

    def test_a_step_that_is_unknown_is_in_no_range_and_meets_no_condition(self):
        path = self.copy()
        os.remove(os.path.join(path, EPOCHS))  # with it the steps of all epochs
        self.run_swale("repair", path=path, expect=1)
        subprocess.run([MAKE_DIRECTORY, path, "3", "1"], check=True, timeout=60)
        for arguments in (("--step", ":100"), ("--step", ":"), ("--where", "step <= 30"),
                          ("--where", "step == step")):
            self.assertEqual({line.split("\t")[0] for line in self.lines("scan", *arguments, path=path)},
                             {"3"}, arguments)
        self.assertIn("no step 7: it has 4", self.run_swale("get", "name", "--step", "7", path=path,
                                                            expect=2)[1])
        self.assertEqual([line for line in self.lines("get", "name", "-e", "2:3", "-f", "step,epoch",
                                                      path=path)],
                         ["\t2", "\t2", "30\t3", "30\t3"])
        self.assertEqual(self.objects("get", "u64:7", "-e", "2:", "-f", "step", path=path),
                         [{"step": None}, {"step": 30}])
        for found in (self.objects("info", path=path)[0]["epochs"], self.objects("stats", path=path)):
            self.assertEqual([epoch["step"] for epoch in found], [None, None, None, 30])
        self.assertIn("epoch 1, step unknown,", self.run_swale("stats", "-e", "1", path=path)[0])


unittest.main(argv=sys.argv[:1])
