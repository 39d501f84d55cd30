"""command_escapes_test.py SWALE MAKE_DIRECTORY: names, keys, lock contents, formats and notes that would move
a terminal's cursor, set its title or turn its text round: none of it reaches stdout, stderr or the log as it
is, and JSON stays JSON.
"""
import json
import os
import re
import subprocess
import sys
import unittest

from command_case import SWALE, CommandCase

# ESC, C1 as UTF-8 (CSI), CSI as a byte, BEL, DEL, a backspace, right-to-left override and isolate.
HOSTILE = b"\x1b[31m\x1b]0;title\x07\xc2\x9b2J\x9b\x7f\x08\xe2\x80\xae\xe2\x81\xa6"
IN_JSON = HOSTILE.replace(b"\x9b\x7f", b"\x7f").decode()  # what a JSON text may have
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


class CommandEscapes(CommandCase):
    def check(self, *arguments, path=None, lines=None, **variables):
        """Runs `swale ARGUMENTS PATH`. Nothing obeyed reaches a terminal; returns what was printed."""
        command = [SWALE, arguments[0], path or self.path, *arguments[1:]]
        done = subprocess.run(command, capture_output=True, timeout=60, check=False,
                              env=dict(os.environ, SWALE_LOG="debug", **variables))
        for name, output in (("stdout", done.stdout), ("stderr", done.stderr)):
            text = output.decode("utf-8")  # bytes that are no UTF-8 fail here
            self.assertIsNone(OBEYED.search(text), (arguments, name, output))
        if lines is not None:
            self.assertEqual(done.stdout.count(b"\n"), lines, done.stdout)
        return done

    def commands(self):
        return (["info"], ["verify"], ["stats"], ["dump"], ["repair"], ["ls"], ["get", "name"],
                ["get", HOSTILE.decode("latin-1")],
                ["scan"], ["scan", "--keep-going"], ["keys"], ["top", "number"], ["unlock", "--dry-run"])

    def hostile_copy(self):
        path = self.copy()
        folder = os.path.join(path.encode(), HOSTILE + b"\nverify: all good")
        os.mkdir(folder)
        for name in os.listdir(path.encode()):
            if name != os.path.basename(folder):
                os.rename(os.path.join(path.encode(), name), os.path.join(folder, name))
        return folder

    def test_a_directory_with_a_hostile_path(self):
        folder = self.hostile_copy()
        for command in self.commands():
            self.check(*command, path=folder)
            self.check(*command, "--json", path=folder)
        done = self.check("verify", path=folder, lines=1)
        self.assertIn(rb"\x1b[31m", done.stdout)
        self.assertIn(rb"\nverify: all good", done.stdout)

    def test_damage_below_a_hostile_path(self):
        folder = self.hostile_copy()
        for name in (b"jobs/0001/stats.jsonl", b"jobs/0001/epochs", b"p000/part-000000.j0001.index",
                     b"p000/part-000000.j0001.data", b"swale.json"):
            with open(os.path.join(folder, name), "r+b") as file:
                file.seek(100)
                file.write(b"\x1b" * 400)
            for command in self.commands():
                self.check(*command, path=folder)

    def test_a_hostile_path_that_is_not_there(self):
        for command in self.commands():
            done = self.check(*command, path=b"/tmp/" + HOSTILE)
            self.assertIn(rb"\x1b[31m", done.stderr + done.stdout)

    def test_what_a_lock_says(self):
        path = self.copy()
        names = ("host", "boot", "pid_namespace", "start_time", "allocation", "job", "since")
        lock = {"counter": "0" * 20, "nonce": "0" * 16, "pid": 1, "lease_s": 10,
                **{name: name + IN_JSON for name in names}}
        for content in (json.dumps(lock, separators=(",", ":")).encode(), HOSTILE, b"{" + HOSTILE):
            with open(os.path.join(path, "swale.lock"), "wb") as file:
                file.write(content + b"\n")
            for arguments in (["unlock", "--dry-run"], ["unlock", "--dry-run", "--json"], ["dump"],
                              ["dump", "--json"], ["verify"]):
                self.check(*arguments, path=path)
            if content.startswith(b'{"'):
                self.assertIn(rb"host\x1b[31m", self.check("unlock", "--dry-run", path=path).stdout)

    def test_what_manifests_say(self):
        for old, new in ((b'"swale-imd"', b'"' + IN_JSON.encode() + b'"'),
                         (b'"hash"', b'"' + IN_JSON.encode() + b'"'),
                         (b'"number"', b'"' + IN_JSON.encode() + b'"'),
                         (b'"u8"', b'"' + IN_JSON.encode() + b'"'),
                         (b'"apples"', b'"' + IN_JSON.encode() + b'"')):
            path = self.copy()
            for name in ("swale.json", "jobs/0001/manifest.json"):
                # JSON forbids bare control characters: as its escapes.
                text = re.sub("[\x00-\x1f]", lambda found: f"\\u{ord(found[0]):04x}", new.decode())
                self.seal(os.path.join(path, name), old, text.encode())
            for command in self.commands():
                self.check(*command, path=path)
                self.check(*command, "--json", path=path)

    def test_arguments(self):
        for arguments in (["--format", HOSTILE], ["--fields", HOSTILE], ["--where", HOSTILE],
                          ["-e", HOSTILE], [HOSTILE]):
            for command in ("scan", "get", "top", "dump"):
                self.check(command, *arguments)
        done = subprocess.run([SWALE, HOSTILE], capture_output=True, timeout=60, check=False)
        self.assertNotIn(b"\x1b", done.stderr + done.stdout)
        done = self.check("verify", SWALE_IO_ENGINE=IN_JSON)
        self.assertIn(rb"\x1b[31m", done.stderr)

    def test_json_is_still_json_and_raw_output_is_exact(self):
        folder = self.hostile_copy()
        (info,) = (json.loads(line) for line in self.check("info", "--json", path=folder).stdout.splitlines())
        self.assertIn("\x1b[31m", info["path"], "JSON has escapes of its own, and programs get the name")
        raw, _ = self.run_swale("get", "name", "--raw", "-e", "0")
        self.assertEqual(raw, "first 0second 0")


unittest.main(argv=sys.argv[:1])
