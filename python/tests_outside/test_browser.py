"""The report in headless Chromium, which runs its script: what the page shows then, and what it looks like.

With SWALE_SCREENSHOTS the pictures stay in that folder, to be looked at.
"""
from __future__ import annotations

import html
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import swale

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from test_hostile_names import NAMES, hostile  # noqa: E402, F401: a fixture

CHROMIUM = ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            "--hide-scrollbars", "--virtual-time-budget=5000"]


def browse(page: Path, *options: str) -> str:
    """What Chromium says of the page; it has a home of its own."""
    if shutil.which("chromium") is None:
        pytest.fail("chromium is missing: scripts/install-deps.sh long installs it")
    done = subprocess.run([*CHROMIUM, f"--user-data-dir={page.parent / 'profile'}", *options, page.as_uri()],
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def drawn(page: Path) -> str:
    """The page after its script ran."""
    found = browse(page, "--dump-dom")
    assert 'data-drawn="yes"' in found and 'class="failed"' not in found, found[-3000:]
    return found


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("example")
    subprocess.run([sys.executable, "-m", "swale", "example", "run"], cwd=folder, check=True,
                   capture_output=True)
    subprocess.run([sys.executable, "-m", "swale", "report", "run", "--top", "energy", "-k", "6", "--sample",
                    "10",
                    "-o", "report.html"], cwd=folder, check=True, capture_output=True)
    return folder / "report.html"


def test_the_page_shows_the_run(example: Path) -> None:
    page = drawn(example)
    heads = re.findall(r"<h2>(.*?)</h2>", page)
    assert heads == ["What a record is", "What the job wrote", "Where the time went", "Balance over ranks",
                     "The index", "Trajectories"]
    assert "<title>A star passes a disc" in page and "121 epochs, 363,000 records" in page
    assert page.count("data-key=") == 3 * 16 and page.count("<figure>") == 7
    assert len(re.findall(r'class="line"[^>]* d="M[^"]{200}', page)) > 16
    shown = re.sub(r"<script.*?</script>", "", page, flags=re.S)
    assert not [word for word in ("NaN", "undefined", "Infinity", "null") if word in shown]


def test_what_it_looks_like(example: Path, tmp_path: Path) -> None:
    from PIL import Image

    folder = Path(os.environ.get("SWALE_SCREENSHOTS", tmp_path))
    picture = folder / "report.png"
    browse(example, f"--screenshot={picture}", "--window-size=1200,3600")
    colours = np.asarray(Image.open(picture).convert("RGB")).reshape(-1, 3)
    assert len(colours) == 1200 * 3600 and (colours == 255).all(axis=1).mean() > 0.5
    for colour in ((0x00, 0x72, 0xB2), (0xD5, 0x5E, 0x00), (0x00, 0x9E, 0x73)):
        assert (abs(colours.astype(int) - colour).max(axis=1) < 8).sum() > 300, "no line has this colour"


def test_hostile_names_run_nothing(hostile: str, tmp_path: Path) -> None:  # noqa: F811
    with swale.open(hostile) as d:
        d.report(tmp_path / "report.html", keys=NAMES)
    page = drawn(tmp_path / "report.html")
    assert page.count("<script") == 2 and "<img" not in page and html.escape(NAMES[0], quote=False) in page


def test_canary_a_foreign_script_is_seen(example: Path, tmp_path: Path) -> None:
    """Without the policy a script in the page would run; the policy stops it. A broken script is noticed."""
    page = example.read_text(encoding="utf-8")
    foreign = "<script>document.documentElement.dataset.foreign = 'ran'</script></body>"
    (tmp_path / "a.html").write_text(page.replace("</body>", foreign))
    assert 'data-foreign="ran"' not in browse(tmp_path / "a.html", "--dump-dom")
    policy = re.compile(r"<meta http-equiv.*?>", re.S)
    (tmp_path / "b.html").write_text(policy.sub("", page).replace("</body>", foreign))
    assert 'data-foreign="ran"' in browse(tmp_path / "b.html", "--dump-dom")
    (tmp_path / "c.html").write_text(page.replace('"use strict";', '"use strict"; throw 1;'))
    with pytest.raises(AssertionError):
        drawn(tmp_path / "c.html")
