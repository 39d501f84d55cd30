"""The notebook's code, in the order of its cells. In Jupyter itself: tests_outside/test_notebook.py."""
from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parents[2] / "examples" / "notebooks" / "impact.ipynb"


def cells() -> list[str]:
    found = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    assert not any(cell.get("outputs") or cell.get("execution_count")
                   for cell in found), "outputs are not committed"
    return ["".join(cell["source"]) for cell in found if cell["cell_type"] == "code"]


def test_it_answers_its_question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                 capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    space: dict[str, Any] = {}
    for number, cell in enumerate(cells()):
        exec(compile(cell, f"{NOTEBOOK.name}, code cell {number}", "exec"), space)
    told = capsys.readouterr().out
    assert told.count("atom ") == 10 and "atoms.extxyz report.html" in told.replace("atoms atoms", "atoms")
    start = space["start"]["position"]
    assert (start[:, 1] < -9).all(), "the fastest ones come from the rear face"
    space["d"].close()
