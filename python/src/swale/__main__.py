"""`python -m swale NAME ...`: the package's commands, where the command `swale` is not installed."""
from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Sequence
from types import ModuleType

from . import _commands


def names() -> list[str]:
    """The commands of the package."""
    return sorted(each.name.rstrip("_") for each in pkgutil.iter_modules(_commands.__path__)
                  if each.name != "common")


def command(name: str) -> ModuleType:
    """The module of a command: it has `parser` and `main`."""
    return importlib.import_module(f"{_commands.__name__}.{'import_' if name == 'import' else name}")


def main(words: Sequence[str] | None = None) -> int:
    """Runs the command that the first word names."""
    words = sys.argv[1:] if words is None else words
    if not words or words[0] not in names():
        print(f"python -m swale: expected a command: {', '.join(names())}", file=sys.stderr)
        return 2
    code: int = command(words[0]).main(words[1:])
    return code


if __name__ == "__main__":
    raise SystemExit(main())
