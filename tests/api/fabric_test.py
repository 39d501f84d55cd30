"""fabric_test.py PROGRAM LIBRARY MODULE SWALE: a fabric is loaded by jobs of several ranks alone, and leaves
no trace.
"""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

PROGRAM, LIBRARY, MODULE, SWALE = sys.argv[1:5]


class Fabric(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.mkdtemp(prefix="swale-test-")
        self.path = os.path.join(self.scratch, "directory")
        self.environment = {name: text for name, text in os.environ.items()
                            if not name.startswith(("UCX_HANDLE", "UCX_DEBUG"))}

    def tearDown(self):
        shutil.rmtree(self.scratch)

    def run_ranks(self, size, library=os.path.dirname(LIBRARY), **variables):
        """What `size` ranks of the program end with: a list of (status, standard error)."""
        environment = dict(self.environment, SWALE_JOB_SIZE=str(size), SWALE_JOB_ID=f"fabric-{os.getpid()}",
                           SWALE_JOB_RENDEZVOUS=os.path.join(self.scratch, "meet"),
                           SWALE_JOB_JOIN_DEADLINE_S="30", LD_LIBRARY_PATH=library, **variables)
        ranks = [subprocess.Popen([PROGRAM, self.path], env=dict(environment, SWALE_JOB_RANK=str(rank)),
                                  stderr=subprocess.PIPE, text=True) for rank in range(size)]
        ends = [rank.communicate(timeout=100) for rank in ranks]
        return [(rank.returncode, end[1]) for rank, end in zip(ranks, ends)]

    def hide_module(self):
        """A folder with the library and without the module."""
        folder = os.path.join(self.scratch, "lib")
        os.mkdir(folder)
        shutil.copy(os.path.realpath(LIBRARY), os.path.join(folder, "libswale.so.0"))
        return folder

    def assert_all_well(self, ends):
        for status, text in ends:
            self.assertEqual((status, text), (0, ""))

    def test_one_rank_loads_no_fabric(self):
        self.assert_all_well(self.run_ranks(1))

    def test_two_ranks_load_it_and_no_signal_is_handled_otherwise(self):
        self.assert_all_well(self.run_ranks(2))

    def test_what_the_user_wants_of_ucx_stays(self):
        for status, text in self.run_ranks(2, UCX_HANDLE_ERRORS="bt", UCX_DEBUG_SIGNO="0"):
            self.assertEqual(status, 1)
            self.assertIn("signal 11", text)
            self.assertNotIn("signal 1 ", text)

    def test_one_process_needs_no_fabric(self):
        folder = self.hide_module()
        self.assert_all_well(self.run_ranks(1, library=folder))
        shown = subprocess.run([SWALE, "info", self.path], capture_output=True, text=True, timeout=60,
                               env=dict(self.environment, LD_LIBRARY_PATH=folder))
        self.assertEqual(shown.returncode, 0, shown.stderr)
        self.assertIn("1 epoch", shown.stdout)

    def test_without_the_module_several_ranks_are_told_what_is_missing(self):
        folder = self.hide_module()
        for status, text in self.run_ranks(2, library=folder):
            self.assertEqual(status, 1)
            for part in ("libswale-ucx.so", folder, "install it beside libswale"):
                self.assertIn(part, text)

    def test_a_damaged_module_is_named(self):
        folder = self.hide_module()
        with open(os.path.join(folder, os.path.basename(MODULE)), "w", encoding="utf-8") as file:
            file.write("not a library")
        for status, text in self.run_ranks(2, library=folder):
            self.assertEqual(status, 1)
            self.assertIn(os.path.join(folder, "libswale-ucx.so"), text)

    def test_neither_library_nor_command_is_linked_with_ucx(self):
        for file in (LIBRARY, SWALE):
            needed = subprocess.run(["readelf", "-d", file], check=True, capture_output=True,
                                    text=True).stdout
            self.assertNotIn("libuc", needed)
        symbols = subprocess.run(["nm", "-D", "--defined-only", MODULE], check=True, capture_output=True,
                                 text=True).stdout
        self.assertEqual([line.split()[-1].split("@")[0] for line in symbols.splitlines()], ["swale_fabric"])


unittest.main(argv=sys.argv[:1])
