"""Paths as the library takes them."""
from __future__ import annotations

import os


def path_bytes(path: str | os.PathLike[str]) -> bytes:
    """The path's bytes; it may not have a NUL in it."""
    encoded = os.fsencode(path)
    if b"\0" in encoded:
        raise ValueError(f"path {path!r} has a NUL in it")
    return encoded
