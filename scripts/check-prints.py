#!/usr/bin/env python3
"""check-prints.py [TREE] [--self-test]: what the command and the library print for people passes through
plain_text (src/base/plain_text.h), which escapes what a terminal would obey: names, keys, the content of
locks, error texts.

In src/ and tools/ nothing writes to stdout or stderr but the few functions of ALLOWED. The self-test writes
some prints into a tree and expects to be told so.
"""
import os
import re
import sys
import tempfile

import checker

PRINT = re.compile(r"""
    \bfmt::print(?:ln)?\ *\(                                     # to stdout, or to a stream
  | \bstd::(?:cout|cerr|clog)\b
  | \b(?:std::)?(?:printf|vprintf|puts|putchar|perror|psignal)\ *\(
  | \b(?:std::)?(?:fprintf|vfprintf|fputs|fputc|putc|fwrite)\ *\([^;]*\b(?:stdout|stderr)\b
  | \b(?:::)?(?:write|dprintf|vdprintf|writev)\ *\(\ *(?:STDOUT_FILENO|STDERR_FILENO|1|2)\b
  | \b(?:stdout|stderr)_(?:color_)?sink_
""", re.VERBOSE)

# Where text leaves the process: (file, what must stand in the statement), and why it is safe.
ALLOWED = {
    ("src/base/log.cc", "stderr_sink_st"): "the log's own sink; Log gets plain text",
    ("tools/options.cc", "plain_text("): "complain",
    ("tools/options.cc", "fwrite(bytes.data()"): "print_bytes: raw output, and the end of print and "
    "print_json_text",
    ("tools/main.cc", "plain_text("): "a complaint of several lines",
    ("tools/main.cc", '"swale: '): "words of our own, when nothing can be allocated",
    ("tools/main.cc", "fputc('"): "the same",
    ("tools/main.cc", "<= '~' ?"): "the same: character by character",
    ("tools/progress.h", "plain_text("): "the bar",
    ("tools/progress.h", '"\\r{:{}}\\r"'): "blanks over the bar",
    ("tools/manual_main.cc", ""): "makes pages when the project is built",
}


def without_comments(text):
    """Comments and texts' contents stay as long as they are; comments become blanks."""
    pattern = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
    return pattern.sub(lambda found: found[0] if found[0].startswith('"')
                       else re.sub(r"[^\n]", " ", found[0]), text)


def check_file(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as file:
        text = without_comments(file.read())
    for found in PRINT.finditer(text):
        end = text.find(";", found.end())
        statement = text[text.rfind("\n", 0, found.start()) + 1:end if end != -1 else len(text)]
        if any(path == where and word in statement for where, word in ALLOWED):
            continue
        yield (f"{path}:{text.count(chr(10), 0, found.start()) + 1}: prints by itself; use print, "
               f"print_line, print_json or "
               "complain of tools/options.h, or the log: they escape what a terminal would obey")


def sources(root):
    for top in ("src", "tools"):
        for folder, folders, names in os.walk(os.path.join(root, top)):
            folders[:] = [name for name in folders if name != "testing"]
            for name in sorted(names):
                of_a_test = "test_" in name or "_test." in name or name.startswith("crash_")
                if name.endswith((".h", ".cc")) and not of_a_test:
                    yield os.path.relpath(os.path.join(folder, name), root)


def check_tree(root):
    return [line for path in sorted(sources(root)) for line in check_file(root, path)]


CANARIES = [
    'void f() { fmt::print("{}\\n", name); }',
    'void f() { fmt::print(stderr, "swale: {}\\n", status.message()); }',
    "void f() { std::cerr << name; }",
    "void f() { printf(name); }",
    "void f() { std::puts(name); }",
    "void f() { std::fputs(name, stderr); }",
    "void f() { fwrite(name, 1, 5,\n    stdout); }",
    "void f() { ::write(STDERR_FILENO, name, 5); }",
    "void f() { dprintf(2, name); }",
    "auto s = spdlog::sinks::stdout_sink_mt();",
]
HARMLESS = [
    "// fmt::print(name)",
    'void f() { snprintf(text, 5, "%d", 7); }',
    "void f() { ::write(file, name, 5); std::fflush(stdout); }",
    'const char* help = "see printf";',
    "void f() { print(name); print_line(name); complain(name); refuse_puts(name); }",
]


def check_scratch(text, path="tools/a.cc"):
    with tempfile.TemporaryDirectory(prefix="swale-prints-") as root:
        os.makedirs(os.path.join(root, os.path.dirname(path)))
        with open(os.path.join(root, path), "w", encoding="utf-8") as file:
            file.write(text + "\n")
        return check_tree(root)


def self_test():
    failures = [f"not allowed, though it should be: {found}" for text in HARMLESS
                for found in check_scratch(text)]
    failures += [f"{text!r} went unnoticed" for text in CANARIES if not check_scratch(text)]
    failures += [f"{text!r} went unnoticed in src" for text in CANARIES
                 if not check_scratch(text, "src/io/b.h")]
    return checker.canaries_noticed("check-prints.py", failures, f"prints: the check notices all "
                                    f"{len(CANARIES)} canaries")


if __name__ == "__main__":
    sys.exit(checker.main(self_test, check_tree, "prints: all text for people passes through plain_text"))
