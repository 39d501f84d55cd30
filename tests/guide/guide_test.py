"""guide_test.py BUILD SOURCE: everything in docs/guide that can be run is run, as a reader would who starts
with the first page; or --self-test.

The pages are read in the order of docs/guide/README.md, in one shell, with a new folder as HOME and the
source tree as the working folder. What stands between fences:
  console           a line that begins with "$ " is a command (lines that begin with "> " continue it), and
  the lines
                    below are what it prints, if any are given: "..." stands for any text in a line, and alone
                    in a line for any lines. Every command ends with status 0.
  console fails     the same, but the last command fails.
  LANGUAGE title="FILE"   becomes FILE in the working folder; some later command must use it.
  pycon, shell      are left to python/tests/test_guide.py: they need the Python package.
  text              is not run. Code of a language without a title is an error, so nothing stays unrun by
  accident.
`make install` takes BUILD, which is finished, instead of building (SWALE_BUILD); with - in place of BUILD it
builds.
"""
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

FENCE = re.compile(r'^```(?P<language>[a-z+]*) *(?P<rest>.*)$')
TITLE = re.compile(r'title="([\w.-]+)"$')
MARK = "== end of the command:"


class Wrong(Exception):
    """What the reader would stumble over."""


def blocks(text, page):
    """[(place, language, rest of the fence's line, lines)] of a page."""
    found, inside = [], None
    for number, line in enumerate(text.splitlines(), 1):
        fence = FENCE.match(line)
        if inside is None and fence:
            inside = (f"{page}:{number}", fence["language"], fence["rest"], [])
        elif inside is not None and line == "```":
            found.append(inside)
            inside = None
        elif inside is not None:
            inside[3].append(line)
    if inside is not None:
        raise Wrong(f"{inside[0]}: the fence is never closed")
    return found


def commands(lines, place):
    """[(command, expected lines)] of a console block."""
    found = []
    for line in lines:
        if line.startswith("$ "):
            found.append([line[2:], []])
        elif not found:
            raise Wrong(f"{place}: output before the first command: {line}")
        elif line.startswith("> ") and not found[-1][1]:
            found[-1][0] += "\n" + line[2:]
        else:
            found[-1][1].append(line.rstrip())
    return found


def as_expected(expected, printed):
    pattern = "".join(r"(?:.*\n)*?" if line == "..." else ".*".join(map(re.escape, line.split("...")))
                      + r"[ \t]*\n"
                      for line in expected)
    return re.fullmatch(pattern, printed if printed.endswith("\n") or not printed
                        else printed + "\n") is not None


class Shell:
    """A bash that keeps its variables and its folder from one command to the next."""

    def __init__(self, home, folder, **variables):
        environment = {name: text for name, text in os.environ.items() if not name.startswith((
            "SWALE_", "OMPI_", "CMAKE_", "PKG_CONFIG", "LD_LIBRARY", "MAKE", "MFLAGS", "DESTDIR", "PREFIX"))}
        # In some virtual machines Open MPI 5 complains of its network; docs/guide/faq.md tells the reader.
        environment.update(variables, HOME=home, OMPI_MCA_btl_tcp_if_include="lo")
        self.process = subprocess.Popen(["bash", "--norc", "--noprofile"], cwd=folder, env=environment,
                                        text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT)

    def run(self, command):
        """(status, what it printed)."""
        if re.search(r"swale (iond|run)\b", command) and os.geteuid() == 0:  # which refuse to run as root
            command = ("chown -R 65533:65533 . && setpriv --reuid=65533 --regid=65533 --clear-groups bash -c "
                       f"{shlex.quote(command)}")
        self.process.stdin.write(f"{{ {command}\n}} < /dev/null 2>&1; printf '\\n{MARK} %d\\n' $?\n")
        self.process.stdin.flush()
        printed = []
        for line in self.process.stdout:
            if line.startswith(MARK):
                text = "".join(printed)
                return int(line[len(MARK):]), text[:-1] if text.endswith("\n") else text
            printed.append(line)
        raise Wrong(f"the shell ended in: {command}\n{''.join(printed)}")

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(timeout=60)


class Walk:
    """One reader's way through the pages."""

    def __init__(self, shell, source="nowhere"):
        self.shell, self.source = shell, source
        self.counts = {"commands": 0, "outputs": 0, "files": 0}

    def page(self, text, name):
        unused = {}
        for place, language, rest, lines in blocks(text, name):
            title = TITLE.match(rest)
            if language == "console" and rest in ("", "fails"):
                for used in list(unused):
                    if used in "\n".join(lines) or used == "CMakeLists.txt" and "cmake" in "\n".join(lines):
                        del unused[used]
                self.console(commands(lines, place), place, rest == "fails")
            elif title:
                content = "\n".join(lines)
                if self.must("pwd -P", place).strip() == self.source:
                    raise Wrong(f"{place}: {title[1]} would be written into the source tree: say cd before")
                self.must(f"cat > {title[1]} << 'END OF THE FILE'\n{content}\nEND OF THE FILE", place)
                for used in list(unused):
                    if used in content:
                        del unused[used]
                unused[title[1]] = place
                self.counts["files"] += 1
            elif language in ("pycon", "shell") and not rest:
                continue  # python/tests/test_guide.py runs it, where the package is installed
            elif language != "text" or rest:
                raise Wrong(f"{place}: ```{language} {rest}: is nothing that could be run, and not text "
                            f"either")
        for title, place in unused.items():
            raise Wrong(f"{place}: no command uses {title}")

    def must(self, command, place):
        status, printed = self.shell.run(command)
        if status != 0:
            raise Wrong(f"{place}: $ {command}\nended with status {status}:\n{printed}")
        return printed

    def console(self, steps, place, last_fails):
        for number, (command, expected) in enumerate(steps, 1):
            if last_fails and number == len(steps):
                status, printed = self.shell.run(command)
                if status == 0:
                    raise Wrong(f"{place}: $ {command}\nshould have failed, and printed:\n{printed}")
            else:
                printed = self.must(command, place)
            self.counts["commands"] += 1
            if expected:
                self.counts["outputs"] += 1
                if not as_expected(expected, printed):
                    wanted = "\n".join(expected)
                    raise Wrong(f"{place}: $ {command}\nshould have printed\n{wanted}\nand "
                                f"printed\n{printed}")


CANARIES = [
    ("```console\n$ echo one\ntwo\n```", "should have printed"),
    ("```console\n$ printf 'a\\nb\\n'\na\n```", "should have printed"),
    ("```console\n$ false\n```", "ended with status 1"),
    ("```console fails\n$ true\n```", "should have failed"),
    ("```c\nint x;\n```", "nothing that could be run"),
    ('```c title="x.c"\nint x;\n```', "no command uses x.c"),
    ('```c title="x.c"\nint main(void) { return missing; }\n```\n```console\n$ cc x.c\n```', "missing"),
    ("```console\nhello\n```", "before the first command"),
    ("```console\n$ exit 3\n```", "the shell ended"),
    ("```console\n$ true", "never closed"),
]
GOOD = """```console
$ export GREETING=hello
$ echo "$GREETING" \\
> there
hello ...re
```
```text
not run
```
```sh title="three.sh"
echo one; echo two; echo three $0
```
```console fails
$ sh three.sh
one
...
three three.sh
$ cat; ls /nowhere
...
```
"""


def self_test():
    with tempfile.TemporaryDirectory(prefix="swale-test-") as home:
        def walk(text):
            shell = Shell(home, home)
            try:
                way = Walk(shell)
                way.page(text, "canary")
                return way.counts
            finally:
                shell.close()
        assert walk(GOOD) == {"commands": 4, "outputs": 3, "files": 1}, walk(GOOD)
        for text, reason in CANARIES:
            try:
                walk(text)
            except Wrong as wrong:
                assert reason in str(wrong), (reason, str(wrong))
            else:
                sys.exit(f"guide_test.py: this canary went unnoticed:\n{text}")
    options = {"imd.memory"}
    assert dead_references("`imd.memory`, [a](guide_test.py), io.h", os.path.dirname(__file__) or ".",
                           options) == []
    assert len(dead_references("`write.memori`, [a](gone.md)", ".", options)) == 2
    print(f"the guide's test notices all {len(CANARIES) + 2} canaries")


def pages(folder):
    """README.md and the pages that it links to, in that order; every page must be linked."""
    with open(os.path.join(folder, "README.md"), encoding="utf-8") as file:
        linked = re.findall(r"\]\((\w[\w-]*\.md)\)", file.read())
    order = ["README.md"] + list(dict.fromkeys(linked))
    left_out = sorted(name for name in os.listdir(folder) if name.endswith(".md") and name not in order)
    if left_out:
        raise Wrong(f"docs/guide/README.md does not link to {', '.join(left_out)}")
    return order


# With the sections of former names, so that these are found as names that are no more.
# In quotes stand names of counters, such as "read.bytes".
OPTION = re.compile(r"(?<![\w./\"-])(?:job|net|io|imd|write|read|dir)\.[a-z][a-z_]+\b(?!\()")
LINK = re.compile(r"\]\(([^)#]+)[^)]*\)")


def dead_references(text, folder, options):
    """What a page names that is not there: options, and files that it links to."""
    found = [f"there is no option {name}" for name in sorted(set(OPTION.findall(text)) - options)]
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    return found + [f"a link leads to {target}, which is not there" for target in LINK.findall(prose)
                    if "://" not in target and not os.path.exists(os.path.join(folder, target))]


def options_of(shell):
    """The options that the reader's own command knows, once the guide has installed it."""
    status, printed = shell.run("swale config --json")
    assert status == 0, printed
    options = {json.loads(line)["name"] for line in printed.splitlines()}
    assert {"imd.memory", "imd.schema", "imd.map"} <= options, options
    return options


def main():
    if sys.argv[1:] == ["--self-test"]:
        self_test()
        return
    build, source = sys.argv[1:3]
    source = os.path.realpath(source)
    finished = {} if build == "-" else {"SWALE_BUILD": os.path.realpath(build)}
    missing = [tool for tool in ("cc", "gfortran", "mpicc", "mpirun", "make", "cmake", "pkg-config")
               if not shutil.which(tool)]
    if missing and "CI" not in os.environ:
        print(f"SKIPPED: the guide needs {', '.join(missing)}")
        sys.exit(77)
    guide = os.path.join(source, "docs/guide")
    with tempfile.TemporaryDirectory(prefix="swale-test-") as home:
        os.chmod(home, 0o755)  # for the user who runs an I/O server
        shell = Shell(home, source, **finished)
        try:
            walk = Walk(shell, source)
            order = pages(guide)
            texts = {}
            for name in order:
                with open(os.path.join(guide, name), encoding="utf-8") as file:
                    texts[name] = file.read()
                walk.page(texts[name], "docs/guide/" + name)
            options = options_of(shell)
            for name, text in texts.items():
                for reference in dead_references(text, guide, options):
                    raise Wrong(f"docs/guide/{name}: {reference}")
        except Wrong as wrong:
            sys.exit(f"guide_test.py: {wrong}")
        finally:
            shell.close()
    print("%d pages: %d commands run, %d outputs as stated, %d files used" % (
        len(order), *(walk.counts[name] for name in ("commands", "outputs", "files"))))
    if min(walk.counts.values()) == 0:
        sys.exit("guide_test.py: nothing was run")


main()
