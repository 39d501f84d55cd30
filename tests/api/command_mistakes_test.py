"""command_mistakes_test.py SWALE MAKE_DIRECTORY: what the `swale` command says to people who mistype, and to shells that do.

What cannot be meant is refused before anything is printed, and the message names it.
"""
import json
import os
import subprocess
import sys
import unittest

from command_case import MAKE_DIRECTORY, SWALE, CommandCase


class Mistakes(CommandCase):
    def refusal(self, *arguments, expect=2, **keywords):
        out, err = self.run_swale(*arguments, expect=expect, **keywords)
        self.assertEqual(out, "", arguments)
        return err

    def test_an_empty_value_of_an_option_is_not_taken_for_none(self):
        # As --epoch "$last" where the shell knows no such variable: all epochs would be another answer.
        for command, *rest in (("get", "name", "--epoch", ""), ("get", "name", "--step", ""), ("get", "name", "--time", ""),
                               ("get", "name", "--fields", ""), ("get", "name", "--keys", ""), ("get", "name", ""),
                               ("scan", "--where", ""), ("scan", "-w", ""), ("scan", "--limit", ""), ("scan", "-j", ""),
                               ("scan", "--format", ""), ("keys", "--epoch", ""), ("keys", "--seed", ""), ("ls", "-e", ""),
                               ("ls", ""), ("top", "number", "-k", ""), ("top", "number", "-e", ""), ("top", ""),
                               ("stats", "-e", ""), ("verify", "--problems", ""), ("dump", "-n", "")):
            self.assertIn("empty", self.refusal(command, *rest), (command, rest))
        done = subprocess.run([SWALE, "info", ""], capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("PATH: is empty", done.stderr)
        self.assertEqual(self.run_config("--check", "")[0], "fine\n", "a program may give no options")

    def test_two_formats_at_once_are_refused(self):
        for command, *rest in (("get", "name", "--raw", "--json"), ("scan", "--format", "csv", "--json"),
                               ("top", "number", "--raw", "--format", "json")):
            self.assertIn("one format", self.refusal(command, *rest), (command, rest))
        self.assertEqual(self.run_swale("get", "name", "--json", "--format", "json"), self.run_swale("get", "name", "--json"))
        self.assertEqual(self.run_swale("get", "name", "--raw", "--format", "raw"), self.run_swale("get", "name", "--raw"))

    def test_every_line_of_json_is_json_whatever_the_columns_are_called(self):
        for column in ("number\n+ 1", "number\t+ 1", '"\\" '):
            (first, *_) = self.objects("scan", "-n", "2", "--fields", column)
            self.assertEqual(list(first), [column.strip(" ")])
        done = subprocess.run([SWALE, "scan", self.path, "-n", "1", "--json", "--fields", b"'\xff'"], capture_output=True,
                              timeout=60, check=True)
        self.assertEqual(len(json.loads(done.stdout.decode("utf-8"))), 1, "bytes that are no text")

    def test_a_time_that_is_shown_can_be_asked_for(self):
        path = os.path.join(self.scratch, "late")
        subprocess.run([MAKE_DIRECTORY, path, "20000001", "1"], check=True, timeout=60)
        self.assertIn(" 10000000.5 ", self.run_swale("info", path=path)[0])
        self.assertEqual(len(self.lines("get", "name", "--time", "10000000.5", path=path)), 2)
        self.assertIn("the nearest is 10000000.5, of epoch 0", self.refusal("get", "name", "--time", "1e7", path=path))


unittest.main(argv=sys.argv[:1], verbosity=2)
