"""meta_command_test.py META_API_TEST SWALE: the metadata store from C (meta_api_test.c), then what `swale`
says of it.

After a file was removed, cut or changed `swale verify` names the file and no subcommand answers as if nothing
were wrong; `swale repair` refuses.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

META_API_TEST, SWALE = sys.argv[1:3]


def swale(*arguments):
    done = subprocess.run([SWALE, *arguments], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


class MetaCommand(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.mkdtemp(prefix="swale-test-")
        cls.path = os.path.join(cls.scratch, "store")
        done = subprocess.run([META_API_TEST, cls.path], capture_output=True, text=True, timeout=100)
        if done.returncode != 0:
            raise AssertionError(done.stdout + done.stderr)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.scratch)

    def test_the_format_says_which_engine_answers_with_meta_or_without(self):
        for words in ((), ("meta",)):
            status, out, error = swale(*words, "info", "--json", self.path)
            self.assertEqual(status, 0, error)
            self.assertEqual(json.loads(out)["files"], 2)

    def test_a_whole_store_is_verified_dumped_and_counted(self):
        status, out, error = swale("meta", "verify", self.path)
        self.assertEqual(status, 0, out + error)
        status, out, error = swale("meta", "dump", self.path)
        self.assertEqual(status, 0, error)
        for word in ("data", "sealed"):
            self.assertIn(word, out)
        status, out, error = swale("meta", "stats", self.path)
        self.assertEqual(status, 0, error)
        self.assertNotEqual(out, "")

    def test_json_is_for_programs(self):
        status, out, error = swale("meta", "dump", self.path, "--json")
        self.assertEqual(status, 0, error)
        lines = [json.loads(line) for line in out.splitlines()]
        self.assertEqual({(line["file"], line["server"]) for line in lines}, {(self.path, 0)})
        self.assertLessEqual({"attributes", "extent"}, {line["what"] for line in lines})
        self.assertEqual({len(line["id"]) for line in lines}, {32})
        status, out, error = swale("meta", "stats", self.path, "--json")
        self.assertEqual(status, 0, error)
        found = json.loads(out)
        self.assertEqual((found["server"], found["ranks"], found["stats"]["attribute.files"]["sum"]),
                         (0, 1, 2))
        self.assertGreater(found["stats"]["index.extents"]["sum"] + found["stats"]["index.runs"]["sum"], 0)

    def files(self):
        return [name for name in sorted(os.listdir(self.path)) if not name.endswith((".lock", ".claims"))]

    def damaged(self, name, change):
        """What `swale verify` says of a copy in which `change` has made another file of this one."""
        copy = os.path.join(self.scratch, "copy")
        shutil.copytree(self.path, copy)
        path = os.path.join(copy, name)
        with open(path, "rb") as file:
            content = change(file.read())
        if content is None:
            os.remove(path)
        else:
            with open(path, "wb") as file:
                file.write(content)
        status, out, error = swale("meta", "verify", copy)
        for words in ("info", "stats"):
            self.assertNotEqual(swale("meta", words, copy)[0], 0, f"{words}: {name}")
        shutil.rmtree(copy)
        return status, out + error, error

    def test_a_server_that_is_elsewhere_is_named_with_where_it_was(self):
        copy = os.path.join(self.scratch, "part")
        shutil.copytree(self.path, copy)
        for name in os.listdir(copy):
            if name.startswith(("server-", "shard-", "closing-")):
                path = os.path.join(copy, name)
                shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)
        for words in ("info", "verify", "stats", "dump"):
            status, out, error = swale("meta", words, copy)
            self.assertNotEqual(status, 0, words)
            for said in ("server-00000.json", "server 0 (id ", "last at rank 0 of host", self.path):
                self.assertIn(said, out + error, words)
        self.assertIn("1 servers (0 of them here)", swale("meta", "info", copy)[1])

    def test_what_is_not_as_it_was_closed_is_found(self):
        changes = {"removed": lambda content: None,
                   "empty": lambda content: b"",
                   "cut to its head": lambda content: content[:32],
                   "cut by a byte": lambda content: content[:-1],
                   "last byte flipped": lambda content: content[:-1] + bytes([content[-1] ^ 1])}
        for name in self.files():
            for what, change in changes.items():
                status, words, _ = self.damaged(name, change)
                self.assertNotEqual(status, 0, f"{name}: {what}: {words}")
                self.assertIn(name, words, what)

    def test_flipped_bytes_are_found_and_not_repaired(self):
        for name in self.files():
            status, words, error = self.damaged(
                name, lambda content: content[:20] + bytes([content[20] ^ 0x10]) + content[21:])
            self.assertNotEqual(status, 0, words)
            self.assertEqual(len(set(error.splitlines())), len(error.splitlines()), "nothing is said twice")
            self.assertNotIn("corruption (file): corruption", error)
            self.assertIn(name, words)
        status, out, error = swale("repair", self.path)
        self.assertNotEqual(status, 0)
        self.assertIn("recovers by itself", out + error)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
