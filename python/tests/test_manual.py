"""Manual pages of the commands: the wheel installs them, they are made from what makes --help, and groff and
mandoc have no complaints.
"""
from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from swale.__main__ import command, names

INSTALLED = Path(sys.prefix) / "share" / "man" / "man1"


def the_maker() -> ModuleType:
    """python/manual.py, which is no part of the package."""
    path = Path(__file__).parents[1] / "manual.py"
    spec = importlib.util.spec_from_file_location("manual", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


maker = the_maker()


def undated(page: str) -> str:
    return re.sub(r"^(\.TH \S+ 1) \d{4}-\d\d-\d\d ", r"\1 DATE ", page)


def test_every_command_has_a_page_and_no_other_is_installed() -> None:
    made = maker.pages("2026-11-28")
    assert sorted(made) == [f"swale-{name}.1" for name in names()]
    assert sorted(file.name for file in INSTALLED.glob("swale*")) == sorted(made)
    for file, page in made.items():
        installed = (INSTALLED / file).read_text(encoding="ascii")
        assert undated(installed) != installed, "a page has the date of its making"
        assert undated(installed) == undated(page), f"{file} is not of this tree's {file[:-2]}"


@pytest.mark.parametrize("name", names())
def test_a_page_has_what_the_help_has(name: str) -> None:
    parser = command(name).parser()
    help_, page = parser.format_help(), (INSTALLED / f"swale-{name}.1").read_text(encoding="ascii")
    shown = page.replace("\\-", "-").replace("\\fB", "").replace("\\fI", "").replace("\\fR", "")
    options = re.findall(r"--[a-z][a-z-]*", help_.split("options:")[1].split("examples:")[0])
    assert "--help" in options
    for option in options:
        assert option in shown
    # Words, as each fills its lines in its own way.
    words = " ".join(shown.replace("\\&", "").split())
    for action in parser._actions:
        assert " ".join(maker.expanded(parser, action).split()) in words
        assert " ".join(maker.expanded(parser, action).split()) in " ".join(help_.split())
    for example, what in parser.examples:
        assert example in shown and what in words and example in help_ and what in help_
    assert parser.summary in words and re.search(rf"^usage: swale {name} ", help_)


def complaints_of_groff(page: str) -> str:
    return subprocess.run(["groff", "-K", "utf8", "-man", "-ww", "-z", "-T", "utf8"], input=page,
                          capture_output=True, text=True, timeout=60).stderr


def complaints_of_mandoc(page: str) -> str:
    done = subprocess.run(["mandoc", "-T", "lint", "-W", "warning"], input=page, capture_output=True,
                          text=True, timeout=60)
    # It looks for the pages that are named, on this machine.
    return "\n".join(line for line in done.stdout.splitlines() if "referenced manual not found" not in line)


@pytest.mark.parametrize("complaints_of", [complaints_of_groff, complaints_of_mandoc])
def test_the_formatters_have_no_complaints(complaints_of: Callable[[str], str]) -> None:
    program = complaints_of.__name__.rpartition("_")[2]
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    for name in names():
        page = (INSTALLED / f"swale-{name}.1").read_text(encoding="ascii")
        assert complaints_of(page) == "", name
        # The canary: a request that does not exist, and one that lacks its argument.
        assert complaints_of(page + ".XY\n.so\n") != ""


def test_text_that_troff_would_obey_is_escaped() -> None:
    assert maker.escaped(".so a\n'b -c \\d") == "\\&.so a\n\\&'b \\-c \\ed"
    with pytest.raises(ValueError, match="ASCII"):
        maker.escaped("\u00e4")
