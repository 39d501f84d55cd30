"""manual.py NATIVE FOLDER DATE: manual pages of the package's commands, from what makes their --help.

NATIVE is the folder of the compiled part, as the package is not installed when it is built. Writes
FOLDER/swale-NAME.1 for each command: man(7) macros, ASCII alone, as tools/man_pages.h has it.
"""
from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
import textwrap
from pathlib import Path
from typing import Any

SOURCES = Path(__file__).resolve().parent / "src" / "swale"
EXIT_STATUS = (("0", "Fine."), ("1", "A key is not there."), ("2", "Usage."),
               ("3", "Input/output error, damage, or a library that is not installed."))


def load(native: Path) -> None:
    """Makes `import swale` take the sources of this tree and the compiled part of another folder."""
    spec = importlib.util.spec_from_file_location("swale", SOURCES / "__init__.py",
                                                  submodule_search_locations=[str(SOURCES), str(native)])
    assert spec is not None and spec.loader is not None
    sys.modules["swale"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules["swale"])


def escaped(text: str) -> str:
    """The text, so that troff sees no request and no escape in it."""
    if not text.isascii():
        raise ValueError(f"{text!r}: a manual page is ASCII alone")
    lines = text.replace("\\", "\\e").replace("-", "\\-").split("\n")
    return "\n".join("\\&" + line if line.startswith((".", "'")) else line for line in lines)


def filled(text: str) -> str:
    """The text in lines of at most 78 letters; words are not divided."""
    return escaped(textwrap.fill(text, 78, break_long_words=False, break_on_hyphens=False)) + "\n"


def expanded(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    """The help of an option, as --help shows it."""
    choices = ", ".join(map(str, action.choices or ()))
    return (action.help or "") % {**vars(action), "prog": parser.prog, "choices": choices}


def term(action: argparse.Action) -> str:
    """How an option or an argument is written."""
    shown = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    value = f"\\fI{escaped(shown)}\\fR"
    if not action.option_strings:
        return value
    names = ", ".join(f"\\fB{escaped(name)}\\fR" for name in action.option_strings)
    return names if action.nargs == 0 else f"{names} {value}"


def page(parser: Any, date: str, version: str) -> str:
    """The page of a command: `parser` is a `swale._commands.common.Parser`."""
    name = parser.prog.replace(" ", "-")
    actions = [action for action in parser._actions if action.help != argparse.SUPPRESS]
    arguments = [f"[{term(action)}...]" if action.nargs == "*" else term(action)
                 for action in actions if not action.option_strings]
    text = f".TH {escaped(name.upper())} 1 {date} \"swale {version}\" \"Swale\"\n"
    text += f".SH NAME\n{escaped(name)} \\- {escaped(parser.summary)}\n"
    text += f".SH SYNOPSIS\n.B {parser.prog}\n[\\fIOPTION\\fR...] {' '.join(arguments)}\n"
    text += f".SH DESCRIPTION\n{filled(parser.description)}.SH OPTIONS\n"
    for action in actions:
        text += f".TP\n{term(action)}\n{filled(expanded(parser, action))}"
    text += ".SH EXIT STATUS\n" + "".join(f".TP\n{code}\n{filled(what)}" for code, what in EXIT_STATUS)
    text += ".SH EXAMPLES\n" + ".PP\n".join(
        f".nf\n.RS 4\n{escaped(command)}\n.RE\n.fi\n{filled(what)}" for command, what in parser.examples)
    return text + ".SH SEE ALSO\n.BR swale (1),\n.BR swale\\-scan (1)\n"


def pages(date: str) -> dict[str, str]:
    """All pages by the name of their file."""
    package = importlib.import_module("swale")
    main = importlib.import_module("swale.__main__")
    parsers = [main.command(name).parser() for name in main.names()]
    return {f"{parser.prog.replace(' ', '-')}.1": page(parser, date, package.__version__)
            for parser in parsers}


if __name__ == "__main__":
    load(Path(sys.argv[1]))
    folder = Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in pages(sys.argv[3]).items():
        (folder / file).write_text(text, encoding="ascii")
