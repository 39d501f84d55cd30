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
