"""outside_commands_test.py SWALE MAKE_DIRECTORY: `swale NAME` runs swale-NAME, and `swale top --plot` hands
keys to swale-plot.
"""
import os
import shutil
import subprocess
import unittest

from command_case import SWALE, CommandCase

SAYS = '#!/bin/sh\nprintf "%s|" "$@"\nexit 7\n'  # its arguments


class OutsideCommands(CommandCase):
    def setUp(self):
        self.folder = os.path.join(self.scratch, self.id())
        os.mkdir(self.folder)

    def program(self, name, text=SAYS, mode=0o755, folder=None):
        path = os.path.join(folder or self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, mode)

    def run_words(self, *words, path=None, program=os.path.abspath(SWALE), cwd=None):
        done = subprocess.run([program, *words], capture_output=True, text=True, timeout=60, cwd=cwd,
                              env={**os.environ, "PATH": self.folder if path is None else path})
        return done.returncode, done.stdout, done.stderr

    def test_a_program_in_path_is_run_with_the_words(self):
        self.program("swale-sing")
        self.assertEqual(self.run_words("sing", "a b", "", "--loud"), (7, "a b||--loud|", ""))
        self.assertEqual(self.run_words("help", "sing"), (7, "--help|", ""))

    def test_our_own_commands_go_before(self):
        self.program("swale-config")
        self.assertEqual(self.run_words("config", "--check", "imd.ways=1"), (0, "fine\n", ""))

    def test_what_is_no_program_is_not_run(self):
        self.program("swale-sing", mode=0o644)
        self.program("swale-up")
        for words, path in ((("sing",), None), (("../up",), None), (("Up",), None), (("up",), "."),
                            (("up",), "")):
            code, out, err = self.run_words(*words, path=path, cwd=self.folder)
            self.assertEqual((code, out), (2, ""), words)
            self.assertIn("no command", err)

    def test_a_program_beside_goes_before_those_in_path(self):
        beside = os.path.join(self.folder, "bin")
        os.mkdir(beside)
        shutil.copy(SWALE, beside)
        self.program("swale-plot", text="#!/bin/sh\necho beside\n", folder=beside)
        self.program("swale-plot")
        self.assertEqual(self.run_words("plot", program=os.path.join(beside, "swale"))[:2], (0, "beside\n"))

    def test_without_the_package_it_is_named(self):
        for words in (("plot", self.path, "x"), ("example", "d"), ("histogram",),
                      ("top", self.path, "number", "--plot", "a.png")):
            code, out, err = self.run_words(*words)
            self.assertEqual((code, out), (3, ""), words)
            self.assertIn("Python package swale-io, which is not installed", err)
            self.assertEqual(err.count("\n"), 1)

    def test_a_program_that_cannot_be_started_is_a_failure(self):
        self.program("swale-sing", text="#!/no/such/program\n")
        code, out, err = self.run_words("sing")
        self.assertEqual((code, out), (3, ""))
        self.assertIn("swale-sing", err)

    def test_top_draws_the_keys_that_it_has_found(self):
        self.program("swale-plot")
        code, out, _ = self.run_words("top", self.path, "number", "-k", "3", "--smallest", "--plot", "a.png")
        self.assertEqual(code, 7)
        self.assertEqual(out, f"--output=a.png|--fields=number|--|{self.path}|" +
                         "".join(f"0x{n:02x}00000000000000|" for n in range(3)))
        code, _, err = self.run_words("top", self.path, "number", "-k", "1001", "--plot", "a.png")
        self.assertEqual(code, 2)
        self.assertIn("1000 at most", err)

    def test_top_prints_trajectories(self):
        lines = self.lines("top", "number", "-k", "2", "--smallest", "--trajectories", "--u64")
        self.assertEqual([line.split("\t")[:3] for line in lines],
                         [[f"u64:{n}", str(epoch), str(100 * epoch + n)] for n in range(2)
                          for epoch in range(3)])
        # A key that is among the best of several epochs has one trajectory.
        found = self.objects("top", "number", "--epochs", ":", "-k", "3", "--smallest", "--trajectories",
                             "-f", "epoch,number")
        self.assertEqual(found, [{"epoch": epoch, "number": 100 * epoch + n} for n in range(3)
                                 for epoch in range(3)])
        table = self.lines("top", "number", "-k", "1", "--smallest", "--trajectories", "--fields",
                           "step,number", "--format", "csv")
        self.assertEqual(table, ["step,number", "0,0", "10,100", "20,200"])


if __name__ == "__main__":
    unittest.main(argv=["outside_commands_test"])
