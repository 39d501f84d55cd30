"""Names that another user chose: no picture, notebook or file takes them for its own language."""
from __future__ import annotations

import csv
import os
import subprocess
import unicodedata
import warnings
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import swale
from swale import _plots

NAMES = ["</text><script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "--><script>x</script><!--",
         "]]>&#60;",
         r"$\frac{a}{", "$x$ and $y_$", r"\$\$\alpha$", "a\x00b\x1b[31mc\x7f\x85", "two\nlines\ttab\r",
         "\u202eright to left", "=HYPERLINK(\"http://x\")", "+1", "-1", "@a", "'a", '"', '""', ",",
         "_private", "ﬀ\ufffe", "x" * 255]
UNITS = {"a": "$x^2<b>&", "b": "</text><script>"}


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("hostile") / "<script>$d$"
    with swale.create(path, schema=np.dtype([("a", "f8"), ("b", "f8")]), key="text", units=UNITS) as out:
        for epoch in range(3):
            for i, name in enumerate(NAMES):
                out.append(name, (float(i), float(epoch)))
            out.epoch_end(epoch, 1e-300 * epoch)
    return str(path)


def own_texts(figure: Any) -> list[Any]:
    """All texts but those of Matplotlib's own numbers."""
    from matplotlib.text import Text

    return [each for each in figure.findobj(Text) if "mathdefault" not in each.get_text()]


def expect_harmless(figure: Any, path: Path) -> None:
    from matplotlib import rc_context

    for fonts in ("path", "none"):  # texts as outlines, with the text in comments; and as texts
        with rc_context({"svg.fonttype": fonts}), warnings.catch_warnings():
            warnings.simplefilter("error")  # "constrained_layout not applied"
            _plots.save(figure, path / "a.svg")
        written = (path / "a.svg").read_bytes()
        root = ElementTree.fromstring(written)  # well formed
        for element in root.iter():
            assert element.tag.split("}")[-1] not in ("script", "img", "foreignObject", "a"), element.tag
            assert not any(name.startswith("on") for name in element.attrib)
        assert b"<script" not in written and len(written) < 2_000_000
    for text in own_texts(figure):
        assert not text._preprocess_math(text.get_text())[1], f"{text.get_text()!r} would be a formula"
        assert len(text.get_text()) < 200
    _plots.save(figure, path / "a.png")
    _plots.save(figure, path / "a.pdf")


def test_pictures_of_hostile_keys_units_and_conditions(hostile: str, tmp_path: Path) -> None:
    with swale.open(hostile) as d:
        for some in (NAMES[:11], NAMES[11:]):
            expect_harmless(d.plot(some, path=("a", "b")), tmp_path)
        expect_harmless(d.plot(NAMES), tmp_path)
        for name in ("$x$", "</text><script>", "x" * 3000, "\x1b[31m"):
            expect_harmless(d.histogram("a", where=f'key != "{name}"'.replace("\x1b", "\\x1b")), tmp_path)


def test_canary_a_formula_and_a_script_are_seen(tmp_path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure()
    figure.subplots().set_title("$x$")
    with pytest.raises(AssertionError, match="formula"):
        expect_harmless(figure, tmp_path)


def test_the_command_draws_them_too(hostile: str, tmp_path: Path) -> None:
    from swale.__main__ import main

    told = main(["plot", hostile, "--top", "a", "-k", "9", "-o", str(tmp_path / "top.svg")])
    assert told == 0 and ElementTree.fromstring((tmp_path / "top.svg").read_bytes()) is not None


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.seen.add(tag)
        assert not attrs


def test_notebooks_and_terminals_show_them_as_text(hostile: str) -> None:
    with swale.open(hostile) as d:
        table = d.scan(epochs=0)
        for shown in (d._repr_html_(), table._repr_html_(), d.get_many(NAMES, epochs=0)._repr_html_()):
            tags = Tags()
            tags.feed(shown)
            assert tags.seen <= {"p", "b", "table", "thead", "tbody", "tr", "th", "td"}, tags.seen
        for shown in (repr(d), repr(table), repr(d.get_many(NAMES[7:10], epochs=0))):
            assert all(letter.isprintable() or letter == "\n" for letter in shown), repr(shown)


def test_csv_has_them_quoted_and_unchanged(hostile: str, tmp_path: Path) -> None:
    """As RFC 4180 says. A text that begins like a formula stays as it is: the guide says so."""
    with swale.open(hostile) as d:
        rows = d.export(tmp_path / "a.csv", epochs=0, columns=["key", "a"])
    with open(tmp_path / "a.csv", newline="", encoding="utf-8") as file:
        read = list(csv.reader(file))
    assert rows == len(NAMES) and sorted(row[0] for row in read[1:]) == sorted(NAMES)
    assert all(row == [NAMES[int(float(row[1]))], row[1]] for row in read[1:])


def test_the_commands_csv_has_one_row_for_each_record(hostile: str) -> None:
    swale_command = os.path.join(os.environ.get("SWALE_COMMANDS", ""), "swale")
    if not os.path.exists(swale_command):
        pytest.skip("SWALE_COMMANDS names no folder of the commands")
    said = subprocess.run([swale_command, "scan", hostile, "--epoch", "0", "--fields", "key,a", "--format",
                           "csv"],
                          check=True, capture_output=True).stdout.decode()
    told = [letter for letter in said if unicodedata.category(letter) in ("Cc", "Cf") and letter != "\n"]
    assert not told, "control characters and directions reach the terminal"
    read = list(csv.reader(said.splitlines(keepends=True)))
    assert len(read) == 1 + len(NAMES) and all(len(row) == 2 for row in read)
    texts = {row[0] for row in read}
    assert {"=HYPERLINK(\"http://x\")", "+1", "-1", "@a", '"', '""', ",",
            "</text><script>alert(1)</script>"} <= texts
