"""The notebook, executed by Jupyter's client."""
from __future__ import annotations

from pathlib import Path

import nbclient
import nbformat
import pytest

NOTEBOOK = Path(__file__).parents[2] / "examples" / "notebooks" / "impact.ipynb"


def execute(notebook: nbformat.NotebookNode, folder: Path) -> nbformat.NotebookNode:
    nbformat.validate(notebook)
    nbclient.NotebookClient(notebook, timeout=600, kernel_name="python3",
                            resources={"metadata": {"path": str(folder)}}).execute()
    return notebook


def test_jupyter_runs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    done = execute(nbformat.read(NOTEBOOK, as_version=4), tmp_path)
    kinds = [kind for cell in done.cells for output in cell.get("outputs", [])
             for kind in output.get("data", {})]
    assert "image/png" in kinds, "the picture shows itself"
    assert "text/html" in kinds, "the directory and the tables show themselves"


def test_canary_a_cell_that_fails_is_noticed(tmp_path: Path) -> None:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("assert 1 == 2")])
    with pytest.raises(nbclient.exceptions.CellExecutionError):
        execute(notebook, tmp_path)
