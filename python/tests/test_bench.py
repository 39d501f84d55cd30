"""`make bench-python` on a few records: it runs, its answers are right, and it notices when they are not.
Never times.
"""
from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "bench" / "python" / "python.py"
PROGRAMS = Path(os.environ.get("SWALE_COMMANDS", "nowhere")).parent / "bench" / "python"


def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_python", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_tiny_run(tmp_path: Path) -> None:
    if not (PROGRAMS / "bench_python_c_calls").exists():
        pytest.skip("not built: scripts/build.sh checked bench_python_c_calls")
    done = subprocess.run([sys.executable, str(SCRIPT), str(PROGRAMS), str(tmp_path), "--profile", "tiny"],
                          capture_output=True, text=True, timeout=1800)
    assert done.returncode in (0, 1), done.stderr
    result = json.loads((tmp_path / "python.json").read_text())
    module = bench()
    assert set(result["results"]) == {name for name, *_ in module.KEYS} and result["records"] == 6_000
    for name, entry in result["results"].items():
        assert len(entry["samples"]) == 2 and name in done.stdout
        assert entry["met"] == (entry["value"] <= entry["must"] if entry["less_is_better"]
                                else entry["value"] >= entry["must"])
    assert done.returncode == (0 if all(entry["met"] for entry in result["results"].values()) else 1)
    assert [each.name for each in tmp_path.iterdir()] == ["python.json"]


def test_a_wrong_answer_ends_it(tmp_path: Path, run: str) -> None:
    """The C program says that it found nothing."""
    import swale

    program = tmp_path / "bench_python_c_calls"
    program.write_text("#!/bin/sh\necho '{\"found\": 0, \"keys_per_s\": 1.0}'\n")
    program.chmod(0o755)
    module = bench()
    made = module.Bench(tmp_path, tmp_path, dict(module.PROFILES["tiny"], keys=500, epochs=4, many=50))
    made.run = run
    with swale.open(run) as made.d, pytest.raises(module.judge.Failed, match="every key is found"):
        made.get_many_over_c(0)


def test_verdicts() -> None:
    module = bench()
    assert module.verdict([1.0, 3.0, 2.0], 2.0, 1.0, True,
                          "")["met"] and not module.verdict([2.1], 2.0, 1.0, True, "")["met"]
    assert module.verdict([0.9], 0.9, 1.0, False,
                          "")["met"] and not module.verdict([0.8], 0.9, 1.0, False, "")["met"]
