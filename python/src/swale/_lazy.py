"""Other packages, imported when they are used first."""
from __future__ import annotations

import importlib
from typing import Any


def load(name: str, purpose: str) -> Any:
    """The module `name`; the ImportError of a missing one says what needs it and how to install it."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as missing:
        package = name.split(".")[0]
        if missing.name is not None and missing.name.split(".")[0] != package:
            raise
        raise ModuleNotFoundError(f"{purpose} needs {package}: python -m pip install {package}",
                                  name=name) from None


def numpy() -> Any:
    """NumPy."""
    return load("numpy", "this")
