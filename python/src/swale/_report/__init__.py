"""`swale report`: one HTML file about a run, which needs nothing else. Directory.report tells what it shows.

The page is page.html with report.css, report.js and the facts (`facts.py`) put in. Everything that a
stranger may have named is in the facts: JSON in which no letter ends its element, shown by the script as
text. A content security policy allows this script and this style alone, and no connection.
"""
from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Callable, Iterable
from importlib import resources
from typing import TYPE_CHECKING, Any

from .._files import replacing
from . import facts

if TYPE_CHECKING:
    from .._directory import Directory

BYTES_MAX = 2_000_000
_HARMLESS = str.maketrans({letter: f"\\u{ord(letter):04x}" for letter in "<>&'\u2028\u2029"})


def write(directory: Directory, path: str | os.PathLike[str], *, keys: Any = None,
          fields: Iterable[str] | None = None, progress: Callable[[int, int], None] | None = None) -> int:
    """Writes the report and returns its bytes."""
    page = render(facts.gather(directory, keys, fields, progress)).encode()
    if len(page) > BYTES_MAX:
        raise ValueError(f"the report would have {len(page):,} bytes, over {BYTES_MAX:,}: choose fewer keys")
    with replacing(path) as temporary, open(temporary, "wb") as file:
        file.write(page)
    return len(page)


def render(found: dict[str, Any]) -> str:
    """The page that shows the facts."""
    style, script = _part("report.css"), _part("report.js")
    data = json.dumps(found, ensure_ascii=True, allow_nan=False, separators=(",", ":")).translate(_HARMLESS)
    page = _part("page.html")
    for name, text in (("STYLE_HASH", _hash(style)), ("SCRIPT_HASH", _hash(script)), ("STYLE", style),
                       ("SCRIPT", script), ("FACTS", data)):
        before, mark, after = page.partition("{{" + name + "}}")
        assert mark
        page = before + text + after
    return page


def _part(name: str) -> str:
    return resources.files(__name__).joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
