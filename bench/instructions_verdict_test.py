"""instructions_verdict_test.py PROGRAMS: the works of instructions.py run, and a build that takes more than
its bound is said to. The counts are a valgrind's of our own: none is installed for the tests.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import instructions  # noqa: E402

PROGRAMS = pathlib.Path(sys.argv[1])
VALGRIND = """#!/bin/sh
case "$*" in *fail*) echo broken >&2; exit 3;; esac
while [ "$1" != --count ]; do case "$1" in */new/*) each=$NEW;; */old/*) each=1000;; esac; shift; done
echo "==1== Collected : $((7777 + each * $2))" >&2
"""


class Works(unittest.TestCase):
    def test_each_work_of_fixed_work_runs_and_gets_right_answers(self):
        with tempfile.TemporaryDirectory(prefix="swale-test-") as out:
            build = instructions.Build("new", PROGRAMS, pathlib.Path(out))
            for work in instructions.WORKS:
                if "fixed_work" not in work.words:
                    continue
                with self.subTest(work.name):
                    words = [word.replace("200000", "640") for word in build.words(work, 64)]
                    if not work.needs:
                        words[words.index("--count") + 1] = "640"
                    subprocess.run(words, check=True, capture_output=True, timeout=100)

    def test_a_directory_with_other_records_is_noticed(self):
        with tempfile.TemporaryDirectory(prefix="swale-test-") as out:
            program = [PROGRAMS / "bench_fixed_work", "--path", out + "/d", "--work"]
            subprocess.run([*program, "imd-write", "--count", "640"], check=True, capture_output=True)
            for work in ("imd-scan", "imd-get"):
                done = subprocess.run([*program, work, "--count", "600", "--records", "700"],
                                      capture_output=True, text=True)
                self.assertEqual(done.returncode, 1, work)


class Verdicts(unittest.TestCase):
    def judge(self, new, folder="new"):
        with tempfile.TemporaryDirectory(prefix="swale-test-") as scratch:
            out = pathlib.Path(scratch)
            (out / "valgrind").write_text(VALGRIND, encoding="utf-8")
            (out / "valgrind").chmod(0o755)
            environment = dict(os.environ, PATH=f"{out}:{os.environ['PATH']}", NEW=str(new))
            done = subprocess.run([sys.executable, HERE / "instructions.py", out / "old", out / folder, out,
                                   "--only", "rpc"], env=environment, capture_output=True, text=True)
            kept = out / "instructions.json"
            rows = json.loads(kept.read_text(encoding="utf-8"))["rows"] if kept.exists() else []
            return done.returncode, [row["value"] for row in rows]

    def test_three_percent_are_allowed_and_more_are_not(self):
        self.assertEqual(self.judge(1030), (0, [1.03]))
        self.assertEqual(self.judge(1031), (1, [1.031]))
        self.assertEqual(self.judge(900), (0, [0.9]))

    def test_a_program_that_fails_is_no_figure(self):
        self.assertEqual(self.judge(1000, "fail"), (2, []))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
