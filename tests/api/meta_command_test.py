"""meta_command_test.py META_API_TEST SWALE: the metadata store from C (meta_api_test.c), then what `swale` says of it.

After a flipped byte `swale verify` names the file and no subcommand answers as if nothing were wrong; `swale repair` refuses.
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

    def test_flipped_bytes_are_found_and_not_repaired(self):
        found = 0
        names = [name for name in os.listdir(self.path)
                 if name.startswith(("shard-", "attributes-")) and os.path.getsize(os.path.join(self.path, name)) > 0]
        for name in names:
            copy = os.path.join(self.scratch, "copy")
            shutil.copytree(self.path, copy)
            with open(os.path.join(copy, name), "r+b") as file:
                content = bytearray(file.read())
                content[20] ^= 0x10
                file.seek(0)
                file.write(content)
            status, out, error = swale("verify", copy)
            found += status != 0
            self.assertIn(status, (0, 1), out + error)  # 0: a log's end that reads as torn
            self.assertEqual(len(set(error.splitlines())), len(error.splitlines()), "nothing is said twice")
            self.assertNotIn("corruption (file): corruption", error)
            if status == 1:
                self.assertIn(".".join(name.split(".")[:2]), out + error)
            shutil.rmtree(copy)
        self.assertGreater(found, 0)
        print(f"{found} of {len(names)} flipped bytes were found")
        status, out, error = swale("repair", self.path)
        self.assertNotEqual(status, 0)
        self.assertIn("recovers by itself", out + error)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
