"""The package's types: the stub of the compiled part has what is there, and nothing else."""
from __future__ import annotations

import ast
from pathlib import Path

import swale
from swale import _native


def names_of(owner: object) -> set[str]:
    return {name for name in vars(owner) if not name.startswith("_")}


def test_the_stub_has_what_is_there() -> None:
    folder = Path(swale.__file__).parent
    assert (folder / "py.typed").exists()
    stub = ast.parse((folder / "_native.pyi").read_text(encoding="utf-8"))
    classes = {node.name: node for node in stub.body if isinstance(node, ast.ClassDef)}
    functions = {node.name for node in stub.body if isinstance(node, ast.FunctionDef)}
    assert names_of(_native) == functions | set(classes)
    for name, node in classes.items():
        told = {each.name for each in node.body if isinstance(each, ast.FunctionDef)
                and not each.name.startswith("_")}
        assert names_of(getattr(_native, name)) == told, name


def test_all_names_exist_and_say_what_they_are() -> None:
    for name in swale.__all__:
        shown = getattr(swale, name)
        assert name == "__version__" or shown.__doc__, name
        assert not isinstance(shown, type) or shown.__module__ == "swale", name
