"""`swale report`: a page that shows what there is, stays small, and takes no name for its own language.

What a browser makes of it: tests_outside/test_browser.py.
"""
from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import EPOCHS, RECORDS, damaged_copy
from test_commands import run as command
from test_hostile_names import NAMES, UNITS, hostile  # noqa: F401: a fixture

import swale
from swale import _report
from swale._report import facts

TAGS = {"html", "head", "meta", "title", "style", "body", "header", "h1", "p", "main", "noscript", "script"}


class Page(HTMLParser):
    """What a browser sees of a page before scripts run. Refuses what is not ours, or would fetch."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.texts: dict[str, list[str]] = {}
        self.policy = ""
        self._inside = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        assert tag in TAGS, tag
        for name, value in attrs:
            assert not name.startswith("on") and name not in ("src", "href", "srcset", "style"), (tag, name)
            if name == "content" and "default-src" in value:
                self.policy = value
        self._inside = dict(attrs).get("id", tag)

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.setdefault(self._inside, []).append(data)

    @property
    def facts(self) -> Any:
        return json.loads("".join(self.texts["facts"]))


def page_of(directory: swale.Directory, tmp_path: Path, **more: Any) -> Page:
    size = directory.report(tmp_path / "report.html", **more)
    written = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert len(written.encode()) == size <= 2_000_000
    page = Page(written)
    for kind in ("style", "script"):
        [text] = page.texts[kind]
        told = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{told}'" in page.policy
    assert "default-src 'none'" in page.policy
    [foreign] = page.texts["facts"]
    assert written.replace(foreign, "").count("://") == 1, "the name of SVG"
    return page


def test_it_shows_what_the_job_wrote(run: str, tmp_path: Path) -> None:
    with swale.open(run) as d:
        found = page_of(d, tmp_path, keys=[3, 7]).facts
        cost = d.epoch_stats(1)
    assert found["records"] == RECORDS * EPOCHS and found["epochs"] == EPOCHS and found["key_type"] == "u64"
    assert found["fields"] == [["x", "f8", 1, "m"], ["v", "f4", 3, ""], ["id", "u4", 1, ""]]
    costs = found["costs"]
    assert costs["known"] == EPOCHS and costs["step"] == [0, 10, 20, 30] and costs["ranks"] == [1] * EPOCHS
    assert costs["sum"]["index.records"] == [RECORDS] * EPOCHS
    assert costs["spread"]["index.records"] == [1] * EPOCHS
    assert costs["sum"]["write.data"][1] == cost["write.data"]["sum"] > 0
    assert costs["slowest"]["sort.time"][1] == pytest.approx(cost["sort.time"]["max"] / 1e9, rel=1e-5)
    sizes = {kind: sum(file.stat().st_size for file in Path(run).rglob(f"*.{kind}"))
             for kind in ("data", "index")}
    assert {kind: found["files"][kind] for kind in sizes} == sizes
    index = found["index"]
    assert index["keys"] == 256 and index["found"] == index["lookups"] == 256 * EPOCHS and index[
        "requests"] > 0
    told = found["trajectories"]
    assert told["keys"] == ["3", "7"] and told["epochs"] == [0, 1, 2, 3] and told["times"] == [0, 0.5, 1, 1.5]
    values = dict(zip((name for name, _ in told["fields"]), told["values"]))
    assert values["x"] == [[None] * EPOCHS, [7, 1007, 2007, 3007]]
    assert values["v[0]"][0] == [None] * EPOCHS and values["v[2]"][1] == [23] * EPOCHS


def test_it_is_bounded_however_long_the_run_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "GROUPS_MAX", 7)
    monkeypatch.setattr(facts, "NUMBERS_MAX", 60)
    with swale.create(tmp_path / "long", schema=np.dtype([("a", "f8")]), key="u64") as out:
        for epoch in range(40):
            out.append_many(np.arange(3, dtype="u8"), np.full(3, epoch, dtype=[("a", "f8")]))
            out.epoch_end(epoch)
    with swale.open(tmp_path / "long") as d:
        found = page_of(d, tmp_path).facts
        costs, told = found["costs"], found["trajectories"]
        assert costs["each"] == 6 and costs["first"] == [0, 6, 12, 18, 24, 30, 36] and costs["known"] == 40
        assert costs["records"] == [18] * 6 + [12] == costs["sum"]["index.records"]
        assert len(told["epochs"]) == 20 and told["epochs"][0] == 0
        assert told["epochs"][-1] == 39 and told["of"] == 40
        assert told["values"][0][0] == told["epochs"]
        monkeypatch.setattr(_report, "BYTES_MAX", 1000)
        with pytest.raises(ValueError, match="choose fewer keys"):
            d.report(tmp_path / "large.html")
    assert not (tmp_path / "large.html").exists()


def test_nothing_to_show_is_shown(tmp_path: Path, texts: str) -> None:
    swale.create(tmp_path / "empty", key="u64").close()
    with swale.open(tmp_path / "empty") as d:
        found = page_of(d, tmp_path).facts
        assert found["costs"]["first"] == [] and found["index"] is None and found["trajectories"] is None
    with swale.open(texts) as d:
        found = page_of(d, tmp_path).facts
        assert found["fields"] == [] and found["trajectories"] is None and found["index"]["found"] == 6


def test_a_run_whose_costs_are_lost(run: str, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(run, tmp_path / "copy")
    for file in (tmp_path / "copy").rglob("stats.jsonl"):
        file.unlink()
    with swale.open(tmp_path / "copy") as d:
        costs = page_of(d, tmp_path).facts["costs"]
    assert costs["known"] == 0 and costs["sum"]["write.data"] == [None] * EPOCHS
    assert sum(costs["records"]) == 2000


def test_damage_of_the_index_is_part_of_the_report(run: str, tmp_path: Path) -> None:
    index = next(Path(run).rglob("*.index"))
    path = damaged_copy(run, tmp_path / "bad", str(index.relative_to(run)), index.stat().st_size // 3)
    with swale.open(path) as d:
        found = facts.index_health(d)
        shown = page_of(d, tmp_path).facts
    assert shown["index"] == found and index.name in shown["trajectories"]["failure"]
    assert found is not None and index.name in found["failure"] and "checksum" in found["failure"]


def test_hostile_names_are_texts(hostile: str, tmp_path: Path) -> None:  # noqa: F811
    with swale.open(hostile) as d:
        page = page_of(d, tmp_path, keys=NAMES)
    found = page.facts
    assert found["path"].endswith("<script>$d$") and [unit for *_, unit in found["fields"]] == ["$x²<b>&",
                                                                                                UNITS["b"]]
    shown = found["trajectories"]["keys"]
    assert shown == [facts.text(name, 60) for name in NAMES] and NAMES[0] in shown and NAMES[3] in shown
    assert all(each.isprintable() and len(each) <= 60 for each in shown)
    assert not set("<>&'\u2028") & set("".join(page.texts["facts"]))


def test_canary_a_name_that_ends_its_element_is_seen(monkeypatch: pytest.MonkeyPatch,
                                                     hostile: str,  # noqa: F811
                                                     tmp_path: Path) -> None:
    monkeypatch.setattr(_report, "_HARMLESS", {})
    with swale.open(hostile) as d, pytest.raises(AssertionError, match="img|script|style"):
        assert page_of(d, tmp_path, keys=NAMES).facts, "script"


def test_the_command(run: str, tmp_path: Path) -> None:
    out, _ = command("report", run, "--top", "x", "-k", 3, "--fields", "x,v[1]", folder=tmp_path)
    assert re.fullmatch(r"swale-report.html: \d+ kB\n", out)
    told = Page((tmp_path / "swale-report.html").read_text(encoding="utf-8")).facts["trajectories"]
    assert told["keys"] == ["499", "498", "497"] and told["fields"] == [["x", "m"], ["v[1]", ""]]
    _, err = command("report", run, 7000, "-o", tmp_path / "a.html", expect=1)
    assert "key 7000: not found" in err
    _, err = command("report", run, "--fields", "y", expect=2, folder=tmp_path)
    assert "did you mean" in err
    _, err = command("report", run, "-o", tmp_path / "no" / "a.html", expect=3)
    assert "does not exist" in err and not (tmp_path / "a.html").exists()
