"""command_test.py SWALE MAKE_DIRECTORY: what the `swale` command shows of a directory of known content."""
import collections
import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest

from command_case import DATA, INDEX, MAKE_DIRECTORY, SWALE, CommandCase


def turn_bit(path, at):
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 1]))


class Command(CommandCase):
    def test_keys_drawn_at_random(self):
        keys = self.lines("keys", "--epoch", "1", "--u64")
        drawn = self.lines("keys", "--epoch", "1", "--u64", "--sample", "5", "--seed", "3")
        self.assertEqual(len(set(drawn)), 5)
        self.assertLessEqual(set(drawn), set(keys))
        self.assertEqual(drawn, self.lines("keys", "--epoch", "1", "--u64", "--sample", "5", "--seed", "3"))
        self.assertEqual(sorted(self.lines("keys", "--epoch", "1", "--u64", "--sample", "1000")),
                         sorted(keys))
        self.assertEqual(len({tuple(self.lines("keys", "--sample", "5", "--seed", str(seed)))
                              for seed in range(9)}), 9)

    def test_stats(self):
        epochs = self.objects("stats")
        self.assertEqual([epoch["records"] for epoch in epochs], [22, 23, 22])
        for epoch in epochs:
            counters = epoch["stats"]
            self.assertEqual(epoch["ranks"], 1)
            self.assertEqual(counters["append.records"]["sum"], epoch["records"])
            self.assertEqual(counters["append.bytes"]["sum"], epoch["data_bytes"])
            self.assertEqual(counters["index.records"]["max"], epoch["records"])
            self.assertEqual(counters["write.data"]["sum"], 4096)
            self.assertGreater(counters["commit.time"]["sum"], 0)
            self.assertEqual(counters["network.frames"]["sum"], 0)
        table = self.lines("stats")
        self.assertEqual([line.split()[:4] for line in table[1:4]],
                         [["0", "0", "1", "22"], ["1", "10", "1", "23"], ["2", "20", "1", "22"]])
        details = self.run_swale("stats", "--epoch", "1")[0]
        self.assertIn("epoch 1, step 10, 1 ranks", details)
        self.assertRegex(details, r"append.records +23 +23 +23 +0 +23 +0 ")
        bars = self.lines("stats", "--plot")
        self.assertEqual(sum(line.count("|") for line in bars), 6)
        self.assertEqual(max(len(line.split("|")[1].rstrip()) for line in bars if "|" in line), 64)
        self.assertIn("no epoch 3", self.run_swale("stats", "--epoch", "3", expect=2)[1])

    def plot(self, text, output):
        script = os.path.join(os.path.dirname(__file__), "..", "..", "tools", "swale-stats-plot")
        return subprocess.run(["/usr/bin/python3", script, output], input=text.encode(), capture_output=True,
                              timeout=110)

    def test_stats_as_a_picture(self):
        if subprocess.run(["/usr/bin/python3", "-c", "import matplotlib"], capture_output=True,
                          check=False).returncode:
            self.skipTest("/usr/bin/python3 has no matplotlib")
        output = os.path.join(self.scratch, "epochs.svg")
        done = self.plot(self.run_swale("stats", "--json")[0], output)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(output, encoding="utf-8") as file:
            self.assertGreaterEqual(file.read().count('<g id="axes_'), 3)
        self.assertEqual(self.plot("", output).returncode, 1)

    def test_info(self):
        text, _ = self.run_swale("info")
        self.assertIn("3 epochs, 67 records", text)
        (info,) = self.objects("info")
        self.assertEqual([epoch["step"] for epoch in info["epochs"]], [0, 10, 20])
        self.assertEqual([epoch["time"] for epoch in info["epochs"]], [0, 0.5, 1])
        self.assertEqual([epoch["records"] for epoch in info["epochs"]], [22, 23, 22])
        self.assertEqual([(job["number"], job["ranks"]) for job in info["jobs"]], [(1, 1)])
        self.assertEqual({epoch["job"] for epoch in info["epochs"]}, {1})
        self.assertEqual((info["generation"], info["closed"], info["lost"]), (1, True, []))
        self.assertEqual(info["disk"]["files"], 2)
        self.assertEqual(info["disk"]["data_bytes"], 3 * 4096)
        self.assertEqual(info["disk"]["uncommitted_bytes"], 0)
        self.assertEqual(info["disk"]["index_bytes"], os.path.getsize(os.path.join(self.path, INDEX)))
        self.assertNotIn("uncommitted", text)

    def test_info_tells_data_from_reserved_space(self):
        before = self.objects("info")[0]["disk"]
        path = self.copy()
        with open(os.path.join(path, DATA), "ab") as data:
            data.truncate(os.path.getsize(data.name) + 64 * 2**20)
        with open(os.path.join(path, "p000", "part-000005.j0009.data"), "wb") as data:
            data.truncate(12345)  # of a job that committed nothing
        after = self.objects("info", path=path)[0]["disk"]
        self.assertEqual(after, dict(before, files=3, uncommitted_bytes=64 * 2**20 + 12345))
        self.assertIn("reserved or uncommitted: 67121209 bytes", self.run_swale("info", path=path)[0])
        path = self.damage(INDEX, 20)
        with open(os.path.join(path, INDEX), "r+b") as index:
            index.truncate(100)
        disk = self.objects("info", path=path)[0]["disk"]
        self.assertEqual((disk["unreadable_logs"], disk["data_bytes"], disk["uncommitted_bytes"]),
                         (1, 0, 3 * 4096 + 100))
        self.assertIn("1 index logs cannot be read", self.run_swale("info", path=path)[0])

    def test_info_says_that_the_last_job_did_not_close(self):
        subprocess.run([MAKE_DIRECTORY, path := self.copy(), "3", "1"], check=True, timeout=60)
        (info,) = self.objects("info", path=path)
        self.assertEqual([job["number"] for job in info["jobs"]], [1, 2])
        self.assertEqual([epoch["job"] for epoch in info["epochs"]], [1, 1, 1, 2])
        self.assertEqual((info["generation"], info["closed"]), (2, True))
        self.assertIn("generation 2\n", self.run_swale("info", path=path)[0])
        for name in ("swale.json", os.path.join("jobs", "0002", "manifest.json")):
            self.seal(os.path.join(path, name), b'"closed":true', b'"closed":false')
        self.assertFalse(self.objects("info", path=path)[0]["closed"])
        self.assertIn("generation 2: its job has not closed the directory",
                      self.run_swale("info", path=path)[0])

    def test_get(self):
        self.assertEqual(
            self.lines("get", "name"), [f"name\t{epoch}\t{word} {epoch}" for epoch in range(3)
                                        for word in ("first", "second")]
        )
        self.assertEqual(self.lines("get", "name", "-e", "2"), ["name\t2\tfirst 2", "name\t2\tsecond 2"])
        self.assertEqual(self.lines("get", "u64:7", "--u64"),
                         [f"u64:7\t{e}\t0x{e * 100 + 7:02x}00000000000000" for e in range(3)],
                         "--u64 is of keys")
        self.assertEqual(self.lines("get", "0x0700000000000000", "--hex", "-e", "1"),
                         ["0x0700000000000000\t1\t0x6b00000000000000"])
        self.assertEqual(self.lines("get", "empty"), ["empty\t1\t"])
        raw, _ = self.run_swale("get", "u64:7", "--raw")
        self.assertEqual(struct.unpack("<3Q", raw.encode("latin-1")), (7, 107, 207))
        self.assertEqual(self.objects("get", "empty"),
                         [{"key": "empty", "epoch": 1, "bytes": 0, "value": ""}])

    def test_get_says_what_is_missing_and_still_answers_the_rest(self):
        out, err = self.run_swale("get", "absent", "u64:1", "u64:20", "--u64", "-e", "0", expect=1)
        self.assertEqual(out, "u64:1\t0\t0x0100000000000000\n")
        self.assertIn("absent: not found in epoch 0", err)
        self.assertIn("u64:20: not found", err)
        self.assertEqual(self.run_swale("get", "empty", "-e", "0", expect=1)[0], "")

    def test_scan(self):
        lines = self.lines("scan", "--u64")
        self.assertEqual(len(lines), 67)
        self.assertIn("2\tu64:19\t0xdb00000000000000", lines)
        self.assertEqual(len(self.lines("scan", "--epoch", "1")), 23)
        self.assertEqual(len(self.lines("scan", "-n", "5")), 5)
        records = self.objects("scan", "--epoch", "0")
        self.assertEqual(sum(record["bytes"] for record in records), 20 * 8 + len("first 0")
                         + len("second 0"))

    def test_keys(self):
        self.assertEqual(sorted(self.lines("keys", "--u64")),
                         sorted(["name"] + [f"u64:{n}" for n in range(20)]))
        self.assertIn("empty", self.lines("keys", "--epoch", "1"))
        self.assertIn({"key": "name"}, self.objects("keys"))

    def test_ls(self):
        self.assertEqual(self.lines("ls", "--epoch", "1"), self.lines("keys", "--epoch", "1"))
        self.assertEqual(len(self.lines("ls")), 21)
        self.assertEqual(len(self.lines("ls", "--all")), 22, "with the one that only epoch 1 has")
        self.assertEqual(len(self.lines("ls", "-n", "3", "--all")), 3)
        self.assertEqual(self.lines("ls", "nam?"), ["name"])
        self.assertEqual(sorted(self.lines("ls", "u64:1?", "--u64")), [f"u64:{n}" for n in range(10, 20)])
        self.assertEqual(self.lines("ls", "no*", expect=1), [])
        self.assertEqual([line.split() for line in self.lines("ls", "-l", "-a", "*m*")],
                         [["6", "45", "0-2", "name"], ["1", "0", "1", "empty"]])
        self.assertEqual(self.objects("ls", "-l", "-e", "2", "name"),
                         [{"key": "name", "values": 2, "bytes": 15, "first_epoch": 2, "last_epoch": 2}])
        self.assertEqual(self.objects("ls", "name"), [{"key": "name"}])
        self.run_swale("ls", "--all", "--epoch", "1", expect=2)
        self.run_swale("ls", "--epoch", "3", expect=2)

    def test_scan_with_conditions_and_columns(self):
        self.assertEqual(self.lines("scan", "--where", "number == 119", "--u64"),
                         ["1\tu64:19\t0x7700000000000000"])
        wanted = [f"{10 * e},{n},{100 * e + n}" for e in range(3) for n in range(20) if n > 15]
        lines = self.lines("scan", "-w", "u64(key) > 15 && number < 300", "-f", "step,u64(key),number",
                           "--format", "csv")
        self.assertEqual((lines[0], sorted(lines[1:])), ("step,u64(key),number", sorted(wanted)))
        self.assertEqual(self.lines("scan", "-w", "bytes == 0", "--format", "csv"),
                         ["epoch,key,number", "1,empty,"], "CSV has the schema's fields by itself")
        self.assertEqual(self.objects("scan", "-w", "bytes < 8 and epoch == 1", "-f",
                                      "key,number,number + 1,has(number)"),
                         [{"key": key, "number": None, "number + 1": None, "has(number)": False}
                          for key in [line.split("\t")[1]
                                      for line in self.lines("scan", "-w", "bytes < 8 && epoch == 1")]])
        self.assertEqual(self.objects("scan", "-w", "number == 219", "--typed")[0]["value"], {"number": 219})
        self.assertEqual(self.lines("scan", "-w", "number == 219", "--typed", "--u64"),
                         ["2\tu64:19\tnumber=219"])
        raw, err = self.run_swale("scan", "-e", "0", "-f", "number", "--raw")
        numbers = sorted(struct.unpack(f"<{len(raw) // 8}Q", raw.encode("latin-1")))
        self.assertEqual(numbers[:20], list(range(20)))
        self.assertEqual((len(numbers), "1 records were left out" in err), (21, True), "second 0 has 8 bytes")
        for arguments, part in ((("--where", "weight > 1"), "no field"), (("--where", "number"), "condition"),
                                (("--fields", "number,,key"), "column 1"),
                                (("--fields", "number+1", "--raw"), "raw output has"),
                                (("--format", "xml"), "xml"), (("--jobs", "0"), "jobs")):
            out, err = self.run_swale("scan", *arguments, expect=2)
            self.assertEqual(out, "")
            self.assertIn(part, err)

    def test_scans_of_several_threads_print_the_same(self):
        path = os.path.join(self.scratch, "several")
        subprocess.run([MAKE_DIRECTORY, path, "0", "40"], check=True, timeout=60)
        for layout in ("text", "csv", "json", "raw"):
            one = self.run_swale("scan", "-j", "1", "--format", layout, path=path)
            for jobs in ("2", "7"):
                self.assertEqual(self.run_swale("scan", "-j", jobs, "--format", layout, path=path), one)
        self.assertEqual(self.lines("scan", "-j", "5", "-n", "100", path=path),
                         self.lines("scan", "-j", "1", path=path)[:100])

    def test_get_typed(self):
        self.assertEqual(self.lines("get", "u64:7", "--typed", "--u64", "-e", "1"), ["u64:7\t1\tnumber=107"])
        self.assertEqual(self.lines("get", "u64:7", "empty", "--fields", "step,number", "--format", "csv"),
                         ["step,number", "0,7", "10,107", "20,207", "10,"])
        raw, err = self.run_swale("get", "u64:7", "empty", "-f", "number", "--raw")
        self.assertEqual(struct.unpack("<3Q", raw.encode("latin-1")), (7, 107, 207))
        self.assertIn("1 values were left out", err)

    def test_top(self):
        self.assertEqual(self.lines("top", "number", "-k", "3", "--smallest", "--u64"),
                         [f"{200 + n}\tu64:{n}\t0x{200 + n:02x}00000000000000" for n in range(3)])
        out, err = self.run_swale("top", "number", "-k", "2", "-e", "1")
        second = struct.unpack("<Q", b"second 1")[0]
        self.assertEqual(out.splitlines(),
                         [f"{second}\tname\tsecond 1", "119\t0x1300000000000000\t0x7700000000000000"])
        self.assertIn("2 whose value is too short", err)
        records = self.objects("top", "number", "-e", "0", "--u64")
        self.assertEqual(len(records), 10)
        self.assertEqual(records[1], {"key": "u64:19", "number": 19, "epoch": 0, "bytes": 8,
                                      "value": "0x1300000000000000"})
        self.assertEqual(self.lines("top", "number", "--epochs", "0:1", "-k", "3", "-f", "epoch,number",
                                    "--format", "csv")[:1],
                         ["epoch,number"])
        best = self.objects("top", "number", "--epochs", ":", "-k", "7", "--smallest", "-f", "epoch,number")
        self.assertEqual(best, [{"epoch": 0, "number": n} for n in range(7)])
        self.assertEqual(self.lines("top", "number", "--step", "10", "-k", "1", "--smallest", "--format",
                                    "csv", "--u64"),
                         ["number,key,number", "100,u64:0,100"])
        raw, _ = self.run_swale("top", "number", "--time", "0.5", "-k", "2", "--smallest", "--raw", "-f",
                                "epoch,step,time,key,number")
        self.assertEqual(list(struct.iter_unpack("<IqdQQ", raw.encode("latin-1"))),
                         [(1, 10, 0.5, n, 100 + n) for n in range(2)])
        _, err = self.run_swale("top", "weight", expect=2)
        self.assertIn("the schema has number", err)

    def test_get_by_step_time_and_range(self):
        def of(*arguments, expect=0):
            return [int(line.split("\t")[1]) for line in self.lines("get", "u64:7", *arguments,
                                                                    expect=expect)]
        for arguments, epochs in ((("--step", "10"), [1]), (("--step", "10:20"), [1, 2]),
                                  (("--step", ":10"), [0, 1]),
                                  (("--step=-5:"), [0, 1, 2]), (("--time", "0.5"), [1]),
                                  (("--time", "0.25:0.75"), [1]),
                                  (("--epochs", "1:"), [1, 2]), (("-e", ":"), [0, 1, 2]),
                                  (("--time", ":"), [0, 1, 2])):
            self.assertEqual(of(*([arguments] if isinstance(arguments, str) else arguments)), epochs,
                             arguments)
        for arguments, part in ((("--step", "11:19"), "no steps 11:19"),
                                (("--step", "5"), "no step 5: it has 3 committed"),
                                (("--time", "1.5:"), "no times 1.5:"), (("--epoch", "3"), "no epoch 3"),
                                (("--step", "x"), "expected a number, or a range"),
                                (("--step", "2:1"), "before it begins"),
                                (("--time", "0:1:2"), "expected a number, or a range")):
            self.assertIn(part, self.run_swale("get", "u64:7", *arguments, expect=2)[1])
        self.run_swale("get", "u64:7", "--step", "0", "--time", "0", expect=2)
        self.assertEqual([line.split("\t")[0] for line in self.lines("scan", "--step", "10:20", "-w",
                                                                     "u64(key) == 3")],
                         ["1", "2"])
        raw, _ = self.run_swale("get", "u64:7", "--raw", "--step", "10:", "-f", "step,time,number")
        self.assertEqual(list(struct.iter_unpack("<qdQ", raw.encode("latin-1"))),
                         [(10, 0.5, 107), (20, 1.0, 207)])

    def test_a_restart_that_does_not_go_back_is_told(self):
        path = self.copy()
        again = subprocess.run([MAKE_DIRECTORY, path, "1", "2"], capture_output=True, text=True, timeout=60)
        self.assertEqual(again.returncode, 1)
        for part in ("has step 10, and the last epoch has step 20", "imd.resume_after", "imd.steps=any"):
            self.assertIn(part, again.stderr)
        self.assertEqual(len(self.objects("info", path=path)[0]["epochs"]), 3)
        for variable, value, steps in (("SWALE_IMD_STEPS", "any", [0, 10, 20, 10, 20]),
                                       ("SWALE_IMD_RESUME_AFTER", "0", [0, 10, 20])):
            subprocess.run([MAKE_DIRECTORY, path, "1", "2"], check=True, timeout=60,
                           env=dict(os.environ, **{variable: value}))
            self.assertEqual([epoch["step"] for epoch in self.objects("info", path=path)[0]["epochs"]], steps)

    def test_get_takes_keys_from_a_file(self):
        path = os.path.join(self.scratch, "keys")
        with open(path, "w", encoding="utf-8") as file:
            file.write("u64:7\n\nname\r\n")
        asked = self.lines("get", "u64:7", "name", "-e", "1")
        self.assertEqual(self.lines("get", "--keys", path, "-e", "1"), asked)
        self.assertEqual(self.lines("get", "u64:7", "--keys", path, "-e", "1"), asked[:1] + asked)
        done = subprocess.run([SWALE, "get", self.path, "--keys", "-", "-e", "1"], input=b"u64:7\nname",
                              capture_output=True, timeout=60, check=True)
        self.assertEqual(done.stdout.decode().splitlines(), asked)
        self.assertIn("keys", self.run_swale("get", expect=2)[1])
        self.assertIn("cannot be read", self.run_swale("get", "--keys", path + "-none", expect=3)[1])

    def test_keys_that_are_numbers(self):
        path = os.path.join(self.scratch, "numbers")
        subprocess.run([MAKE_DIRECTORY, path], check=True, timeout=60,
                       env=dict(os.environ, SWALE_IMD_KEY="u64"))
        (info,) = self.objects("info", path=path)
        self.assertEqual(info["key"], "u64")
        self.assertIn("keys: u64", self.run_swale("info", path=path)[0])
        self.assertEqual(self.objects("get", "7", "-e", "1", path=path),
                         [{"key": 7, "epoch": 1, "bytes": 8, "value": "0x6b00000000000000"}])
        self.assertEqual(self.lines("get", "7", "u64:8", "-e", "0", "-f", "key,number", path=path),
                         ["7\t7", "8\t8"])
        self.assertEqual(self.lines("scan", "-w", "key == 13 && step == 10", path=path),
                         ["1\t13\t0x7100000000000000"])
        self.assertEqual(self.objects("scan", "-w", "key >= 18", "-e", "0", "-f", "key,key+1", path=path),
                         [{"key": 18, "key+1": 19}, {"key": 19, "key+1": 20}] if self.lines(
                             "scan", "-w", "key >= 18", "-e", "0", "-f", "key", path=path)[0] == "18" else
                         [{"key": 19, "key+1": 20}, {"key": 18, "key+1": 19}])
        keys = self.objects("keys", "-e", "0", path=path)
        self.assertEqual(sorted(key["key"] for key in keys if isinstance(key["key"], int)), list(range(20)))
        self.assertIn({"key": "0x" + b"name".hex()}, keys, "of another length")
        self.assertEqual(self.objects("ls", "1?", "-e", "0", "-n", "1", path=path)[0]["key"] // 10, 1)
        self.assertEqual(self.objects("top", "number", "-k", "1", "--smallest", path=path)[0]["key"], 0)
        self.assertIn("expected a number from 0", self.run_swale("get", "name", path=path, expect=2)[1])
        self.assertIn("keys are numbers here", self.run_swale("scan", "-w", "key == '13'", path=path,
                                                              expect=2)[1])
        self.assertNotIn("keys here have", self.run_swale("get", "99", path=path, expect=1)[1])
        other = subprocess.run([MAKE_DIRECTORY, path], env=dict(os.environ, SWALE_IMD_KEY="text"),
                               capture_output=True, text=True, timeout=60)
        self.assertIn("made with imd.key=u64, which cannot be changed", other.stderr)

    def test_scan_passes_damage_if_it_is_told_to(self):
        path = self.copy()
        log = os.path.join(path, "p000", "part-000000.j0001.data")
        whole = self.lines("scan")
        turn_bit(log, 100)  # in the first block, after the run's header
        self.run_swale("scan", path=path, expect=3)
        out, err = self.run_swale("scan", "--keep-going", path=path, expect=3)
        kept = out.splitlines()
        self.assertEqual([line for line in kept if not line.startswith("0\t")],
                         [line for line in whole if not line.startswith("0\t")])
        self.assertLess(set(kept), set(whole))
        self.assertIn("part-000000.j0001.data", err)
        _, problems = self.run_swale("verify", path=path, expect=1)
        self.assertIn("part-000000.j0001.data", problems)
        self.assertNotIn("swale verify", problems, "nobody is told to do what he has just done")
        self.assertRegex(err, rf"1 damaged place was skipped, and at least {len(whole) - len(kept)} records "
                         rf"were not read")
        turn_bit(log, 3)  # the run's header
        out, err = self.run_swale("scan", "--keep-going", path=path, expect=3)
        self.assertEqual(out.splitlines(), [line for line in whole if not line.startswith("0\t")],
                         "the first epoch's run")
        self.assertRegex(err, rf"and at least {sum(line.startswith('0') for line in whole)} records were "
                         rf"not read")
        self.assertEqual(self.run_swale("scan", "--keep-going"), self.run_swale("scan"), "nothing is damaged")

    def test_info_shows_the_schema(self):
        text, _ = self.run_swale("info")
        self.assertIn("values: number:u8:apples", text)
        (info,) = self.objects("info")
        self.assertEqual(info["schema"],
                         [{"name": "number", "type": "u8", "count": 1, "unit": "apples", "offset": 0}])
        self.assertEqual(info["extrema"], ["number"])

    def test_three_processes_write_the_same_content_as_one(self):
        path = os.path.join(self.scratch, "of-three")
        environment = dict(os.environ, SWALE_JOB_SIZE="3", SWALE_JOB_ID="three",
                           SWALE_JOB_JOIN_DEADLINE_S="50",
                           SWALE_JOB_RENDEZVOUS=os.path.join(self.scratch, "rendezvous"))
        ranks = [
            subprocess.Popen([MAKE_DIRECTORY, path], env=dict(environment, SWALE_JOB_RANK=str(rank)))
            for rank in range(3)
        ]
        self.assertEqual([rank.wait(timeout=100) for rank in ranks], [0, 0, 0])
        self.assertEqual(sorted(self.lines("scan", path=path)), sorted(self.lines("scan")))
        self.assertEqual(self.lines("get", "name", path=path), self.lines("get", "name"))
        self.assertEqual(self.lines("top", "number", path=path), self.lines("top", "number"))
        self.assertIn("all good (3 epochs, 3 partitions, 67 records", self.run_swale("verify", path=path)[0])

    def test_a_rank_without_a_meeting_place_is_told_what_to_set(self):
        environment = dict(os.environ, SWALE_JOB_SIZE="3", SWALE_JOB_RANK="0", SWALE_JOB_ID="nowhere")
        environment.pop("SWALE_JOB_RENDEZVOUS", None)
        done = subprocess.run([MAKE_DIRECTORY, os.path.join(self.scratch, "none")], env=environment,
                              capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 1)
        self.assertIn("job.rendezvous", done.stderr)

    def test_every_key_that_it_lists_it_finds(self):
        keys = self.lines("keys", "--epoch", "1")
        self.assertEqual(len(keys), 22)
        self.assertEqual(len(self.lines("get", "--epoch", "1", *keys)), 23)

    def test_config(self):
        rows = {row["name"]: row
                for row in map(json.loads, self.run_config("--json", SWALE_IMD_WAYS="3")[0].splitlines())}
        sections = collections.Counter(name.split(".")[0] for name in rows)
        # A buffer's limits are all options, because devices differ.
        tier = sections.pop("tier")
        self.assertLessEqual(tier, 24, f"at most 24 options of a tiered write buffer: {tier}")
        self.assertLessEqual(max(sections.values()), 20, f"at most 20 options of one engine: {sections}")
        self.assertEqual((rows["imd.ways"]["value"], rows["imd.ways"]["origin"]), ("3", "environment"))
        self.assertEqual((rows["imd.ways"]["default"], rows["imd.ways"]["min"], rows["imd.ways"]["max"]),
                         ("1", 1, 64))
        self.assertEqual(rows["io.engine"]["choices"], ["auto", "uring", "threads"])
        self.assertEqual(rows["io.engine"]["calls"], ["write", "read", "meta"])
        for name, row in rows.items():
            self.assertRegex(name, r"^[a-z]+\.[a-z_]+$")
            self.assertEqual(row["environment"], "SWALE_" + name.replace(".", "_").upper())
            self.assertTrue(row["help"], name)
            # A value is taken from the environment, and an impossible one names its variable.
            if row["type"] not in ("text", "boolean"):
                _, err = self.run_config(expect=2, **{row["environment"]: "impossible"})
                self.assertIn(row["environment"], err)
        text, _ = self.run_config("imd.ways", SWALE_IMD_WAYS="3")
        self.assertIn("imd.ways=3   (from SWALE_IMD_WAYS; default 1)", text)
        self.assertEqual(text.count("imd."), 1)
        self.assertIn("swan: no option", self.run_config("swan", expect=2)[1])
        self.assertIn("the nearest is imd.memory", self.run_config("imd.memroy", expect=2)[1])
        self.assertIn("swale config --check 'imd.ways=2'", self.run_config("imd.ways=2", expect=2)[1])
        self.assertIn("take no such option", self.run_config("imd.map", "--for", "write", expect=2)[1])
        print(f"{len(rows)} options")

    def test_config_checks(self):
        for text in ("", "imd.ways=2", "io.direct=never,imd.map=never job.id=x",
                     "imd.schema=id:u8,imd.extrema=id"):
            self.assertEqual(self.run_config("--check", text)[0], "fine\n", text)
        for text, part in (("write.wayz=2", "the nearest is imd.ways"), ("imd.ways=65", "from 1 to 64"),
                           ("imd.ways", "expected name=value"), ("imd.extrema=energy", "schema"),
                           ("net.heartbeat_interval_s=20", "half of"),
                           ("imd.cache=5K,io.engine=steam", "io.engine")):
            out, err = self.run_config("--check", text, expect=2)
            self.assertEqual(out, "")
            self.assertIn(part, err)
        self.run_config("--check", "imd.map=never", "--for", "read")
        self.assertIn("imd.map", self.run_config("--check", "imd.map=never", "--for", "write", expect=2)[1])
        answer = json.loads(self.run_config("--check", "a.b=c", "--json", expect=2)[0])
        self.assertFalse(answer["ok"])
        self.assertIn("a.b", answer["problem"])

    def test_the_command_heeds_the_environment(self):
        done = subprocess.run([SWALE, "scan", self.path], capture_output=True, text=True, timeout=60,
                              env=dict(os.environ, SWALE_IMD_SCAN_CHUNK="1"))
        self.assertEqual(done.returncode, 2)
        self.assertIn("SWALE_IMD_SCAN_CHUNK", done.stderr)

    def test_usage(self):
        for arguments in (("get",), ("get", "u64:x"), ("get", "0x1"), ("get", "name", "--epoch", "3"),
                          ("get", "name", "--epoch", "-1"), ("scan", "--hex", "--raw"), ("sing",),
                          ("scan", "--loud")):
            out, err = self.run_swale(*arguments, expect=2)
            self.assertEqual(out, "", arguments)
            self.assertNotEqual(err, "", arguments)
        self.assertEqual(subprocess.run([SWALE], capture_output=True, timeout=60).returncode, 2)

    def test_help_has_examples(self):
        for subcommand in ("info", "get", "scan", "keys", "top", "verify", "repair", "unlock", "dump"):
            done = subprocess.run([SWALE, subcommand, "--help"], capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 0)
            self.assertIn(f"swale {subcommand} out/particles", done.stdout)
        version = subprocess.run([SWALE, "--version"], capture_output=True, text=True, timeout=60)
        self.assertEqual((version.returncode, version.stdout), (0, "swale 0.1.0\n"))

    def test_a_mistyped_variable_is_an_error(self):
        for subcommand in ("scan", "repair", "dump"):
            done = subprocess.run([SWALE, subcommand, self.path], capture_output=True, text=True, timeout=60,
                                  env=dict(os.environ, SWALE_IO_ENGIN="threads"))
            self.assertEqual(done.returncode, 2, (subcommand, done.stderr))
            self.assertIn("the nearest is SWALE_IO_ENGINE", done.stderr)

    def test_storage_options_of_the_environment_are_heeded_by_every_command(self):
        for subcommand, *rest in (("scan",), ("verify",), ("dump",), ("repair", "--dry-run"), ("info",),
                                  ("stats",)):
            done = subprocess.run([SWALE, subcommand, self.path, *rest], capture_output=True, text=True,
                                  timeout=60, env=dict(os.environ, SWALE_IO_ENGINE="steam"))
            self.assertEqual(done.returncode, 2, (subcommand, done.stderr))
            self.assertIn("SWALE_IO_ENGINE", done.stderr)
            done = subprocess.run([SWALE, subcommand, self.path, *rest], capture_output=True, text=True,
                                  timeout=60, env=dict(os.environ, SWALE_IO_ENGINE="threads",
                                                       SWALE_IO_DIRECT="never"))
            self.assertEqual(done.returncode, 0, (subcommand, done.stderr))

    @unittest.skipUnless(os.path.exists("/dev/full"), "needs /dev/full")
    def test_a_full_disk_behind_stdout_is_a_failure(self):
        with open("/dev/full", "w") as full:
            done = subprocess.run([SWALE, "scan", self.path], stdout=full, stderr=subprocess.PIPE, timeout=60)
        self.assertEqual(done.returncode, 3)
        self.assertIn(b"No space left on device", done.stderr)

    def test_messages_name_limits_and_the_nearest_word(self):
        self.assertIn("expected at least 1, found 0", self.run_swale("verify", "--problems", "0",
                                                                     expect=2)[1])
        self.assertIn("expected at least 0, found -1", self.run_swale("ls", "--epoch=-1", expect=2)[1])
        self.assertIn("expected at least 0, found -1", self.run_swale("dump", "--limit=-1", "x", expect=2)[1])
        self.assertIn('no command "gett"; the nearest is get', self.run_swale("gett", expect=2)[1])
        self.assertIn("most keys here have 8 bytes: u64:4711?", self.run_swale("get", "4711", expect=1)[1])
        self.assertIn("most keys here have 8 bytes, this one has 6",
                      self.run_swale("get", "absent", expect=1)[1])
        self.assertTrue(self.run_swale("get", "u64:4711", expect=1)[1].endswith("not found in any epoch\n"))
        helps = [subprocess.run([SWALE, *words], capture_output=True, text=True, timeout=60)
                 for words in (("help", "get"), ("get", "--help"), ("help",), ("--help",))]
        self.assertEqual([done.returncode for done in helps], [0] * 4)
        self.assertEqual(helps[0].stdout, helps[1].stdout)
        self.assertEqual(helps[2].stdout, helps[3].stdout)
        self.assertIn("no command", subprocess.run([SWALE, "help", "gett"], capture_output=True,
                                                   text=True).stderr)


unittest.main(argv=sys.argv[:1])
