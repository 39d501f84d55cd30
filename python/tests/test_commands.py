"""The commands of the package, as a user types them: what they write, say and return."""
from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

import swale
from swale.__main__ import main, names
from swale._commands import common

TREE = Path(__file__).parents[2]
SCRIPTS = tomllib.loads((TREE / "python" / "pyproject.toml").read_text(encoding="utf-8"))["project"][
    "scripts"]


def run(*words: object, expect: int = 0, folder: Path | None = None) -> tuple[str, str]:
    """What a command prints on stdout and stderr. In this process: starting one, with its imports, takes a
    second.
    """
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), contextlib.chdir(
        folder or Path.cwd()):
        try:
            code = main([str(word) for word in words])
        except SystemExit as ended:
            code = ended.code
    assert code == expect, (words, out.getvalue(), err.getvalue())
    return out.getvalue(), err.getvalue()


@pytest.fixture(scope="session")
def flyby(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("flyby")
    run("example", "run", folder=folder)
    return folder / "run"


def test_the_example_has_a_story(flyby: Path) -> None:
    """Few bodies are flung out, they started outside, and their energy rose when the visitor came."""
    with swale.open(flyby) as d:
        assert len(d.epochs) == 121 and len(d) == 121 * 3000 and d.schema["energy"].unit == "au^2/yr^2"
        free = d.scan(epochs=-1, where="energy > 0", columns=["key"])["key"]
        assert 20 < len(free) < 600
        start = d.get_many(free, epochs=0, columns=["x", "y"])
        assert np.hypot(start["x"], start["y"]).min() > 25
        before, after = (d.scan(epochs=epoch)["energy"].max() for epoch in (30, 80))
        assert before < 0 < after
        best = d.top("energy", 1)
        assert best["key"][0] in free


def test_the_examples_own_hints_work(flyby: Path, tmp_path: Path) -> None:
    """Each line that the example prints, except those of the command that is written in C++."""
    out, _ = run("example", tmp_path / "a b", "--bodies", 50, "--frames", 4)
    lines = [line.strip() for line in out.splitlines() if line.startswith("  ")]
    ours = [line for line in lines if line.startswith(("swale plot", "swale histogram", "/"))]
    assert len(ours) == 3 and len(lines) == 5
    for line in ours:
        if line.startswith("swale "):
            run(*shlex.split(line)[1:], folder=tmp_path)
        else:
            subprocess.run(line, shell=True, check=True, cwd=tmp_path, timeout=120, stdout=subprocess.DEVNULL)
    assert (tmp_path / "energy.png").stat().st_size > 5_000


@pytest.mark.parametrize(("words", "magic"), [
    (["plot", "--top", "energy", "-k", "3", "-o", "a.png"], b"\x89PNG"),
    (["plot", "17", "u64:18", "0x1300000000000000", "-o", "a.pdf", "--epochs", "10:20"], b"%PDF"),
    (["plot", "--sample", "30", "--fields", "x,vz", "--path", "x,z", "-o", "a.svg"], b"<?xml"),
    (["plot", "3", "--path", "none", "--epoch", "-1", "-o", "a.svg"], b"<?xml"),
    (["plot", "3", "--fields", "energy", "--no-background", "-o", "a.SVG"], b"<?xml"),
    (["histogram", "energy", "-o", "a.png"], b"\x89PNG"),
    (["histogram", "energy", "--epochs", "0,60,-1", "--log", "--bins", "20", "-o", "a.svg"], b"<?xml"),
    (["histogram", "x", "--where", "energy > 0", "-o", "a.pdf"], b"%PDF"),
])
def test_pictures_are_written(flyby: Path, tmp_path: Path, words: list[str], magic: bytes) -> None:
    out, _ = run(words[0], flyby, *words[1:], folder=tmp_path)
    name = words[words.index("-o") + 1]
    assert out.startswith(f"{name}: ")
    data = (tmp_path / name).read_bytes()
    assert data.startswith(magic) and len(data) > 5_000
    assert [each.name for each in tmp_path.iterdir()] == [name]
    if magic == b"<?xml":
        run(words[0], flyby, *words[1:], folder=tmp_path)
        assert (tmp_path / name).read_bytes() == data, "the same picture has other bytes"


@pytest.mark.parametrize(("words", "code", "says"), [
    (["plot", "RUN", "4000", "-o", "a.png"], 1, "key 4000: not found in any epoch"),
    (["plot", "RUN", "-o", "a.png"], 2, "no key: name some"),
    (["plot", "RUN", "x17", "-o", "a.png"], 2, "expected an integer"),
    (["plot", "RUN", "17", "-o", "a.jpg"], 2, ".png, .pdf or .svg"),
    (["plot", "RUN", "17", "--fields", "enregy", "-o", "a.png"], 2, "did you mean 'energy'"),
    (["plot", "RUN", "17", "--path", "x", "-o", "a.png"], 2, "two fields"),
    (["plot", "RUN", "17", "--epochs", "130:", "-o", "a.png"], 2, "from 0 to 120"),
    (["plot", "RUN", "17", "-o", "no/such/a.png"], 3, "does not exist"),
    (["plot", "nowhere", "17", "-o", "a.png"], 3, "nowhere"),
    (["plot", "--sing"], 2, "--help has examples"),
    (["histogram", "RUN", "energy", "--where", "energy >", "-o", "a.png"], 2, "column 9"),
    (["histogram", "RUN", "energy", "--where", "energy > 1e9", "-o", "a.png"], 2,
     "no record has a finite energy"),
    (["histogram", "RUN", "energy", "--epochs", "0:20", "-o", "a.png"], 2, "room for 8"),
    (["histogram", "RUN", "energy", "--bins", "0", "-o", "a.png"], 2, "1 to 10,000"),
    (["example", "RUN"], 3, "already"),
    (["example", "other", "--bodies", "1"], 2, "at least 2"),
    (["sing"], 2, "expected a command: example"),
])
def test_mistakes_take_one_line_and_leave_nothing(flyby: Path, tmp_path: Path, words: list[str], code: int,
                                                  says: str) -> None:
    _, err = run(*(flyby if word == "RUN" else word for word in words), expect=code, folder=tmp_path)
    assert says in err and err.count("\n") == 1 and "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


def test_a_missing_library_is_named(flyby: Path, tmp_path: Path) -> None:
    (tmp_path / "matplotlib.py").write_text("raise ModuleNotFoundError('no', name='matplotlib')")
    done = subprocess.run([sys.executable, "-m", "swale", "plot", str(flyby), "17"], capture_output=True,
                          text=True, env={**os.environ, "PYTHONPATH": str(tmp_path)}, cwd=tmp_path,
                          timeout=60)
    assert done.returncode == 3
    assert done.stderr == "swale plot: a picture needs matplotlib: python -m pip install matplotlib\n"


def test_the_systems_own_numpy_and_matplotlib_suffice(flyby: Path, tmp_path: Path) -> None:
    """Those of Debian's packages are older than the ones that the other tests use."""
    python = "/usr/bin/python3"
    found = subprocess.run([python, "-c", "import sys, matplotlib; print(*sys.version_info[:2])"],
                           capture_output=True, text=True, timeout=60)
    if found.returncode != 0 or found.stdout.split() != [str(each) for each in sys.version_info[:2]]:
        pytest.skip(f"{python} has another version than this interpreter, or no Matplotlib")
    packages = Path(swale.__file__).parents[1]
    for name in ("swale", "swale_io.libs"):
        (tmp_path / name).symlink_to(packages / name)
    for words in (["plot", flyby, "17", "18", "-o", "a.png"],
                  ["plot", flyby, "--sample", "30", "-o", "b.pdf"],
                  ["histogram", flyby, "energy", "--epochs", "0,60,-1", "-o", "c.svg"],
                  ["report", flyby, "-o", "d.html"],
                  ["export", flyby, "e.npy", "--epoch", "-1"]):
        done = subprocess.run([python, "-m", "swale", *map(str, words)], capture_output=True, text=True,
                              env={**os.environ, "PYTHONPATH": str(tmp_path)}, cwd=tmp_path, timeout=120)
        assert done.returncode == 0, done.stderr
    assert {each.name for each in tmp_path.iterdir()} >= {"a.png", "b.pdf", "c.svg", "d.html", "e.npy"}


def test_every_command_is_installed_and_known_to_swale() -> None:
    assert sorted(SCRIPTS) == [f"swale-{name}" for name in names()]
    source = (TREE / "tools" / "outside_command.cc").read_text(encoding="utf-8")
    told = re.search(r"kPackageCommands\[\] = \{(.*?)\}", source, re.DOTALL)
    assert told is not None and sorted(re.findall(r'"(.*?)"', told[1])) == names()
    for name in names():
        done = subprocess.run([str(Path(sys.executable).with_name(f"swale-{name}")), "--help"],
                              capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 and f"usage: swale {name}" in done.stdout and "examples:" in done.stdout


@pytest.mark.parametrize(("text", "count", "chosen"), [
    (None, 5, None), ("3", 5, [3]), ("-1", 5, [4]), ("1:3", 5, [1, 2, 3]), (":", 5, [0, 1, 2, 3, 4]),
    ("3:99", 5, [3, 4]),
    ("-2:", 5, [3, 4]), ("0,2,-1,2", 5, [0, 2, 4]),
])
def test_epochs_are_chosen_as_by_the_command(text: str | None, count: int, chosen: list[int] | None) -> None:
    assert common.parse_epochs(text, count) == chosen


@pytest.mark.parametrize("text", ["5", "a", "3:1", "-6", "", "1:b", "5:"])
def test_wrong_epochs_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="--epochs"):
        common.parse_epochs(text, 5)


def test_keys_are_written_as_for_the_command() -> None:
    assert common.parse_key("17", "u64") == 17 and common.parse_key("-3", "i64") == -3
    assert common.parse_key("u64:18446744073709551615", "i64") == -1
    assert common.parse_key("0x61", "bytes") == b"a" and common.parse_key("u32:1", "") == b"\1\0\0\0"
    assert common.parse_key("0x61", "text") == "0x61" and common.parse_key("ä", "bytes") == "ä".encode()
    for text, kind in (("0x1", "bytes"), ("1.5", "u64"), ("u32:1", "u64"), ("u64:-1", "bytes"),
                       ("0xzz", "u64")):
        with pytest.raises(ValueError, match="key"):
            common.parse_key(text, kind)
