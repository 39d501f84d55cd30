"""command_mistakes_test.py SWALE MAKE_DIRECTORY: what the `swale` command says to people who mistype, and to
shells that do.

What cannot be meant is refused before anything is printed, and the message names it.
"""
import json
import os
import shutil
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
        for command, *rest in (("get", "name", "--epoch", ""), ("get", "name", "--step", ""),
                               ("get", "name", "--time", ""),
                               ("get", "name", "--fields", ""), ("get", "name", "--keys", ""),
                               ("get", "name", ""),
                               ("scan", "--where", ""), ("scan", "-w", ""), ("scan", "--limit", ""),
                               ("scan", "-j", ""),
                               ("scan", "--format", ""), ("keys", "--epoch", ""), ("keys", "--seed", ""),
                               ("ls", "-e", ""),
                               ("ls", ""), ("top", "number", "-k", ""), ("top", "number", "-e", ""),
                               ("top", ""),
                               ("stats", "-e", ""), ("verify", "--problems", ""), ("dump", "-n", "")):
            self.assertIn("empty", self.refusal(command, *rest), (command, rest))
        done = subprocess.run([SWALE, "info", ""], capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("PATH: is empty", done.stderr)
        self.assertEqual(self.run_config("--check", "")[0], "fine\n", "a program may give no options")

    def test_every_complaint_says_which_program_complains(self):
        for words in ((), ("get",), ("scan", self.path, "--loud"), ("ls", self.path, "-e", "x"),
                      ("ls", self.path, "-e", "1", "-e", "2"),
                      ("get", self.path, "name", "--hex", "--u64"), ("top", self.path, "number", "-k", "0"),
                      ("sing",),
                      ("completion", "tcsh"), ("tier", "make", "x", "y", "--size", "1")):
            done = subprocess.run([SWALE, *words], capture_output=True, text=True, timeout=60)
            self.assertEqual((done.returncode, done.stdout), (2, ""), words)
            self.assertTrue(done.stderr.startswith("swale: "), done.stderr)

    def test_two_formats_at_once_are_refused(self):
        for command, *rest in (("get", "name", "--raw", "--json"), ("scan", "--format", "csv", "--json"),
                               ("top", "number", "--raw", "--format", "json")):
            self.assertIn("one format", self.refusal(command, *rest), (command, rest))
        self.assertEqual(self.run_swale("get", "name", "--json", "--format", "json"),
                         self.run_swale("get", "name", "--json"))
        self.assertEqual(self.run_swale("get", "name", "--raw", "--format", "raw"),
                         self.run_swale("get", "name", "--raw"))

    def test_every_line_of_json_is_json_whatever_the_columns_are_called(self):
        for column in ("number\n+ 1", "number\t+ 1", '"\\" '):
            (first, *_) = self.objects("scan", "-n", "2", "--fields", column)
            self.assertEqual(list(first), [column.strip(" ")])
        done = subprocess.run([SWALE, "scan", self.path, "-n", "1", "--json", "--fields", b"'\xff'"],
                              capture_output=True, timeout=60, check=True)
        self.assertEqual(len(json.loads(done.stdout.decode("utf-8"))), 1, "bytes that are no text")

    def test_a_directory_may_be_called_as_a_command_is(self):
        for name in ("tier", "meta"):
            shutil.copytree(self.path, os.path.join(self.scratch, name))

        def here(*words):
            return subprocess.run([SWALE, *words], capture_output=True, text=True, timeout=60,
                                  cwd=self.scratch)
        self.assertEqual(here("get", "tier", "stats").stderr.split(";")[0], "swale: stats: not found in any "
                         "epoch")
        self.assertEqual(here("ls", "tier", "mount").returncode, 1, "a pattern that nothing matches")
        self.assertEqual(here("get", "meta", "name").returncode, 0)
        self.assertEqual(here("meta", "info", "tier").returncode, 0)
        for words in (("help", "tier", "stats"), ("tier", "stats", "--help"), ("help", "tier-stats")):
            self.assertEqual(here(*words).stdout, here("tier-stats", "--help").stdout)

    def test_a_time_that_is_shown_can_be_asked_for(self):
        path = os.path.join(self.scratch, "late")
        subprocess.run([MAKE_DIRECTORY, path, "20000001", "1"], check=True, timeout=60)
        self.assertIn(" 10000000.5 ", self.run_swale("info", path=path)[0])
        self.assertEqual(len(self.lines("get", "name", "--time", "10000000.5", path=path)), 2)
        self.assertIn("the nearest is 10000000.5, of epoch 0",
                      self.refusal("get", "name", "--time", "1e7", path=path))

    def test_what_is_not_there_or_no_directory_is_said_so(self):
        nowhere, file = os.path.join(self.scratch, "nowhere"), os.path.join(self.scratch, "file")
        with open(file, "w", encoding="ascii") as some:
            some.write("text")
        self.assertIn("no such file or directory", self.refusal("dump", path=nowhere, expect=3))
        self.assertIn("no massive directory there", self.refusal("scan", path=nowhere, expect=3))
        for command in (("info",), ("scan",), ("get", "name"), ("verify",), ("stats",)):
            for path in (file, os.path.join(self.path, "swale.json")):
                self.assertIn("is a file", self.refusal(*command, path=path), command)

    @unittest.skipUnless(os.path.exists("/dev/full"), "needs /dev/full")
    def test_help_that_cannot_be_written_is_a_failure(self):
        for words in (("--help",), ("get", "--help"), ("--version",)):
            with open("/dev/full", "w", encoding="ascii") as full:
                done = subprocess.run([SWALE, *words], stdout=full, stderr=subprocess.PIPE, timeout=60)
            self.assertEqual(done.returncode, 3, words)
            self.assertIn(b"No space left on device", done.stderr)

    def test_what_is_printed_into_a_closed_stream_goes_into_no_file(self):
        # The lock of a pass would have the number of the standard output, and then the plan of the pass.
        for closed in ("0", "1", "2", "0 1 2"):
            path = self.copy()
            close = " ".join(f"{number}>&-" for number in closed.split())
            done = subprocess.run(["sh", "-c", f'exec "$0" optimize "$1" {close}', SWALE, path],
                                  capture_output=True, timeout=60)
            self.assertEqual(done.returncode, 3 if "1" in closed else 0, (closed, done.stderr))
            self.assertNotIn(b"overwritten", done.stderr)
            if closed == "1":
                self.assertIn(b"standard output: Bad file descriptor", done.stderr)
            self.assertIn("1 clusters", self.run_swale("verify", path=path)[0])


unittest.main(argv=sys.argv[:1], verbosity=2)
