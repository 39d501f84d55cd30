"""What the commands of the package share: help with examples, exit codes, keys, epochs, progress."""
from __future__ import annotations

import argparse
import os
import sys
import textwrap
import time
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import swale

EXIT_OK, EXIT_NOT_FOUND, EXIT_USAGE, EXIT_FAILURE = 0, 1, 2, 3
EXIT_INTERRUPTED = 130
_SHOW_PROGRESS_AFTER = 1.0  # seconds


class KeyMissing(Exception):
    """A key that no epoch has."""


class _Help(argparse.HelpFormatter):
    """Fills descriptions without dividing words, and leaves the examples as they stand."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(text, width, break_on_hyphens=False)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if "\n" not in text:
            return super()._fill_text(text, width, indent)
        return "".join(indent + line for line in text.splitlines(keepends=True))


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose help has examples as they stand, and whose complaints take one line."""

    def __init__(self, name: str, summary: str, description: str,
                 examples: Sequence[tuple[str, str]]) -> None:
        self.summary, self.examples = summary, examples
        width = max(len(command) for command, _ in examples)
        lines = [f"  {command:{width}}  # {what}" if width + len(what) < 110 else f"  {command}\n      {what}"
                 for command, what in examples]
        super().__init__(prog=f"swale {name}", allow_abbrev=False,
                         description=f"{summary[0].upper()}{summary[1:]}. {description}",
                         formatter_class=_Help, epilog="examples:\n" + "\n".join(lines))

    def error(self, message: str) -> NoReturn:
        complain(self.prog, f"{message} (--help has examples)")
        raise SystemExit(EXIT_USAGE)


def complain(program: str, text: str) -> None:
    """A line on stderr; what a terminal would obey is escaped."""
    shown = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
    print(f"{program}: {shown}", file=sys.stderr)


def run(parser: Parser, work: Callable[[Any], int | None], arguments: Sequence[str] | None) -> int:
    """Parses the arguments, does the work and returns the exit code of what came of it."""
    try:
        code = work(parser.parse_args(arguments)) or EXIT_OK
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # as `| head` makes it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK
    except KeyMissing as missing:
        complain(parser.prog, str(missing))
        return EXIT_NOT_FOUND
    except (swale.InvalidArgumentError, ValueError, TypeError, IndexError) as wrong:
        complain(parser.prog, str(wrong))
        return EXIT_USAGE
    except (swale.SwaleError, OSError, ImportError, MemoryError) as failure:
        complain(parser.prog, str(failure) or type(failure).__name__)
        return EXIT_FAILURE


def exit_with(main: Callable[[], int]) -> NoReturn:
    """Ends the process with the command's exit code."""
    raise SystemExit(main())


# ---- Keys and epochs, written as for the command `swale` ----


def parse_key(text: str, key_type: str) -> int | str | bytes:
    """A key as `swale get` takes it: a number or text if the directory's keys are that, else text, 0x and
    hex, u64:N.
    """
    try:
        if key_type == "text":
            return text
        if text.startswith("0x"):
            raw = bytes.fromhex(text[2:])
        elif text.startswith(("u64:", "u32:")):
            raw = int(text[4:]).to_bytes(8 if text[1] == "6" else 4, "little")
        elif key_type in ("u64", "i64"):
            return int(text)
        else:
            raw = os.fsencode(text)
    except (ValueError, OverflowError):
        raise ValueError(f"key {text!r}: expected {'an integer' if key_type in ('u64', 'i64') else 'text'}, "
                         "0x and an even number of hex digits, or u64:N") from None
    if key_type not in ("u64", "i64"):
        return raw
    if len(raw) != 8:
        raise ValueError(f"key {text!r} has {len(raw)} bytes: this directory's keys are integers of 8")
    return int.from_bytes(raw, "little", signed=key_type == "i64")


def add_keys(parser: argparse.ArgumentParser) -> None:
    """Keys, and the options that find some."""
    parser.add_argument("keys", metavar="KEY", nargs="*", help="as `swale get` takes them")
    parser.add_argument("--top", metavar="FIELD", help="also the keys with the largest numbers in a field")
    parser.add_argument("-k", type=int, default=10, metavar="K",
                        help="how many --top finds (default %(default)s)")
    parser.add_argument("--smallest", action="store_true", help="the smallest instead of the largest")
    parser.add_argument("--top-epoch", type=int, default=-1, metavar="N",
                        help="where --top looks (default: the last)")
    parser.add_argument("--sample", type=int, metavar="N", help="also N random keys of the last epoch")


def chosen_keys(given: Any, directory: swale.Directory) -> list[Any]:
    """The keys that the command names, and those that --top and --sample find."""
    keys: list[Any] = [parse_key(text, directory.key_type) for text in given.keys]
    if given.top is not None:
        best = directory.top(given.top, given.k, epoch=given.top_epoch, smallest=given.smallest)
        keys += best["key"].tolist()
    if given.sample is not None:
        keys += list(directory.sample(given.sample))
    return keys


def add_epochs(parser: argparse.ArgumentParser, default: str) -> None:
    """The option --epochs."""
    parser.add_argument("-e", "--epoch", "--epochs", dest="epochs", metavar="RANGE",
                        help="epochs by number: 3, -1 (the last), 10:20 (both ends included), or several, "
                             f"as 0,30,-1; by default {default}")


def parse_epochs(text: str | None, count: int) -> list[int] | None:
    """The numbers that --epochs means; None: it was not given."""
    if text is None:
        return None
    chosen: list[int] = []
    for part in text.split(","):
        first, colon, last = part.partition(":")
        try:
            begin = int(first) if first else 0
            end = (int(last) if last else count - 1) if colon else int(first)
        except ValueError:
            raise ValueError(f"--epochs {text}: expected a number, a range of numbers A:B, or several, as "
                             f"0,10,-1") from None
        begin, end = (number + count if number < 0 else number for number in (begin, end))
        if not 0 <= begin <= end or (begin >= count if colon else end >= count):
            raise ValueError(f"--epochs {text}: there are {count} committed epochs" +
                             (f", from 0 to {count - 1}; -1 is the last" if count else ""))
        chosen += range(begin, min(end, count - 1) + 1)
    return list(dict.fromkeys(chosen))


# ---- Progress ----


class Progress:
    """A line on stderr that counts, if stderr is a terminal and the work takes more than a second."""

    def __init__(self, what: str, unit: str) -> None:
        self._what, self._unit = what, unit
        self._began = self._told = time.monotonic()
        self._shown = False

    def __call__(self, done: int, total: int | None = None) -> None:
        now = time.monotonic()
        if not sys.stderr.isatty() or now - self._began < _SHOW_PROGRESS_AFTER or now - self._told < 0.1:
            return
        self._told, self._shown = now, True
        of = f" of {total:,} ({100 * done // total} %)" if total else ""
        print(f"\r{self._what}: {done:,}{of} {self._unit}, {now - self._began:.0f} s \x1b[K", end="",
              file=sys.stderr, flush=True)

    def end(self) -> None:
        """Removes the line."""
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
