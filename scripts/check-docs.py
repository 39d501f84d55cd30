#!/usr/bin/env python3
"""check-docs.py [TREE] [--self-test]: what the pages (*.md) name exists.

Between backticks: paths and file names in the tree; types, members, functions, constants and fields in the
sources, comments set aside; calls of the C interface, options and variables; subcommands of `swale` and
targets of make. In code blocks: calls, options and variables. Relative links: the file, and the heading after
'#'. The CHANGELOG may name what is gone. The pages that sources name exist, too. In a table of tasks ("task |
begin at | in") the name stands in the first file of its row. The self-test shows that each kind of fault is
noticed.
"""
import fnmatch
import os
import re
import sys
import tempfile

import checker

SKIPPED_FOLDERS = {"build", ".git", ".cache", "corpus", "__pycache__"}
SKIPPED_PAGES = {"CHANGELOG.md"}
SOURCE = re.compile(
    r"\.(h|hpp|c|cc|f90|py|sh|cmake|map)$|(^|/)(CMakeLists\.txt|Makefile|CMakePresets\.json)$")
C_LIKE = re.compile(r"\.(h|hpp|c|cc|map)$")
COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
PAGE_NAMED = re.compile(r"\bdocs/[a-z/-]+\.md\b")
WORD = re.compile(r"[A-Za-z_]\w*")
TOPS = ("src", "include", "docs", "bench", "tests", "tools", "sim", "fuzz", "examples", "scripts",
        "packaging", "cmake", "python")
LAYERS = ("base", "io", "net", "run", "source", "store", "tier", "meta", "imd", "query", "fs", "capi",
          "fuse", "preload")
ENGINES = ("job", "net", "io", "write", "dir", "read", "imd", "meta", "tier", "iond")

CODE_SPAN = re.compile(r"(?<!`)(`+)(?!`)(?P<text>.+?)(?<!`)\1(?!`)", re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")
# by figures.py, of a run that may be older than the tree
MADE_TABLE = re.compile(r"<!-- table: .*?<!-- /table -->", re.DOTALL)
TASKS_HEAD = re.compile(r"\| task \| begin at \| in \|\s*\n\|[-|]+\|\s*\n")
FENCE = re.compile(r"^\s*(```|~~~)")

# What a text between backticks may be: the first pattern that matches all of it decides.
PATH = re.compile(r"(?:%s)/[\w.*{},+/-]*" % "|".join(TOPS + LAYERS))
FILE_NAME = re.compile(r"[\w*{},-]+\.(?:h|hpp|c|cc|py|sh|f90)")
MEMBER = re.compile(r"(?P<type>[A-Z]\w*)::(?P<member>\w+)(?:\(\))?")
NAME = re.compile(r"(?P<name>[A-Z][a-z0-9]+\w*|k[A-Z]\w+|\w+(?:_\w+)+|\w{2,}(?=\())(?:\([^)]*\))?")
SUBCOMMAND = re.compile(r"swale (?P<name>[a-z-]+)\b.*", re.DOTALL)
TARGET = re.compile(r"(?:\w+=\S+ )*make (?P<name>[a-z][a-z-]*)\b.*")
# Inside any text: calls, options, variables.
CALL = re.compile(r"(?<![\w.$/-])swale_\w+(?!\*)\b")
OPTION = re.compile(r"(?<![\w./-])(?P<name>(?:%s)\.[a-z_]+)\b(?![./(-])" % "|".join(ENGINES))
VARIABLE = re.compile(r"\bSWALE_[A-Z0-9_]+\*?")

# Names of other programs' things that look like ours: UCX, Python, C, Linux, MPI, launchers, formats.
FOREIGN = {
    "O_DIRECT", "O_PATH", "O_NONBLOCK", "O_APPEND", "POSIX_FADV_WILLNEED", "STATX_DIOALIGN", "RWF_NOWAIT",
    "RLIMIT_MEMLOCK", "IOSQE_ASYNC", "EAGAIN", "KEEP_SIZE", "SEEK_DATA", "iso_c_binding", "sync_file_range",
    "drop_caches", "ucp_request_send_state_ff", "ucp_worker_arm", "MPI_Comm_f2c", "cpu_user_s",
    "LD_LIBRARY_PATH", "SLURM_NODEID", "MM_ERROR_HANDLING", "MM_SEG_SIZE", "KEEPALIVE_INTERVAL",
    "TCP_CONN_NB", "UCX_TLS", "clear_page",
}  # fmt: skip


def read(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def without_comments(text):
    return COMMENT.sub(lambda found: found[0] if found[0].startswith('"') else " ", text)


class Tree:
    """What there is to name."""

    def __init__(self, root):
        self.root = root
        self.files, self.folders, self.pages = set(), {""}, []
        self.words_of, self.texts = {}, {}
        self.pages_named = []  # (source, line, page)
        for folder, folders, names in os.walk(root):
            folders[:] = sorted(name for name in folders if name not in SKIPPED_FOLDERS)
            inside = os.path.relpath(folder, root)
            self.folders.add("" if inside == "." else inside)
            for name in names:
                self.add(os.path.normpath(os.path.join(inside, name)))
        self.names = {os.path.basename(path) for path in self.files}
        self.words = set().union(*self.words_of.values()) if self.words_of else set()
        code = "\n".join(text for path, text in self.texts.items() if not path.startswith("docs/"))
        self.options = set(re.findall(r'\.name = "([a-z]+\.[a-z_]+)"', code))
        self.literals = set(re.findall(r'"([a-z]+(?:\.[a-z_]+)+)"', code))
        tools = "\n".join(text for path, text in self.texts.items() if path.startswith("tools/"))
        self.subcommands = set(re.findall(r'"([a-z-]+)"', tools))
        self.targets = set(re.findall(r"^([a-z][a-z-]*):", self.texts.get("Makefile", ""), re.MULTILINE))

    def add(self, path):
        self.files.add(path)
        full = os.path.join(self.root, path)
        if path.endswith(".md"):
            self.pages.append(path)
        elif SOURCE.search(path):
            text = read(full)
            if not path.startswith("scripts/"):
                self.pages_named += [(path, text.count("\n", 0, found.start()) + 1, found[0])
                                     for found in PAGE_NAMED.finditer(text)]
            self.texts[path] = without_comments(text) if C_LIKE.search(path) else text
            self.words_of[path] = set(WORD.findall(self.texts[path]))

    def has_path(self, path):
        path = path.rstrip("/")
        if path.split("/")[0] in LAYERS:
            path = "src/" + path
        if "{" in path:
            head, _, rest = path.partition("{")
            choices, _, tail = rest.partition("}")
            return all(self.has_path(head + choice + tail) for choice in choices.split(","))
        if "*" in path:
            return any(fnmatch.fnmatch(file, path) or fnmatch.fnmatch(file, path + ".*")
                       for file in self.files)
        if path in self.files or path in self.folders or any(path + end in self.files
                                                             for end in (".cc", ".c")):
            return True
        top, _, name = path.rpartition("/")
        return top in self.folders and "." not in name and self.has_part(top, name)

    def has_part(self, folder, name):
        """folder/Type: declared somewhere below; folder/stem: a header of this name."""
        headers = [path for path in self.files if path.startswith(folder + "/") and path.endswith(".h")]
        return any(name in self.words_of[path] if name[0].isupper() else path.endswith(f"/{name}.h")
                   for path in headers)

    def has_file_name(self, name):
        if "{" in name:
            head, _, rest = name.partition("{")
            choices, _, tail = rest.partition("}")
            return all(self.has_file_name(head + choice + tail) for choice in choices.split(","))
        return name in self.names or ("*" in name and any(fnmatch.fnmatch(known, name)
                                                          for known in self.names))

    def has_member(self, owner, member):
        """Some header or source names both: the owner as what it declares, or both in one file beside it."""
        declares = re.compile(
            rf"\b(?:class|struct|enum|union|namespace|using)\b[^;{{}}=]*\b{owner}\b|\b{owner}::")
        stems = {os.path.splitext(path)[0] for path, text in self.texts.items()
                 if owner in self.words_of[path] and declares.search(text)}
        return any(member in words for path, words in self.words_of.items()
                   if os.path.splitext(path)[0] in stems)

    def variable_of_option(self, variable):
        return any(variable == "SWALE_" + option.replace(".", "_").upper() for option in self.options)

    def has_name(self, name):
        """A word of the sources, a program of bench/, or something of another program."""
        program = name.removeprefix("bench_") if name.startswith("bench_") else None
        return name in self.words or name in FOREIGN or any(
            f"bench/{program}{end}.cc" in self.files for end in ("", "_store"))

    def has_variable(self, variable):
        if variable.endswith(("_", "*")):
            start = variable.rstrip("*")
            return (any(word.startswith(start) for word in self.words)
                    or any(("SWALE_" + option.replace(".", "_").upper()).startswith(start)
                           for option in self.options))
        return variable in self.words or self.variable_of_option(variable)


def slug(heading):
    text = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", lambda found: found[1] or "", heading.strip("# \n").lower())
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def headings(text):
    fenced, found = False, set()
    for line in text.splitlines():
        if FENCE.match(line):
            fenced = not fenced
        elif line.startswith("#") and not fenced:
            found.add(slug(line))
    return found


def split(text):
    """(prose, code): the page twice, each with the other part blanked, so that positions stay."""
    prose, code, fenced = [], [], False
    for line in text.splitlines(keepends=True):
        blank = " " * (len(line) - 1) + "\n" if line.endswith("\n") else " " * len(line)
        fence = bool(FENCE.match(line))
        if fence:
            fenced = not fenced
        prose.append(blank if fenced or fence else line)
        code.append(line if fenced and not fence else blank)
    return "".join(prose), "".join(code)


def check_names(tree, text):
    """(position in text, complaint) of calls, options and variables anywhere in it."""
    for found in CALL.finditer(text):
        if found[0] not in tree.words and not found[0].endswith("_") and not tree.has_file_name(
            found[0] + ".*"):
            yield found.start(), f"{found[0]} is not in the sources"
    for found in OPTION.finditer(text):
        if found["name"] not in tree.options and found["name"] not in tree.literals:
            yield found.start(), f"no option or counter is called {found['name']}"
    for found in VARIABLE.finditer(text):
        if not tree.has_variable(found[0]):
            yield found.start(), f"{found[0]} is no variable, constant or option"


def check_span(tree, span, code):
    """What is wrong with the text between two backticks, as one line, or None. code: the code blocks of the
    page.
    """
    span = " ".join(span.split())
    if PATH.fullmatch(span):
        return None if tree.has_path(span) else f"{span} does not exist"
    if FILE_NAME.fullmatch(span):
        return None if tree.has_file_name(span) or span in code else f"no file is called {span}"
    member = MEMBER.fullmatch(span)
    if member:
        return None if tree.has_member(member["type"], member["member"]) else f"{span} is not in the sources"
    subcommand = SUBCOMMAND.fullmatch(span)
    if subcommand:
        return None if subcommand[
            "name"] in tree.subcommands else f"swale has no subcommand {subcommand['name']}"
    target = TARGET.fullmatch(span)
    if target:
        return None if target["name"] in tree.targets else f"make has no target {target['name']}"
    name = NAME.fullmatch(span)
    if name and not span.startswith(("SWALE_", "swale_")):
        return None if tree.has_name(name["name"]) else f"{name['name']} is not in the sources"
    return None


def check_link(tree, page, target):
    if re.match(r"[a-z]+:|//", target):
        return None
    path, _, anchor = target.partition("#")
    full = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
    if full not in tree.files and full not in tree.folders:
        return f"the link {target} leads to nothing"
    if anchor and full.endswith(".md") and anchor not in headings(read(os.path.join(tree.root, full))):
        return f"the link {target}: {full} has no such heading"
    return None


def check_tasks(tree, text):
    """(position in text, complaint) of rows of a table of tasks: task, name, files."""
    for head in TASKS_HEAD.finditer(text):
        at = head.end()
        for line in text[at:].splitlines(keepends=True):
            if not line.startswith("|"):
                break
            cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
            name = CODE_SPAN.fullmatch(cells[1]) if len(cells) == 3 else None
            files = [span["text"] for span in CODE_SPAN.finditer(cells[2])] if name else []
            if not files or not WORD.fullmatch(name["text"]):
                yield at, "a task has a name to begin at, and files"
            elif name["text"] not in tree.words_of.get(files[0], ()):
                yield at, f"{name['text']}, where a task begins, is not in {files[0]}"
            at += len(line)


def check_page(tree, page):
    text = read(os.path.join(tree.root, page))
    prose, code = split(MADE_TABLE.sub(lambda table: re.sub(r"[^\n]", " ", table[0]), text))
    found = list(check_names(tree, code)) + list(check_tasks(tree, prose))
    for span in CODE_SPAN.finditer(prose):
        found += [(span.start() + at, wrong) for at, wrong in check_names(tree, span["text"])]
        wrong = check_span(tree, span["text"], code)
        if wrong:
            found.append((span.start(), wrong))
    for link in LINK.finditer(CODE_SPAN.sub(lambda span: " " * len(span[0]), prose)):
        wrong = check_link(tree, page, link["target"])
        if wrong:
            found.append((link.start(), wrong))
    return [f"{page}:{text.count(chr(10), 0, at) + 1}: {wrong}" for at, wrong in sorted(set(found))]


def check_tree(root):
    tree = Tree(root)
    lost = [f"{source}:{line}: {page} does not exist" for source, line, page in sorted(tree.pages_named)
            if page not in tree.files]
    return lost + [line for page in sorted(tree.pages) if page not in SKIPPED_PAGES
                   for line in check_page(tree, page)]


SCRATCH = {
    "src/base/reader.h": "// Gone, and swale_gone, and kGone.\nclass Reader {\n  void refresh();\n  int "
    "block_bytes_;\n};\n"
                         'OptionRow{.name = "imd.memory"}; const char* k = "write.time";\n',
    "src/base/other.h": "struct Other { int elsewhere; };\nconstexpr int kLimit = 1;\n",
    "include/swale/swale.h": "void swale_open(void);\n#define SWALE_OK 0\n",
    "tools/main.cc": 'add("verify");\n',
    "bench/scan.cc": "int main() {}\n",
    "Makefile": "test: ## tests\n",
    "docs/other.md": "# Other\n\n## Some heading: `x`\n",
}
TASKS = "| task | begin at | in |\n|---|---|---|\n"
# A text of docs/page.md and what must be said of it; "" means nothing.
CANARIES = [
    ("`Reader`, `Reader::refresh`, `Reader::refresh()`, `refresh()`, `block_bytes_`, `kLimit`", ""),
    ("`Gone`", "Gone is not in the sources"),
    ("`kGone`", "kGone is not in the sources"),
    ("`Reader::elsewhere`", "Reader::elsewhere is not"),
    ("`gone()`", "gone is not in the sources"),
    ("`block_gone`", "block_gone is not"),
    ("`swale_open`, `swale_open(1)`, `SWALE_OK`, `imd.memory=1`, `write.time`, `SWALE_IMD_MEMORY`, "
     "`SWALE_IMD_*`", ""),
    ("`swale_gone`", "swale_gone is not"),
    ("```c\nswale_shut(1);\n```", "swale_shut is not"),
    ("`imd.gone=1`", "no option or counter is called imd.gone"),
    ("```console\n$ SWALE_IMD_GONE=1 ./a\n```", "SWALE_IMD_GONE is no variable"),
    ("`SWALE_GONE_*`", "SWALE_GONE_* is no variable"),
    ("`src/base/reader.h`, `src/base`, `src/base/*.h`, `src/base/{reader,other}.h`, `reader.h`", ""),
    ("`base/reader.h`, `base/Reader`, `base/reader`, `bench_scan`, `made.c`\n\n```console\n$ cc made.c\n```",
     ""),
    ("`src/base/gone.h`", "src/base/gone.h does not exist"),
    ("`base/gone.h`", "base/gone.h does not exist"),
    ("`base/Gone`", "base/Gone does not exist"),
    ("`bench_gone`", "bench_gone is not"),
    ("`src/base/{reader,gone}.h`", "does not exist"),
    ("`src/gone/*.h`", "does not exist"),
    ("`gone.h`", "no file is called gone.h"),
    ("`swale verify DIR`, `make test`", ""),
    ("`swale gone DIR`", "no subcommand gone"),
    ("`make gone`", "no target gone"),
    ("[a](other.md), [b](other.md#some-heading-x), [c](../Makefile), [d](https://example.org/gone)", ""),
    ("[a](gone.md)", "leads to nothing"),
    ("[a](other.md#gone)", "no such heading"),
    ("`[a](gone.md)`", ""),
    ("<!-- table: judged -->\n| `gone_key` |\n<!-- /table -->\n`gone_name`", "page.md:4: gone_name is not"),
    ("<!-- table: judged -->\n| `gone_key` |\n<!-- /table -->", ""),
    (TASKS + "| read | `Reader` | `src/base/reader.h`, `src/base/other.h` |\n", ""),
    (TASKS + "| read | `Reader` | `src/base/other.h`, `src/base/reader.h` |\n", "page.md:3: Reader, where a "
     "task begins, is not"),
    (TASKS + "| read | `Reader` | `src/base/reader.h` |\n| cut | `kGone` | `src/base/reader.h` |\n",
     "page.md:4: kGone, where"),
    (TASKS + "| read | `Reader` | the reader |\n", "a task has a name"),
    (TASKS + "| read | `src/base/reader.h` |\n", "a task has a name"),
]
# The same of a source.
SOURCE_CANARIES = [("// See docs/other.md.", ""),
                   ("// See docs/design/gone.md.", "docs/design/gone.md does not exist")]


def self_test():
    failures = []
    canaries = [("docs/page.md", *canary) for canary in CANARIES] + [("src/base/page.h", *canary)
                                                                     for canary in SOURCE_CANARIES]
    for page, text, expected in canaries:
        with tempfile.TemporaryDirectory(prefix="swale-docs-") as root:
            for path, content in {**SCRATCH, page: text + "\n"}.items():
                os.makedirs(os.path.dirname(os.path.join(root, path)) or root, exist_ok=True)
                with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                    file.write(content)
            found = check_tree(root)
        if expected and not any(expected in line for line in found) or not expected and found:
            failures.append(f"{text!r}: expected {expected or 'nothing'!r}, found {found}")
    return checker.canaries_noticed("check-docs.py", failures, f"docs: the check notices all "
                                    f"{sum(bool(expected) for _, _, expected in canaries)} canaries")


if __name__ == "__main__":
    sys.exit(checker.main(self_test, check_tree, "docs: what the pages name exists"))
