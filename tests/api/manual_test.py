"""manual_test.py SWALE SWALE_MANUAL MAKE_PARTICLES DOCS: what is made of the commands' descriptions.

Man pages pass the checks of groff and mandoc, completions complete in bash, zsh and fish, and every example
of every manual is run in a directory of its own. Checks whose program is not installed are counted and named,
not passed over.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../mount"))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../security"))
import ordinary_user  # noqa: E402
import probe  # noqa: E402

SWALE, SWALE_MANUAL, MAKE_PARTICLES, DOCS = (os.path.abspath(path) for path in sys.argv[1:5])
# Each public header, and the page that lists its pages.
HEADERS = {os.path.join(DOCS, f"../include/swale/{name}.h"): "swale.3" if name == "swale"
           else name.replace("_", "-") + "-calls.3"
           for name in ("swale", "swale_meta", "swale_iond", "swale_tier", "swale_fs")}


def commands():
    """The names in `swale --help`."""
    text = subprocess.run([SWALE, "--help"], check=True, capture_output=True, text=True, timeout=60).stdout
    return re.findall(r"^  ([a-z-]+) {2,}\S", text.split("Subcommands:")[1].split("Exit status")[0],
                      re.MULTILINE)


def help_of(command):
    return subprocess.run([SWALE, command, "--help"], check=True, capture_output=True, text=True,
                          timeout=60).stdout


def examples_of(text):
    """The commands under "Examples:" of a help text: lines that are indented by two blanks."""
    return re.findall(r"^  (\S.*)$", text.split("\nExamples:\n")[1],
                      re.MULTILINE) if "\nExamples:\n" in text else []


def complaints_of_groff(text):
    done = subprocess.run(["groff", "-K", "utf8", "-man", "-ww", "-z", "-T", "utf8"], input=text,
                          capture_output=True, text=True, timeout=60)
    return done.stderr


def complaints_of_mandoc(text):
    done = subprocess.run(["mandoc", "-T", "lint", "-W", "warning"], input=text, capture_output=True,
                          text=True, timeout=60)
    # It looks for the pages that are named, on this machine.
    return "\n".join(line for line in done.stdout.splitlines() if "referenced manual not found" not in line)


class Manual(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.mkdtemp(prefix="swale-test-")
        subprocess.run([SWALE_MANUAL, cls.scratch, "2026-11-21", *HEADERS], check=True, timeout=60)
        cls.pages = {}
        for name in os.listdir(os.path.join(cls.scratch, "man")):
            with open(os.path.join(cls.scratch, "man", name), encoding="ascii") as file:
                cls.pages[name] = file.read()

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.scratch)

    def test_every_function_has_a_page(self):
        pages = {name.removesuffix(".3") for name in self.pages if name.endswith(".3")}
        for path, own_page in HEADERS.items():
            with open(path, encoding="utf-8") as file:
                header = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)
            functions = set(re.findall(r"^[a-z][\w ]*[ *](swale_\w+)\(", header, re.M))
            types = set(re.findall(r"^typedef struct (swale_\w+)", header,
                                   re.M)) | set(re.findall(r"^enum (swale_\w+)", header, re.M))
            self.assertGreater(len(functions), 10, path)
            self.assertEqual((functions | types) - pages, set())
            self.check_header(functions | types, own_page, os.path.basename(path))
        self.assertIn("struct_bytes", self.pages["swale_epoch_info.3"])
        self.assertIn("swale-tier-calls", self.pages["swale.3"].replace(r"\-", "-"))

    def test_declarations_that_share_a_comment_share_a_page(self):
        header = os.path.join(self.scratch, "swale_pair.h")
        with open(header, "w", encoding="utf-8") as file:
            file.write("/* Swale: a pair. */\n\n/* ---- Calls ---- */\n\n/* Begins it, and ends it. */\n"
                       "int swale_pair_begin(int step);\nint swale_pair_end(void);\n")
        folder = os.path.join(self.scratch, "pair")
        os.mkdir(folder)
        subprocess.run([SWALE_MANUAL, folder, "2026-11-21", header], check=True, timeout=60)
        with open(os.path.join(folder, "man", "swale_pair_end.3"), encoding="utf-8") as page:
            self.assertEqual(page.read(), ".so man3/swale_pair_begin.3\n")

    def check_header(self, names, own_page, header):
        for name in names:
            self.assertIn(name.replace("-", r"\-"), self.pages[own_page])
            text = self.pages[name + ".3"]
            target = re.fullmatch(r"\.so man3/(.*)\n", text)
            text = self.pages[target[1]] if target else text
            self.assertRegex(text, rf"\b{name}\b")
            self.assertRegex(text, r"\.SH NAME\n[^\n]+ \\- [^\n]{10}", name)
            self.assertIn(f"#include <swale/{header}>", text)

    def test_every_command_has_a_page_and_help_with_examples(self):
        names = commands()
        self.assertGreater(len(names), 9)
        self.assertEqual({name for name in self.pages if not name.endswith(".3")},
                         {"swale.1", "swale-options.7", "swale-directory.5"} |
                         {f"swale-{name}.1" for name in names})
        for name in names:
            text = help_of(name)
            self.assertTrue(examples_of(text), name)
            if name != "completion":
                self.assertIn("--json", text, name)
            self.assertIn(".SH EXAMPLES", self.pages[f"swale-{name}.1"])
            for option in re.findall(r"^ +(?:-\w,)?--([a-z0-9-]+)", text, re.MULTILINE):
                self.assertIn("\\-\\-" + option.replace("-", "\\-"), self.pages[f"swale-{name}.1"])

    def check_pages(self, complaints_of):
        for name, text in self.pages.items():
            if not text.startswith(".so "):  # leads to a page that is looked for where pages are installed
                self.assertEqual(complaints_of(text), "", name)
        # The canary: a request that does not exist, and one that lacks its argument.
        self.assertNotEqual(complaints_of(self.pages["swale.1"] + ".XY\n.so\n"), "")
        print(f"{complaints_of.__name__}: {len(self.pages)} pages")

    @unittest.skipUnless(shutil.which("groff"), "groff is not installed")
    def test_groff_has_no_complaints(self):
        self.check_pages(complaints_of_groff)

    @unittest.skipUnless(shutil.which("mandoc"), "mandoc is not installed")
    def test_mandoc_has_no_complaints(self):
        self.check_pages(complaints_of_mandoc)

    @unittest.skipUnless(shutil.which("man"), "man is not installed")
    def test_a_page_shows_what_it_says(self):
        done = subprocess.run(["man", "--warnings", "-l", os.path.join(self.scratch, "man", "swale-get.1")],
                              capture_output=True, text=True, timeout=60,
                              env=dict(os.environ, MANWIDTH="100", MANPAGER="cat", LC_ALL="C.UTF-8"))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        text = re.sub("\x1b\\[[0-9;]*m|.\b", "", done.stdout)
        self.assertIn("swale get [OPTION...] PATH [KEY...]", text)
        self.assertIn("swale get out/particles u64:17 --raw > trajectory.bin", text)

    def test_the_page_of_options_has_each_row_of_the_table(self):
        listed = subprocess.run([SWALE, "config", "--json"], check=True, capture_output=True, text=True,
                                timeout=60)
        rows = [json.loads(line) for line in listed.stdout.splitlines()]
        page = self.pages["swale-options.7"]
        self.assertEqual(len(rows), page.partition(".SH OPTIONS")[2].count(".TP\n"))
        for row in rows:
            self.assertIn("\\fB" + row["name"].replace("-", "\\-") + "\\fR", page)

    def bash_completes(self, *words):
        """What bash offers for the last word."""
        script = """
            source "$1"; shift
            COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
            compopt() { :; }
            _swale; printf '%s\\n' "${COMPREPLY[@]}" """
        done = subprocess.run(["bash", "--norc", "-c", script, "bash",
                               os.path.join(self.scratch, "completion", "swale.bash"), "swale", *words],
                              capture_output=True, text=True, timeout=60, cwd=self.scratch)
        self.assertEqual((done.returncode, done.stderr), (0, ""), words)
        return sorted(done.stdout.split())

    def test_bash_completes(self):
        self.assertEqual([word for word in self.bash_completes("") if not word.startswith("-")],
                         sorted(commands()))
        self.assertEqual(self.bash_completes("ver"), ["verify"])
        self.assertEqual(self.bash_completes("get", "--ep"), ["--epoch", "--epochs"])
        self.assertEqual(self.bash_completes("completion", ""), ["bash", "fish", "zsh"])
        self.assertEqual(self.bash_completes("config", "--for", ""), ["iond", "job", "meta", "read", "tier",
                                                                      "write"])
        self.assertEqual(self.bash_completes("get", "comp"), ["completion"], "a folder of the current one")
        self.assertEqual(self.bash_completes("get", "--epoch", ""), [])
        for name in commands():
            offered = self.bash_completes(name, "-")
            for option in re.findall(r"^ +(?:-\w,)?(--[a-z0-9-]+)", help_of(name), re.MULTILINE):
                self.assertIn(option, offered, name)
        for shell, name in (("bash", "swale.bash"), ("zsh", "_swale"), ("fish", "swale.fish")):
            with open(os.path.join(self.scratch, "completion", name), encoding="ascii") as file:
                self.assertEqual(file.read(), subprocess.run([SWALE, "completion", shell], check=True,
                                                             text=True, capture_output=True,
                                                             timeout=60).stdout)

    @unittest.skipUnless(shutil.which("fish"), "fish is not installed")
    def test_fish_completes(self):
        def fish_completes(line):
            done = subprocess.run(["fish", "--no-config", "-c", f"source completion/swale.fish; complete -C "
                                   f"'{line}'"],
                                  capture_output=True, text=True, timeout=60, cwd=self.scratch,
                                  env=dict(os.environ, HOME=self.scratch))
            self.assertEqual((done.returncode, done.stderr), (0, ""), line)
            offers = [offer.split("\t")[0] for offer in done.stdout.splitlines()]
            # fish 4 lists what matches less well, too: "--step" for "--ep".
            return sorted(offer for offer in offers if offer.startswith(line.split(" ")[-1]))
        self.assertEqual(fish_completes("swale "), sorted(commands()))
        self.assertEqual(fish_completes("swale get --ep"), ["--epoch", "--epochs"])
        self.assertEqual(fish_completes("swale config --for "), ["iond", "job", "meta", "read", "tier",
                                                                 "write"])
        self.assertEqual(fish_completes("swale completion "), ["bash", "fish", "zsh"])
        self.assertIn("completion/", fish_completes("swale get c"))

    @unittest.skipUnless(shutil.which("zsh"), "zsh is not installed")
    def test_zsh_completes(self):
        # A shell on a pseudo terminal is asked to list: zsh completes nowhere else.
        script = """
            zmodload zsh/zpty; zpty shell 'zsh -f -i'
            send() { zpty -w shell "$1" }
            send 'PS1=; PROMPT_EOL_MARK=; autoload -Uz compinit; compinit -D'
            send 'source completion/_swale; echo re""ady'
            zpty -r -m shell out '*ready*'
            zpty -n -w shell "$2"$'\\t\\t'
            zpty -r -m shell out "*$3*" && print -r -- "$out" """
        for line, offered in (("swale ver", "swale verify"), ("swale get --ep", "swale get --epoch"),
                              ("swale config --for w", "write")):
            done = subprocess.run(["zsh", "-f", "-c", script, "zsh", line, line, offered],
                                  capture_output=True, text=True, timeout=60, cwd=self.scratch,
                                  env=dict(os.environ, TERM="vt100", HOME=self.scratch))
            self.assertIn(offered, done.stdout, (line, done.stderr))

    def test_the_examples_work(self):
        """All of them, in bash, with a new directory out/particles for each command."""
        ran = 0
        environment = dict(os.environ, PATH=os.path.dirname(SWALE) + os.pathsep + os.environ["PATH"],
                           LD_LIBRARY_PATH=os.path.join(os.path.dirname(SWALE), "../src/capi"),  # of fabrics
                           OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                           # Open MPI 4, 5
                           OMPI_MCA_rmaps_base_oversubscribe="1",
                           PRTE_MCA_rmaps_default_mapping_policy=":oversubscribe")
        for command in commands():
            folder = tempfile.mkdtemp(dir=self.scratch)
            subprocess.run([MAKE_PARTICLES, os.path.join(folder, "out", "particles")], check=True, timeout=60)
            for example in examples_of(help_of(command)):
                self.assertIn("swale " + command.replace("-", " "), example)
                if "mount" in example and probe.no_mounts():
                    print(f"no FUSE mounts here: {probe.no_mounts()}: not run: {example}")
                    continue
                missing = [name for name in ("jq", "mpirun") if name in example and not shutil.which(name)]
                if missing:
                    print(f"{missing[0]} is not installed: not run: {example}")
                    continue
                # `head` ends those before it early, as it should.
                strict = [] if "| head" in example else ["-o", "pipefail"]
                words = ["bash", *strict, "-c", example]
                users_mount = None
                if command in ("iond", "iond-mount", "run"):  # which refuse to run as root
                    os.chmod(self.scratch, 0o755)
                    ordinary_user.give(folder)
                    words = ordinary_user.words(*words)
                    users_mount = ordinary_user.let_users_mount if command == "iond-mount" else None
                done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True,
                                      timeout=60, preexec_fn=users_mount)
                self.assertEqual(done.returncode, 0, (example, done.stderr))
                self.assertEqual(re.sub("swale: (left out|.* has no extrema|the program has ended without "
                                        "its I/O servers):? .*\n", "", done.stderr), "", example)
                if ">" not in example and "select(.origin" not in example and "source" not in example:
                    self.assertTrue(done.stdout.strip() or "problems" in example, example)
                ran += 1
        self.assertGreater(ran, 20)
        print(f"{ran} examples of {len(commands())} commands were run")


unittest.main(argv=sys.argv[:1])
