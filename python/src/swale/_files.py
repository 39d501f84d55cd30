"""Files that appear whole, or not at all."""
from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[str]:
    """The name of a temporary file beside `path`, which takes its place when the block ends; or goes, if it
    fails.

    The file is on storage before it takes the place, and has the mode that a plain `open` would give it.
    """
    target = Path(os.fsdecode(os.fspath(path)))
    if target.is_dir():
        raise IsADirectoryError(f"{target} is a directory: name a file in it")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"{target.parent} does not exist: make it first")
    temporary = str(target.parent / f".{target.name[:200]}.{secrets.token_hex(4)}.part")
    os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o666))
    try:
        yield temporary
        with open(temporary, "rb") as written:
            os.fsync(written.fileno())
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
