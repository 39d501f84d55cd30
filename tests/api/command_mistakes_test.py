"""command_mistakes_test.py SWALE MAKE_DIRECTORY: what the `swale` command says to people who mistype, and to shells that do.

What cannot be meant is refused before anything is printed, and the message names it.
"""
import json
import subprocess
import sys
import unittest

from command_case import SWALE, CommandCase


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


unittest.main(argv=sys.argv[:1], verbosity=2)
