#!/usr/bin/env python3
"""figures.py keep IMD_JSON | write | check | --self-test: every measured figure of the pages has one source.

keep   makes docs/results/imd.json of a finished run of `make bench-imd`, without the lines of the single
programs. write  writes the tables and the marked numbers of README.md, docs/guide, docs/design and
docs/results/imd.md anew. check  says which table or number differs from its source, and which measured figure
names no source.

Marks are HTML comments, which no page shows. A number is followed by its mark, with up to 60 characters but
no digit between them; `write` keeps the unit and the number of digits:

    31.7 ns a record<!-- figure: index_cpu_ns_per_record -->     a judged key of imd.json (KEY:raw: not
    normalised) 0.08 ms<!-- figure: rocksdb-compacted/cold_us_p50 -->         a figure of one store of
    imd.json 181 µs a query<!-- from: history.md#reading -->               stands in that section of
    docs/results/history.md 2.6 µs<!-- from: compression.csv -->                          is a median of that
    file in docs/results 20 ns a record<!-- arithmetic -->                             computed or assumed on
    this page, not measured

A mark alone in its line holds for the paragraph or table after it. `<!-- table: NAME -->` to `<!-- /table
-->` is made by `write`. What stands below a heading with "arithmetic", "prediction" or "predicted", or in a
paragraph that begins with *Arithmetic*, needs no marks.
"""
import csv
import importlib.util
import json
import math
import os
import re
import statistics
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RESULTS = "docs/results"
KEPT = RESULTS + "/imd.json"
# Pages whose unmarked figures are errors. The one about measuring itself holds predictions beside results.
FOLDERS = ("docs/guide", "docs/design")
PAGES = ("README.md", RESULTS + "/imd.md")
ABOUT_MEASURING = ("docs/design/benchmarks.md",)

# In nanoseconds, or bytes.
UNITS = {"ns": 1, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9, "B": 1, "bytes": 1, "KB": 1e3, "KiB": 1024,
         "MB": 1e6,
         "MiB": 1 << 20, "GB": 1e9}  # fmt: skip
NUMBER = r"(?P<number>(?:(?<=\s)-)?\d[\d,]*(?:\.\d+)?)"  # a difference may be below zero
MARK = re.compile(NUMBER + r"(?P<words>[^\d<|]{0,60})<!-- (?P<kind>figure|from): (?P<source>\S+) -->")
BLOCK_MARK = re.compile(r"^<!-- (?P<kind>from|arithmetic)(?:: (?P<source>\S+))? -->$")
TABLE = re.compile(r"<!-- table: (?P<name>\S+) -->\n(?P<text>.*?)<!-- /table -->", re.DOTALL)
FOLLOWED = re.compile(r"[^\d<]{0,60}<!-- (?:figure|from|arithmetic)\b")
EXEMPT_HEADING = re.compile(r"arithmetic|predict", re.IGNORECASE)
EXEMPT_BLOCK = re.compile(r"\s*(?:[-*] )?\*(?:Arithmetic|Predicted)")
# Kinds of figures that the benchmark measures: (number and unit, what the sentence speaks of).
MEASURED = [
    (re.compile(NUMBER + r"\s?ns\b"), re.compile(r"\brecords?\b")),
    (re.compile(NUMBER + r"\s?(?:µs|us|ms)\b"), re.compile(r"\bquer(?:y|ies)\b|\btrajector(?:y|ies)\b")),
    (re.compile(NUMBER + r"\s?keys(?:/s| a second)"), re.compile("")),
]


def load(name):
    """A module of bench/, which may import others there."""
    sys.path.insert(0, os.path.join(ROOT, "bench"))
    spec = importlib.util.spec_from_file_location(name, os.path.join(ROOT, "bench", name + ".py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def short_table(result, report, stores):
    """Few rows for the README: the names and the numbers are those of the whole table."""
    yield report.row(["", "CPU to write, per record", "bytes out / in", "one trajectory, cold",
                      "opening and one trajectory"])
    yield report.row(["---"] * 5)
    for store in stores:
        entries = result["stores"].get(store, {})

        def value(key, entries=entries):
            return entries[key]["value"] if key in entries else None

        opened = value("open_and_query_ms")
        yield report.row([report.STORE_NAMES[store], f"{report.number(value('cpu_ns_per_record'))} ns",
                          report.number(value("bytes_ratio")), report.time_text(value("cold_us_p50")),
                          report.time_text(None if opened is None else opened * 1e3)])


def machine_text(result):
    machine, work = result["machine"], result["parameters"]
    yield (f"{machine['date'][:10]}, {machine['cores']} cores ({machine['cpu']}), Linux {machine['kernel']}, "
           f"{machine['file_system']}; {work['keys'] * work['epochs'] / 1e6:g} M records of "
           f"{work['key_bytes']} + "
           f"{work['value_bytes']} bytes in {work['epochs']} epochs; profile {result['profile']}, "
           f"{work['rounds']} rounds, "
           f"load average at the start {machine['load_average'][0]:.1f}.")


def tables(result):
    """{name: text} of what `write` puts between marks."""
    report = load("report")
    few = ("swale", "append", "leveldb-4m", "rocksdb-compacted", "duckdb")
    made = {"machine": machine_text(result), "judged": report.judged_table(result),
            "stores": report.stores_table(result),
            "stores-short": short_table(result, report, few)}
    return {name: "\n".join(lines) + "\n" for name, lines in made.items()}


class Sources:
    """What the marks of a tree may name."""

    def __init__(self, root):
        self.root = root
        with open(os.path.join(root, KEPT), encoding="utf-8") as file:
            self.result = json.load(file)

    def figure(self, key):
        """(value, unit) or None."""
        store, _, name = key.rpartition("/")
        name, _, raw = name.partition(":")
        entry = self.result["stores"].get(store, {}).get(name) if store else self.result["results"].get(name)
        if entry is None or entry["value"] is None or raw not in ("", "raw"):
            return None
        return (entry.get("raw", entry["value"]) if raw else entry["value"]), entry["unit"]

    def numbers(self, source):
        """The texts (of a page) or values (of a .csv) that a `from` may repeat; None if there is no such
        source.
        """
        name, _, section = source.partition("#")
        path = os.path.join(self.root, RESULTS, name)
        if not os.path.isfile(path):
            return None
        if name.endswith(".csv"):
            return medians(path)
        text = read(path)
        if section:
            found = re.search(rf"^## ({section.replace('-', ' ')})$(.*?)(?=^## |\Z)", text,
                              re.DOTALL | re.MULTILINE | re.IGNORECASE)
            if not found:
                return None
            text = found[2]
        return [parse(number) for number in re.findall(r"\d[\d,]*(?:\.\d+)?", text)]


def medians(path):
    """All medians over the rounds of a .csv: rows that differ only in numbers and in `round` are samples of
    one thing.
    """
    groups = {}
    with open(path, encoding="utf-8") as file:
        for row in csv.DictReader(file):
            row.pop("round", None)
            values, names = {}, []
            for column, cell in row.items():
                try:
                    values[column] = float(cell)
                except (TypeError, ValueError):
                    names.append(cell)
            for column, value in values.items():
                groups.setdefault((*names, column), []).append(value)
    return [statistics.median(samples) for samples in groups.values()]


def parse(number):
    return float(number.replace(",", ""))


def half_step(number):
    """Half of the last significant digit that a number shows; of 1,800 that is 50, of 300 it is 5: two digits
    at least.
    """
    decimals = len(number.partition(".")[2])
    if decimals:
        return 0.5 * 10**-decimals
    digits = number.replace(",", "").lstrip("-")
    zeros = min(len(digits) - len(digits.rstrip("0")), max(len(digits) - 2, 0))
    return 0.5 * 10**zeros


def written(value, like):
    """`value` with as many digits as `like` shows, two at least."""
    digits = like.replace(",", "").lstrip("-").lstrip("0.")
    shown = len(digits.replace(".", "")) if "." in digits or "." in like else len(digits.rstrip("0"))
    shown = max(shown, 2)
    exponent = math.floor(math.log10(abs(value))) if value else 0
    rounded = round(value, shown - 1 - exponent)
    return f"{rounded:,.{max(shown - 1 - exponent, 0)}f}"


def in_unit(value, unit, words):
    """`value` of `unit` in the unit that the first of the words names, if it names one."""
    first = re.match(r"\s*([A-Za-zµ]+)", words)
    shown = first[1] if first else ""
    return value * UNITS[unit] / UNITS[shown] if unit in UNITS and shown in UNITS else value


def agrees(value, number):
    return abs(value - parse(number)) <= half_step(number) * (1 + 1e-9)


def check_marks(text, sources):
    """(position, complaint) of each mark whose number differs from its source."""
    for found in MARK.finditer(text):
        number, source = found["number"], found["source"]
        if found["kind"] == "from":
            known = sources.numbers(source)
            if known is None:
                yield found.start(), f"{RESULTS}/{source} does not exist"
            elif not any(agrees(value, number) for value in known):
                yield found.start(), f"{number} does not stand in {RESULTS}/{source}"
            continue
        figure = sources.figure(source)
        if figure is None:
            yield found.start(), f"{KEPT} has no figure {source}"
        else:
            value = in_unit(*figure, found["words"])
            if not agrees(value, number):
                yield found.start(), (f"{number} is {written(value, number)} in {KEPT} ({source}); "
                                      "'figures.py write' mends")


def check_tables(text, made):
    for found in TABLE.finditer(text):
        if found["name"] not in made:
            yield found.start(), f"no table is called {found['name']}: {', '.join(made)}"
        elif found["text"] != made[found["name"]]:
            yield found.start(), (f"the table {found['name']} is not the one of {KEPT}; "
                                  "'figures.py write' mends")


def blocks(text):
    """(start, block, mark, headings) of each paragraph, list item and table row outside of code and made
    tables.

    mark is that of the line before the block, headings those above it; a table row is preceded by its table's
    head.
    """
    headings, mark, head, fenced, made = {}, None, "", False, False
    start, lines = 0, []
    position = 0

    def done():
        if lines:
            yield start, "".join(lines), mark, " / ".join(headings.values())
        lines.clear()

    for line in text.splitlines(keepends=True):
        bare = line.strip()
        fence, here = bare.startswith("```"), position
        position += len(line)
        if fence:
            fenced = not fenced
        made = made and not bare.startswith("<!-- /table") or bare.startswith("<!-- table:")
        row = bare.startswith("|")
        if fence or fenced or made or not bare or bare.startswith(("#", "- ",
                                                                   "* ")) or BLOCK_MARK.match(bare) or row:
            yield from done()
        if not row:
            head = ""
        if fence or fenced or made:
            continue
        if not bare:
            mark = mark if mark and mark.fresh else None
        elif bare.startswith("#"):
            level = len(bare) - len(bare.lstrip("#"))
            headings = {l: h for l, h in headings.items() if l < level} | {level: bare}
        elif BLOCK_MARK.match(bare):
            mark = Mark(here, BLOCK_MARK.match(bare))
        elif row:
            if mark:
                mark.fresh = False
            if not head:
                head = line
            else:
                yield here - len(head), head + line, mark, " / ".join(headings.values())
        else:
            if mark:
                mark.fresh = False
            if not lines:
                start = here
            lines.append(line)
    yield from done()


class Mark:
    """A mark alone in its line. fresh: nothing has followed yet."""

    def __init__(self, position, match):
        self.position, self.kind, self.source, self.fresh = position, match["kind"], match["source"], True


def check_unmarked(text, sources):
    """Figures of a measured kind that name no source; and those below a mark of a block that its source has
    not.
    """
    for start, block, mark, headings in blocks(text):
        row = block.partition("\n")[2] if block.startswith("|") else ""
        offset = len(block) - len(row) if row else 0
        for pattern, subject in MEASURED:
            for found in pattern.finditer(block, offset):
                if FOLLOWED.match(block, found.end()) or EXEMPT_HEADING.search(
                    headings) or EXEMPT_BLOCK.match(block):
                    continue
                if not subject.search(block if row else sentence(block, found.start())):
                    continue
                if mark is None:
                    yield start + found.start(), f"{found[0]!r} names no source (see scripts/figures.py)"
                elif mark.kind == "from":
                    known = sources.numbers(mark.source)
                    if known is None:
                        yield mark.position, f"{RESULTS}/{mark.source} does not exist"
                    elif not any(agrees(value, found["number"]) for value in known):
                        yield start + found.start(), f"{found[0]!r} does not stand in {RESULTS}/{mark.source}"


def sentence(block, position):
    ends = [0, *(found.end() for found in re.finditer(r"[.!?:]\s+(?=[A-Z*`(])", block)), len(block)]
    index = max(i for i, end in enumerate(ends[:-1]) if end <= position)
    return block[ends[index]:ends[index + 1]]


def pages(root):
    for page in PAGES:
        if os.path.isfile(os.path.join(root, page)):
            yield page
    for folder in FOLDERS:
        for name in sorted(os.listdir(os.path.join(root, folder))) if os.path.isdir(
            os.path.join(root, folder)) else []:
            if name.endswith(".md"):
                yield f"{folder}/{name}"


def check(root):
    """All complaints, as lines."""
    sources, found = Sources(root), []
    made = tables(sources.result)
    for page in pages(root):
        text = read(os.path.join(root, page))
        wrong = [*check_marks(text, sources), *check_tables(text, made)]
        if page not in ABOUT_MEASURING:
            wrong += check_unmarked(text, sources)
        found += [f"{page}:{text.count(chr(10), 0, position) + 1}: {complaint}" for position,
                  complaint in sorted(wrong)]
    return found


def write(root):
    sources = Sources(root)
    made = tables(sources.result)

    def number(match):
        figure = sources.figure(match["source"]) if match["kind"] == "figure" else None
        if figure is None:
            return match[0]
        value = in_unit(*figure, match["words"])
        if agrees(value, match["number"]):
            return match[0]
        return written(value, match["number"]) + match[0][len(match["number"]):]

    for page in pages(root):
        path = os.path.join(root, page)
        before = read(path)
        after = TABLE.sub(lambda found: f"<!-- table: {found['name']} "
                          f"-->\n{made.get(found['name'], found['text'])}"
                                        "<!-- /table -->", before)
        after = MARK.sub(number, after)
        if after != before:
            with open(path, "w", encoding="utf-8") as file:
                file.write(after)
            print(f"{page}: written")


def keep(root, source):
    with open(source, encoding="utf-8") as file:
        result = json.load(file)
    if result["profile"] != "full":
        sys.exit(f"figures.py: {source} is a run of profile {result['profile']}; only full ones are kept")
    result.pop("lines", None)
    with open(os.path.join(root, KEPT), "w", encoding="utf-8") as file:
        file.write(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    print(f"{KEPT}: kept; now 'scripts/figures.py write'")


# One fault of each kind: (page, its text, what must be said of it). "" means nothing.
CANARIES = [
    ("README.md", "Indexing costs 31.7 ns a record<!-- figure: a_ns -->.", ""),
    ("README.md", "Indexing costs 32 ns a record<!-- figure: a_ns -->.", ""),
    ("README.md", "Indexing costs 33 ns a record<!-- figure: a_ns -->.", "33 is 32"),
    ("README.md", "Indexing costs 40 ns a record<!-- figure: a_ns:raw -->.", ""),
    ("README.md", "Indexing costs 32 ns a record<!-- figure: a_ns:raw -->.", "32 is 40"),
    ("README.md", "A query takes 0.26 ms<!-- figure: swale/cold_us -->.", ""),
    ("README.md", "A query takes 0.27 ms<!-- figure: swale/cold_us -->.", "0.27 is 0.26"),
    ("README.md", "A query takes 260 µs<!-- figure: swale/warm_us -->.", "no figure swale/warm_us"),
    ("README.md", "The difference is -0.433 ns a record<!-- figure: b_ns -->.", ""),
    ("README.md", "The difference is 0.433 ns a record<!-- figure: b_ns -->.", "0.433 is -0.433"),
    ("docs/guide/a.md", "Indexing costs 31 ns a record.", "names no source"),
    ("docs/design/a.md", "A cold query\ntakes 200 µs.", "names no source"),
    ("docs/design/a.md", "| | a record |\n|---|---|\n| lz4 | 31 ns |", "names no source"),
    ("docs/design/a.md", "It finds 800,000 keys a second.", "names no source"),
    ("docs/design/a.md", "A copy takes 200 µs. A query does not copy.", ""),
    ("docs/design/a.md", "## Arithmetic\n\nA query takes 200 µs.", ""),
    ("docs/design/a.md", "*Arithmetic.* A query takes 200 µs.", ""),
    ("docs/design/a.md", "## Choice\n\nA query takes 200 µs<!-- arithmetic -->.", ""),
    ("docs/design/a.md", "```\na query: 200 µs\n```", ""),
    ("docs/design/a.md", "A query takes 181 µs<!-- from: history.md#reading-fast -->.", ""),
    ("docs/design/a.md", "A query takes 182 µs<!-- from: history.md#reading-fast -->.", "does not stand in"),
    ("docs/design/a.md", "A query takes 181 µs<!-- from: history.md#writing -->.", "does not exist"),
    ("docs/guide/a.md", "<!-- from: a.csv -->\n\n| | a record |\n|---|---|\n| lz4 | 20 ns |", ""),
    ("docs/guide/a.md", "<!-- from: a.csv -->\n\n| | a record |\n|---|---|\n| lz4 | 40 ns |",
     "does not stand in"),
    ("docs/guide/a.md", "<!-- from: a.csv -->\n\nA record takes 20 ns.\n\nAnd a record 30 ns.",
     "names no source"),
    ("README.md", "<!-- table: judged -->\nold\n<!-- /table -->", "is not the one of"),
    ("README.md", "<!-- table: other -->\nold\n<!-- /table -->", "no table is called"),
]  # fmt: skip
FIGURE = {"value": 31.74, "raw": 40.0, "raw_min": 38.0, "raw_max": 44.0, "factor": 1.26, "unit": "ns",
          "met": True, "aim_met": False,
          "must": 40, "aim": 26, "less_is_better": True, "what": "w", "min": 31, "max": 32,
          "samples": [31.74]}
SCRATCH = {
    KEPT: json.dumps({
        "machine": {"date": "2026-01-01T", "cores": 2, "cpu": "x", "kernel": "6", "file_system": "y",
                    "load_average": [0.1]},
        "profile": "full",
        "parameters": {"keys": 4, "epochs": 5, "key_bytes": 8, "value_bytes": 40, "rounds": 1},
        "results": {"a_ns": FIGURE, "b_ns": {**FIGURE, "value": -0.433, "must": None, "aim": None,
                                             "met": None, "aim_met": None}},
        "stores": {"swale": {name: {"value": value, "unit": unit} for name, value, unit in (
            ("cold_us", 260.3, "us"), ("cpu_ns_per_record", 31.7, "ns"), ("records", 2e7, ""),
            ("bytes_ratio", 1.03, ""))}},
    }),
    RESULTS + "/history.md": "# History\n\n## Reading fast\n\nIt took 181 µs.\n",
    RESULTS + "/a.csv": "codec,round,write_ns\nlz4,0,10.1\nlz4,1,20.2\nlz4,2,30.3\n",
}  # fmt: skip


def self_test():
    failures = []
    for page, text, expected in CANARIES:
        with tempfile.TemporaryDirectory(prefix="swale-figures-") as root:
            for path, content in {**SCRATCH, page: "# Page\n\n" + text + "\n"}.items():
                os.makedirs(os.path.dirname(os.path.join(root, path)) or root, exist_ok=True)
                with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                    file.write(content)
            found = check(root)
            if expected and not any(expected in line for line in found) or not expected and found:
                failures.append(f"{text!r}: expected {expected or 'nothing'!r}, found {found}")
            if "mends" in "".join(found):
                with open(os.devnull, "w", encoding="utf-8") as nothing:
                    sys.stdout, out = nothing, sys.stdout
                    write(root)
                    sys.stdout = out
                if check(root):
                    failures.append(f"{text!r}: 'write' left {check(root)}")
    for failure in failures:
        print(f"figures.py: {failure}", file=sys.stderr)
    if not failures:
        print(f"figures: the check notices all {sum(bool(expected) for _, _, expected in CANARIES)} canaries")
    return 1 if failures else 0


def main():
    words = sys.argv[1:]
    if words == ["--self-test"]:
        return self_test()
    if words == ["write"]:
        write(ROOT)
        return 0
    if len(words) == 2 and words[0] == "keep":
        keep(ROOT, words[1])
        return 0
    if words != ["check"]:
        sys.exit(__doc__)
    found = check(ROOT)
    for line in found:
        print(line)
    if not found:
        print("figures: every measured figure agrees with its source")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
