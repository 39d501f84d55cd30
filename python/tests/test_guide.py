"""The guide's page (docs/guide/python.md), run as it stands."""
from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "python.md"
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
CODE = re.compile(r"^```pycon\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHELL = re.compile(r"^```shell\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def run_text(text: str, name: str) -> int:
    test = doctest.DocTestParser().get_doctest(text, {}, name, name, 0)
    told: list[str] = []
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    runner.run(test, out=told.append)
    assert not told, "".join(told)
    return len(test.examples)


def test_the_page_says_what_happens(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = "\n".join(CODE.findall(PAGE.read_text(encoding="utf-8")))
    assert run_text(text, "python.md") > 25


def test_the_commands_print_what_the_page_says(tmp_path: Path) -> None:
    """In a shell that finds `swale` (scripts/test-python.sh says where) and the package's programs."""
    folders = [os.environ["SWALE_COMMANDS"], str(Path(sys.executable).parent), os.environ["PATH"]]
    run = 0
    for block in SHELL.findall(PAGE.read_text(encoding="utf-8")):
        for command, expected in re.findall(r"^\$ (.*\n)((?:(?!\$ ).*\n)*)", block, re.MULTILINE):
            done = subprocess.run(command, shell=True, capture_output=True, text=True, cwd=tmp_path,
                                  timeout=120, env={**os.environ, "PATH": ":".join(folders)})
            got = done.stdout + done.stderr
            assert doctest.OutputChecker().check_output(expected, got, FLAGS), (command, expected, got)
            run += 1
    assert run >= 5 and {"flung.png", "energy.pdf", "17.svg"} <= {each.name for each in tmp_path.iterdir()}


def test_a_page_that_is_wrong_is_noticed() -> None:
    with pytest.raises(AssertionError, match="Expected"):
        run_text(">>> 1 + 1\n3\n", "canary")
