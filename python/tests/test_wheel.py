"""The wheel where nothing else is installed: no NumPy, no compiler, no PATH; and what it carries."""
from __future__ import annotations

import ctypes
import os
import platform
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

SCRIPT = """
import swale
with swale.create("run", key="text") as out:
    for epoch in range(2):
        for name in ("a", "b"):
            out.append(name, f"{name}{epoch}".encode())
        out.epoch_end(epoch, 0.0)
with swale.open("run") as d:
    assert sorted(d.keys()) == ["a", "b"] and "a" in d and "c" not in d and len(d) == 4
    assert len(d.scan(where='key == "a"')) == 2 and len(d.get_many(["b", "c"])) == 2
    try:
        d["a"]
    except ImportError as missing:
        print(missing)
with open("/proc/self/maps") as maps:
    print(*sorted({line.split()[-1] for line in maps if ".so" in line}), sep="\\n")
"""
# What a bare system and the interpreter have, and UCX and OpenSSL, which only jobs of several ranks load.
OF_THE_SYSTEM = re.compile(
    r"(lib(c|m|dl|pthread|rt|gcc_s|stdc\+\+|z|expat|lzma|bz2|ffi)|ld-linux-[-a-z0-9]+)\.so")
OF_JOBS = re.compile(r"libuc[mpst]\.|libssl\.|libcrypto\.|libmpi")


@pytest.fixture(scope="module")
def wheel() -> Path:
    found = list(Path(os.environ.get("SWALE_WHEELS", "nowhere")).glob("*.whl"))
    if not found:
        pytest.skip("SWALE_WHEELS names no folder with the wheel: scripts/build-wheel.sh makes it")
    assert len(found) == 1
    return found[0]


@pytest.fixture
def bare(wheel: Path, tmp_path: Path) -> Path:
    """The interpreter of an environment that has the wheel alone."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    subprocess.run([sys.executable, "-m", "pip", "--python", str(tmp_path / "venv"), "install", "--quiet",
                    "--no-index",
                    "--disable-pip-version-check", str(wheel)], check=True)
    return tmp_path / "venv" / "bin" / "python"


def run(python: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(python), "-I", "-c", SCRIPT], cwd=python.parents[2], env={"PATH": ""},
                          capture_output=True, text=True, timeout=300)


def test_it_works_where_nothing_else_is_installed(bare: Path) -> None:
    done = run(bare)
    assert done.returncode == 0, done.stderr
    said, *loaded = done.stdout.splitlines()
    assert "pip install numpy" in said
    own = [path for path in loaded if path.startswith(str(bare.parents[1]))]
    assert any("libswale.so" in path for path in own) and any("libfmt" in path for path in own)
    assert not [path for path in loaded if OF_JOBS.search(path)], "only a job of several ranks needs them"
    others = [path for path in loaded if path not in own and "/python3" not in path]
    assert others and not [path for path in others if not OF_THE_SYSTEM.match(os.path.basename(path))]


def test_canary_the_libraries_are_those_of_the_wheel(bare: Path) -> None:
    """This machine has them, too; the wheel must not fall back to them."""
    for folder in bare.parents[1].glob("lib/python*/site-packages/swale_io.libs"):
        shutil.rmtree(folder)
    assert "ImportError" in run(bare).stderr


def test_what_it_carries(wheel: Path, tmp_path: Path) -> None:
    glibc = platform.libc_ver()[1].replace(".", "_")
    tags = wheel.name.removesuffix(".whl").split("-")
    assert tags[0] == "swale_io" and re.search(r"manylinux_2_\d+", tags[-1])
    assert min(int(minor) for minor in re.findall(r"manylinux_2_(\d+)", tags[-1])) <= int(glibc.split("_")[1])
    assert tags[3] == ("abi3" if sys.version_info >= (3, 12) else f"cp3{sys.version_info[1]}")
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
        file.extractall(tmp_path)
    assert {"swale/lib/libswale.so.0", "swale/lib/libswale-ucx.so", "swale/lib/libswale-tls.so",
            "swale/py.typed",
            "swale/licences/swale"} <= set(names)
    copied = [name for name in names if name.startswith("swale_io.libs/") and ".so" in name]
    licences = [name for name in names if name.startswith("swale/licences/")]
    assert copied and not [name for name in copied
                           if OF_JOBS.search(name)] and len(licences) > len(copied) / 2
    for name in names:
        if ".so" in name:
            here = str(Path(__file__).parents[2] / "build").encode()
            assert here not in (tmp_path / name).read_bytes(), f"{name} has a path of this machine"
    for module in ("ucx", "tls"):  # with the UCX and OpenSSL of this machine
        assert ctypes.CDLL(str(tmp_path / "swale" / "lib" / f"libswale-{module}.so")).swale_fabric
