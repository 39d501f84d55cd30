"""command_test.py SWALE MAKE_DIRECTORY: the `swale` command over a directory of known content (make_directory.c)."""
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import unittest

SWALE, MAKE_DIRECTORY = sys.argv[1:3]
# Of the job that wrote the directory.
DATA, INDEX = (os.path.join("p000", "part-000000.j0001." + kind) for kind in ("data", "index"))
DOCUMENT, EPOCHS, STATS = (os.path.join("jobs", "0001", name) for name in ("manifest.json", "epochs", "stats.jsonl"))
SLOT = 256  # bytes of an epoch in the epoch log, two copies of its record


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


class Command(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.mkdtemp(prefix="swale-test-")
        cls.path = os.path.join(cls.scratch, "directory")
        subprocess.run([MAKE_DIRECTORY, cls.path], check=True, timeout=60)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.scratch)

    def run_swale(self, *arguments, expect=0, path=None):
        """Standard output and error of `swale SUBCOMMAND PATH ...`; the exit status is as expected."""
        subcommand, *rest = arguments
        done = subprocess.run([SWALE, subcommand, path or self.path, *rest], capture_output=True, timeout=60)
        self.assertEqual(done.returncode, expect, (arguments, done.stdout, done.stderr))
        return done.stdout.decode("latin-1"), done.stderr.decode()

    def lines(self, *arguments, **keywords):
        return self.run_swale(*arguments, **keywords)[0].splitlines()

    def objects(self, *arguments, **keywords):
        return [json.loads(line) for line in self.lines(*arguments, "--json", **keywords)]

    def copy(self):
        path = tempfile.mkdtemp(dir=self.scratch)
        shutil.copytree(self.path, path, dirs_exist_ok=True)
        return path

    def damage(self, name, offset):
        path = self.copy()
        with open(os.path.join(path, name), "r+b") as file:
            file.seek(offset)
            byte = file.read(1)[0]
            file.seek(offset)
            file.write(bytes([byte ^ 1]))
        return path

    def test_keys_drawn_at_random(self):
        keys = self.lines("keys", "--epoch", "1", "--u64")
        drawn = self.lines("keys", "--epoch", "1", "--u64", "--sample", "5", "--seed", "3")
        self.assertEqual(len(set(drawn)), 5)
        self.assertLessEqual(set(drawn), set(keys))
        self.assertEqual(drawn, self.lines("keys", "--epoch", "1", "--u64", "--sample", "5", "--seed", "3"))
        self.assertEqual(sorted(self.lines("keys", "--epoch", "1", "--u64", "--sample", "1000")), sorted(keys))
        self.assertEqual(len({tuple(self.lines("keys", "--sample", "5", "--seed", str(seed))) for seed in range(9)}), 9)

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
        return subprocess.run(["/usr/bin/python3", script, output], input=text.encode(), capture_output=True, timeout=110)

    def test_stats_as_a_picture(self):
        if subprocess.run(["/usr/bin/python3", "-c", "import matplotlib"], capture_output=True, check=False).returncode:
            self.skipTest("/usr/bin/python3 has no matplotlib")
        output = os.path.join(self.scratch, "epochs.svg")
        done = self.plot(self.run_swale("stats", "--json")[0], output)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(output, encoding="utf-8") as file:
            self.assertGreaterEqual(file.read().count('<g id="axes_'), 3)
        self.assertEqual(self.plot("", output).returncode, 1)

    def test_stats_that_are_missing_or_damaged(self):
        path = self.copy()
        os.remove(os.path.join(path, STATS))
        self.assertIn("Of 3 epochs no statistics are kept.", self.run_swale("stats", path=path)[0])
        self.assertEqual([epoch["stats"] for epoch in self.objects("stats", path=path)], [{}, {}, {}])
        path = self.damage(STATS, 60)
        self.assertIn("stats.jsonl: offset 0", self.run_swale("stats", expect=3, path=path)[1])
        self.run_swale("verify", path=path)

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
        self.assertEqual((disk["unreadable_logs"], disk["data_bytes"], disk["uncommitted_bytes"]), (1, 0, 3 * 4096 + 100))
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
        self.assertIn("generation 2: its job has not closed the directory", self.run_swale("info", path=path)[0])

    def test_directories_of_other_engines_and_newer_ones_are_told_from_damage(self):
        path = self.copy()
        self.seal(os.path.join(path, "swale.json"), b'"swale-imd"', b'"swale-later"')
        commands = [["info"], ["verify"], ["stats"], ["dump"], ["repair"], ["ls"], ["get", "name"], ["scan"], ["keys"],
                    ["top", "number"]]
        for command in commands:
            _, errors = self.run_swale(*command, path=path, expect=3)
            self.assertIn('swale.json: has the format "swale-later", which this swale does not know', errors, command)
        _, errors = self.run_swale("dump", path=os.path.join(path, DOCUMENT), expect=3)
        self.assertIn("swale-later", errors)
        path = self.copy()
        for name in ("swale.json", DOCUMENT):
            self.seal(os.path.join(path, name), b'"version":1', b'"version":2')
        for command in commands:
            if command != ["dump"]:  # it shows what it cannot judge
                _, errors = self.run_swale(*command, path=path, expect=3)
                self.assertIn("format version 2, this build knows up to 1; read it with a newer swale", errors, command)
        text, _ = self.run_swale("dump", path=os.path.join(path, "swale.json"), expect=1)
        self.assertIn("format version 2", text)

    def seal(self, name, old, new):
        """Edits a manifest, and makes its checksum right."""
        with open(name, "rb") as file:
            text = file.read()
        covered = text[:text.rindex(b'"crc32c"')].replace(old, new)
        self.assertIn(new, covered)
        with open(name, "wb") as file:
            file.write(covered + b'"crc32c":"%08x"}\n' % crc32c(covered))

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

    def test_get(self):
        self.assertEqual(
            self.lines("get", "name"), [f"name\t{epoch}\t{word} {epoch}" for epoch in range(3) for word in ("first", "second")]
        )
        self.assertEqual(self.lines("get", "name", "-e", "2"), ["name\t2\tfirst 2", "name\t2\tsecond 2"])
        self.assertEqual(self.lines("get", "u64:7", "--u64"), [f"u64:7\t{e}\t0x{e * 100 + 7:02x}00000000000000" for e in range(3)],
                         "--u64 is of keys")
        self.assertEqual(self.lines("get", "0x0700000000000000", "--hex", "-e", "1"),
                         ["0x0700000000000000\t1\t0x6b00000000000000"])
        self.assertEqual(self.lines("get", "empty"), ["empty\t1\t"])
        raw, _ = self.run_swale("get", "u64:7", "--raw")
        self.assertEqual(struct.unpack("<3Q", raw.encode("latin-1")), (7, 107, 207))
        self.assertEqual(self.objects("get", "empty"), [{"key": "empty", "epoch": 1, "bytes": 0, "value": ""}])

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
        self.assertEqual(sum(record["bytes"] for record in records), 20 * 8 + len("first 0") + len("second 0"))

    def test_keys(self):
        self.assertEqual(sorted(self.lines("keys", "--u64")), sorted(["name"] + [f"u64:{n}" for n in range(20)]))
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
        self.assertEqual(self.lines("scan", "--where", "number == 119", "--u64"), ["1\tu64:19\t0x7700000000000000"])
        wanted = [f"{10 * e},{n},{100 * e + n}" for e in range(3) for n in range(20) if n > 15]
        lines = self.lines("scan", "-w", "u64(key) > 15 && number < 300", "-f", "step,u64(key),number", "--format", "csv")
        self.assertEqual((lines[0], sorted(lines[1:])), ("step,u64(key),number", sorted(wanted)))
        self.assertEqual(self.lines("scan", "-w", "bytes == 0", "--format", "csv"),
                         ["epoch,key,number", "1,empty,"], "CSV has the schema's fields by itself")
        self.assertEqual(self.objects("scan", "-w", "bytes < 8 and epoch == 1", "-f", "key,number,number + 1,has(number)"),
                         [{"key": key, "number": None, "number + 1": None, "has(number)": False}
                          for key in [line.split("\t")[1] for line in self.lines("scan", "-w", "bytes < 8 && epoch == 1")]])
        self.assertEqual(self.objects("scan", "-w", "number == 219", "--typed")[0]["value"], {"number": 219})
        self.assertEqual(self.lines("scan", "-w", "number == 219", "--typed", "--u64"), ["2\tu64:19\tnumber=219"])
        raw, err = self.run_swale("scan", "-e", "0", "-f", "number", "--raw")
        numbers = sorted(struct.unpack(f"<{len(raw) // 8}Q", raw.encode("latin-1")))
        self.assertEqual(numbers[:20], list(range(20)))
        self.assertEqual((len(numbers), "1 records were left out" in err), (21, True), "second 0 has 8 bytes")
        for arguments, part in ((("--where", "weight > 1"), "no field"), (("--where", "number"), "condition"),
                                (("--fields", "number,,key"), "column 1"), (("--fields", "number+1", "--raw"), "raw output has"),
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
        self.assertEqual(self.lines("scan", "-j", "5", "-n", "100", path=path), self.lines("scan", "-j", "1", path=path)[:100])

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
        self.assertEqual(out.splitlines(), [f"{second}\tname\tsecond 1", "119\t0x1300000000000000\t0x7700000000000000"])
        self.assertIn("2 whose value is too short", err)
        records = self.objects("top", "number", "-e", "0", "--u64")
        self.assertEqual(len(records), 10)
        self.assertEqual(records[1], {"key": "u64:19", "number": 19, "epoch": 0, "bytes": 8, "value": "0x1300000000000000"})
        self.assertEqual(self.lines("top", "number", "--epochs", "0:1", "-k", "3", "-f", "epoch,number", "--format", "csv")[:1],
                         ["epoch,number"])
        best = self.objects("top", "number", "--epochs", ":", "-k", "7", "--smallest", "-f", "epoch,number")
        self.assertEqual(best, [{"epoch": 0, "number": n} for n in range(7)])
        self.assertEqual(self.lines("top", "number", "--step", "10", "-k", "1", "--smallest", "--format", "csv", "--u64"),
                         ["number,key,number", "100,u64:0,100"])
        raw, _ = self.run_swale("top", "number", "--time", "0.5", "-k", "2", "--smallest", "--raw", "-f",
                                "epoch,step,time,key,number")
        self.assertEqual(list(struct.iter_unpack("<IqdQQ", raw.encode("latin-1"))), [(1, 10, 0.5, n, 100 + n) for n in range(2)])
        _, err = self.run_swale("top", "weight", expect=2)
        self.assertIn("the schema has number", err)

    def test_get_by_step_time_and_range(self):
        def of(*arguments, expect=0):
            return [int(line.split("\t")[1]) for line in self.lines("get", "u64:7", *arguments, expect=expect)]
        for arguments, epochs in ((("--step", "10"), [1]), (("--step", "10:20"), [1, 2]), (("--step", ":10"), [0, 1]),
                                  (("--step=-5:"), [0, 1, 2]), (("--time", "0.5"), [1]), (("--time", "0.25:0.75"), [1]),
                                  (("--epochs", "1:"), [1, 2]), (("-e", ":"), [0, 1, 2]), (("--time", ":"), [0, 1, 2])):
            self.assertEqual(of(*([arguments] if isinstance(arguments, str) else arguments)), epochs, arguments)
        for arguments, part in ((("--step", "11:19"), "no steps 11:19"), (("--step", "5"), "no step 5: it has 3 committed"),
                                (("--time", "1.5:"), "no times 1.5:"), (("--epoch", "3"), "no epoch 3"),
                                (("--step", "x"), "expected a number, or a range"), (("--step", "2:1"), "before it begins"),
                                (("--time", "0:1:2"), "expected a number, or a range")):
            self.assertIn(part, self.run_swale("get", "u64:7", *arguments, expect=2)[1])
        self.run_swale("get", "u64:7", "--step", "0", "--time", "0", expect=2)
        self.assertEqual([line.split("\t")[0] for line in self.lines("scan", "--step", "10:20", "-w", "u64(key) == 3")],
                         ["1", "2"])
        raw, _ = self.run_swale("get", "u64:7", "--raw", "--step", "10:", "-f", "step,time,number")
        self.assertEqual(list(struct.iter_unpack("<qdQ", raw.encode("latin-1"))), [(10, 0.5, 107), (20, 1.0, 207)])

    def test_a_restart_that_does_not_go_back_is_told(self):
        path = self.copy()
        again = subprocess.run([MAKE_DIRECTORY, path, "1", "2"], capture_output=True, text=True, timeout=60)
        self.assertEqual(again.returncode, 1)
        for part in ("has step 10, and the last epoch has step 20", "imd.resume_after", "imd.steps=any"):
            self.assertIn(part, again.stderr)
        self.assertEqual(len(self.objects("info", path=path)[0]["epochs"]), 3)
        for variable, value, steps in (("SWALE_IMD_STEPS", "any", [0, 10, 20, 10, 20]),
                                       ("SWALE_IMD_RESUME_AFTER", "0", [0, 10, 20])):
            subprocess.run([MAKE_DIRECTORY, path, "1", "2"], check=True, timeout=60, env=dict(os.environ, **{variable: value}))
            self.assertEqual([epoch["step"] for epoch in self.objects("info", path=path)[0]["epochs"]], steps)

    def test_get_takes_keys_from_a_file(self):
        path = os.path.join(self.scratch, "keys")
        with open(path, "w", encoding="utf-8") as file:
            file.write("u64:7\n\nname\r\n")
        asked = self.lines("get", "u64:7", "name", "-e", "1")
        self.assertEqual(self.lines("get", "--keys", path, "-e", "1"), asked)
        self.assertEqual(self.lines("get", "u64:7", "--keys", path, "-e", "1"), asked[:1] + asked)
        done = subprocess.run([SWALE, "get", self.path, "--keys", "-", "-e", "1"], input=b"u64:7\nname", capture_output=True,
                              timeout=60, check=True)
        self.assertEqual(done.stdout.decode().splitlines(), asked)
        self.assertIn("keys", self.run_swale("get", expect=2)[1])
        self.assertIn("cannot be read", self.run_swale("get", "--keys", path + "-none", expect=3)[1])

    def test_keys_that_are_numbers(self):
        path = os.path.join(self.scratch, "numbers")
        subprocess.run([MAKE_DIRECTORY, path], check=True, timeout=60, env=dict(os.environ, SWALE_IMD_KEY="u64"))
        (info,) = self.objects("info", path=path)
        self.assertEqual(info["key"], "u64")
        self.assertIn("keys: u64", self.run_swale("info", path=path)[0])
        self.assertEqual(self.objects("get", "7", "-e", "1", path=path),
                         [{"key": 7, "epoch": 1, "bytes": 8, "value": "0x6b00000000000000"}])
        self.assertEqual(self.lines("get", "7", "u64:8", "-e", "0", "-f", "key,number", path=path), ["7\t7", "8\t8"])
        self.assertEqual(self.lines("scan", "-w", "key == 13 && step == 10", path=path), ["1\t13\t0x7100000000000000"])
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
        self.assertIn("keys are numbers here", self.run_swale("scan", "-w", "key == '13'", path=path, expect=2)[1])
        self.assertNotIn("keys here have", self.run_swale("get", "99", path=path, expect=1)[1])
        other = subprocess.run([MAKE_DIRECTORY, path], env=dict(os.environ, SWALE_IMD_KEY="text"), capture_output=True,
                               text=True, timeout=60)
        self.assertIn("made with imd.key=u64, which cannot be changed", other.stderr)

    def test_scan_passes_damage_if_it_is_told_to(self):
        path = self.copy()
        log = os.path.join(path, "p000", "part-000000.j0001.data")
        with open(log, "r+b") as file:
            file.seek(100)
            byte = file.read(1)
            file.seek(100)
            file.write(bytes([byte[0] ^ 1]))
        self.run_swale("scan", path=path, expect=3)
        out, err = self.run_swale("scan", "--keep-going", path=path, expect=3)
        kept = out.splitlines()
        self.assertEqual(kept, [line for line in self.lines("scan") if not line.startswith("0\t")], "the first epoch's run")
        self.assertIn("part-000000.j0001.data", err)
        _, problems = self.run_swale("verify", path=path, expect=1)
        self.assertIn("part-000000.j0001.data", problems)
        self.assertNotIn("swale verify", problems, "nobody is told to do what he has just done")
        self.assertRegex(err, r"1 damaged places were passed, and \d+ records or more were not read")
        self.assertEqual(self.run_swale("scan", "--keep-going"), self.run_swale("scan"), "nothing is damaged")

    def test_info_shows_the_schema(self):
        text, _ = self.run_swale("info")
        self.assertIn("values: number:u8:apples", text)
        (info,) = self.objects("info")
        self.assertEqual(info["schema"], [{"name": "number", "type": "u8", "count": 1, "unit": "apples", "offset": 0}])
        self.assertEqual(info["extrema"], ["number"])

    def test_three_processes_write_the_same_content_as_one(self):
        path = os.path.join(self.scratch, "of-three")
        environment = dict(os.environ, SWALE_JOB_SIZE="3", SWALE_JOB_ID="three", SWALE_JOB_JOIN_DEADLINE_S="50",
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
        self.assertIn("problems", out)
        self.assertIn(os.path.join(path, name) + ": offset 0", err)
        (report,) = self.objects("verify", expect=1, path=path)
        self.assertFalse(report["ok"])
        self.assertEqual(report["problems"][0]["code"], "corruption")
        _, err = self.run_swale("scan", expect=3, path=path)
        self.assertIn("offset 0", err)

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
        self.assertEqual([(thing["epoch"], thing["job"], thing["step"], thing["records"]) for thing in epochs[1:]],
                         [(0, 1, 0, 22), (1, 1, 10, 23), (2, 1, 20, 22)])
        stats = self.objects("dump", path=os.path.join(self.path, STATS))
        self.assertEqual([thing["content"]["epoch"] for thing in stats], [0, 1, 2])
        self.assertEqual([thing["content"]["epoch_id"] for thing in stats], [thing["epoch_id"] for thing in epochs[1:]])

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
                         [("header", 0), ("epoch", SLOT), ("DAMAGE", 2 * SLOT), ("epoch", 3 * SLOT), ("torn", 4 * SLOT)])
        self.assertIn("epochs: offset 512: the record of epoch 1 is damaged", self.run_swale("scan", expect=3, path=path)[1])

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
        self.assertEqual([(thing["what"], thing["offset"]) for thing in things if thing["what"] in ("summary", "DAMAGE")],
                         [("summary", 0), ("DAMAGE", size), ("summary", 2 * size + (3 << 20)),
                          ("DAMAGE", 3 * size + (3 << 20))])

    def test_dump_goes_on_behind_damage(self):
        segments = self.objects("dump", path=os.path.join(self.path, INDEX))
        extrema = next(thing["offset"] for thing in segments if thing["what"] == "extrema")
        for name, offset in ((DATA, 200), (INDEX, 20), (INDEX, extrema + 4), ("swale.json", 30), (DOCUMENT, 30),
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
        lock = {"counter": "%020d" % 3, "nonce": "0123456789abcdef", "lease_s": 60.0, "host": "n17", "boot": "b17",
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
        for text in ("process 17 on host n17 (slurm-70123)", "since 2026-11-22T01:02:03Z", "lease 60 s", "silent: ", "would be"):
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
        for content, what in (("no json at all", "no lock"), ('{"version":9}', "other"), ("[" * 4000, "no lock")):
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

    def run_config(self, *arguments, expect=0, **variables):
        done = subprocess.run([SWALE, "config", *arguments], capture_output=True, text=True, timeout=60,
                              env=dict(os.environ, **variables))
        self.assertEqual(done.returncode, expect, (arguments, done.stdout, done.stderr))
        return done.stdout, done.stderr

    def test_config(self):
        rows = {row["name"]: row for row in map(json.loads, self.run_config("--json", SWALE_IMD_WAYS="3")[0].splitlines())}
        self.assertLess(len(rows), 40, "fewer than 40 options")
        self.assertEqual((rows["imd.ways"]["value"], rows["imd.ways"]["origin"]), ("3", "environment"))
        self.assertEqual((rows["imd.ways"]["default"], rows["imd.ways"]["min"], rows["imd.ways"]["max"]), ("1", 1, 64))
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
        self.run_config("swan", expect=2)
        print(f"{len(rows)} options")

    def test_config_checks(self):
        for text in ("", "imd.ways=2", "io.direct=never,imd.map=never job.id=x", "imd.schema=id:u8,imd.extrema=id"):
            self.assertEqual(self.run_config("--check", text)[0], "fine\n", text)
        for text, part in (("write.wayz=2", "the nearest is imd.ways"), ("imd.ways=65", "from 1 to 64"),
                           ("imd.ways", "expected name=value"), ("imd.extrema=energy", "schema"),
                           ("net.heartbeat_interval_s=20", "half of"), ("imd.scan_chunk=5K,io.engine=steam", "io.engine")):
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
                          ("get", "name", "--epoch", "-1"), ("scan", "--hex", "--raw"), ("sing",), ("scan", "--loud")):
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

    def files_of_a_copy(self):
        path = self.copy()
        names = [os.path.join(folder, name) for folder, _, files in os.walk(path) for name in files]
        return path, sorted(names)

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
            for subcommand, *rest in (("scan",), ("verify",), ("dump",), ("repair", "--dry-run"), ("info",), ("stats",)):
                done = subprocess.run([SWALE, subcommand, path, *rest], capture_output=True, text=True, timeout=60)
                self.assertIn(done.returncode, (0, 1, 3), (name, subcommand, done.stderr))

    def test_json_that_is_nested_deeply_is_damage(self):
        path, _ = self.files_of_a_copy()
        name = os.path.join(path, "swale.json")
        for text in ("[" * 200_000 + "]" * 200_000, '{"a":' * 200_000 + "0" + "}" * 200_000, "[" * 200_000):
            with open(name, "w") as file:
                file.write(text)
            for subcommand, *rest in (("info",), ("verify",), ("dump", "--json"), ("dump",), ("repair", "--dry-run")):
                done = subprocess.run([SWALE, subcommand, path, *rest], capture_output=True, timeout=60)
                self.assertIn(done.returncode, (0, 1, 3), (subcommand, done.stderr))

    def test_a_mistyped_variable_is_an_error(self):
        for subcommand in ("scan", "repair", "dump"):
            done = subprocess.run([SWALE, subcommand, self.path], capture_output=True, text=True, timeout=60,
                                  env=dict(os.environ, SWALE_IO_ENGIN="threads"))
            self.assertEqual(done.returncode, 2, (subcommand, done.stderr))
            self.assertIn("the nearest is SWALE_IO_ENGINE", done.stderr)

    def test_storage_options_of_the_environment_are_heeded_by_every_command(self):
        for subcommand, *rest in (("scan",), ("verify",), ("dump",), ("repair", "--dry-run"), ("info",), ("stats",)):
            done = subprocess.run([SWALE, subcommand, self.path, *rest], capture_output=True, text=True, timeout=60,
                                  env=dict(os.environ, SWALE_IO_ENGINE="steam"))
            self.assertEqual(done.returncode, 2, (subcommand, done.stderr))
            self.assertIn("SWALE_IO_ENGINE", done.stderr)
            done = subprocess.run([SWALE, subcommand, self.path, *rest], capture_output=True, text=True, timeout=60,
                                  env=dict(os.environ, SWALE_IO_ENGINE="threads", SWALE_IO_DIRECT="never"))
            self.assertEqual(done.returncode, 0, (subcommand, done.stderr))

    @unittest.skipUnless(os.path.exists("/dev/full"), "needs /dev/full")
    def test_a_full_disk_behind_stdout_is_a_failure(self):
        with open("/dev/full", "w") as full:
            done = subprocess.run([SWALE, "scan", self.path], stdout=full, stderr=subprocess.PIPE, timeout=60)
        self.assertEqual(done.returncode, 3)
        self.assertIn(b"No space left on device", done.stderr)

    def test_messages_name_limits_and_the_nearest_word(self):
        self.assertIn("expected at least 1, found 0", self.run_swale("verify", "--problems", "0", expect=2)[1])
        self.assertIn("expected at least 0, found -1", self.run_swale("ls", "--epoch=-1", expect=2)[1])
        self.assertIn('no command "gett"; the nearest is get', self.run_swale("gett", expect=2)[1])
        self.assertIn("most keys here have 8 bytes: u64:4711?", self.run_swale("get", "4711", expect=1)[1])
        self.assertIn("most keys here have 8 bytes, this one has 6", self.run_swale("get", "absent", expect=1)[1])
        self.assertTrue(self.run_swale("get", "u64:4711", expect=1)[1].endswith("not found in any epoch\n"))
        helps = [subprocess.run([SWALE, *words], capture_output=True, text=True, timeout=60)
                 for words in (("help", "get"), ("get", "--help"), ("help",), ("--help",))]
        self.assertEqual([done.returncode for done in helps], [0] * 4)
        self.assertEqual(helps[0].stdout, helps[1].stdout)
        self.assertEqual(helps[2].stdout, helps[3].stdout)
        self.assertIn("no command", subprocess.run([SWALE, "help", "gett"], capture_output=True, text=True).stderr)


unittest.main(argv=sys.argv[:1])
