#!/usr/bin/env python3
"""run-tests.py TEST_PRESET [CTEST_ARGUMENT...]: runs ctest and refuses a green run that tested less than it
should.

ctest alone calls a run good when a test program ran no case, when a test was disabled, or when a test file
was never added to the build. Here each of these fails the run. Skipped cases of every runner (GoogleTest,
unittest, ctest's own) are counted and listed, with their reasons where the runner says them. With CI in the
environment any of them fails the run, except for cases that the machine's kernel or container does not allow
(MACHINE_LACKS): no package can bring that. ctest's own closing line is printed last. With --self-test it
shows that it notices.

Root's tests start servers and neighbours as other users, who must get into the checkout. Where a folder above
it lets nobody in (/root), all is run in a namespace of its own, in which that folder is open.
"""
import json
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TESTED_FOLDERS = ("src", "sim", "tools", "tests", "bench", "examples")
# What is built only where its needs (MPI, LAMMPS) are found, and so may be missing; it is then named.
OPTIONAL_FOLDERS = ("examples",)
CLOSING_LINE = re.compile(r"^\d+% tests passed, \d+ tests? failed out of \d+")
DIVIDER = re.compile(r"^\d+/\d+ Testing: (\S+)$")
CASES = re.compile(r"^\[==========\] Running (\d+) tests? from", re.MULTILINE)
SKIP = re.compile(r"^[^\n]*: Skipped\n(?P<reason>[^\n]*)\n+\[  SKIPPED \] (?P<case>\S+) \(", re.MULTILINE)
SKIPPED_CASES = re.compile(r"^\[  SKIPPED \] (\d+) tests?, listed below", re.MULTILINE)
UNITTEST_CASES = re.compile(r"^Ran (\d+) tests? in ", re.MULTILINE)
UNITTEST_SKIPS = re.compile(r"^(?:OK|FAILED) \([^)\n]*skipped=(\d+)", re.MULTILINE)
UNITTEST_REASON = re.compile(r"^(?P<case>\S+) \([^\n]*\.\.\. skipped ['\"](?P<reason>[^\n]*)['\"]$",
                             re.MULTILINE)
OWN_REASON = re.compile(r"^SKIPPED: (.*)$", re.MULTILINE)
# Tests say so only after they have tried it.
MACHINE_LACKS = re.compile(r": no (FUSE mounts|namespaces of hosts|Slurm|100000 open files) here: ")
CTEST_SKIP = re.compile(r"^ *\d+/\d+ Test +#\d+: (\S+) .*\*\*\*Skipped ")


# In place of folder $1 one that lets all in, with the same in it; then the rest of the words.
OPEN_WAY = """set -e; shopt -s dotglob nullglob
away=$(mktemp -d); mount --rbind "$1" "$away"; mount -t tmpfs -o mode=755 none "$1"
for each in "$away"/*; do
  there=$1/${each##*/}
  if [ -L "$each" ]; then cp -P "$each" "$there"; continue; fi
  if [ -d "$each" ]; then mkdir "$there"; else touch "$there"; fi
  mount --rbind "$each" "$there"
done
umount -l "$away"; rmdir "$away"; cd "$PWD"; shift; exec "$@"
"""


def open_way():
    """Starts this program again where other users get in, if they do not here. Returns if they do, or cannot
    be helped.
    """
    above, closed = os.path.dirname(ROOT), ""
    while above != "/":
        closed = closed if os.stat(above).st_mode & 0o001 else above
        above = os.path.dirname(above)
    if os.geteuid() != 0 or not closed or os.environ.get("SWALE_TESTS_WAY") == closed:
        return
    unshare = next((words for words in own_mounts()
                    if subprocess.run([*words, "true"], stderr=subprocess.DEVNULL,
                                      check=False).returncode == 0), None)
    if not unshare:
        return
    print(f"run-tests.py: {closed} lets no other user in: the tests run in a namespace in which it does",
          flush=True)
    os.environ["SWALE_TESTS_WAY"] = closed
    os.execvp("unshare", [*unshare, "bash", "-c", OPEN_WAY, "bash", closed, sys.executable,
                          os.path.abspath(__file__), *sys.argv[1:]])


def own_mounts():
    """Commands that give the words after them mounts of their own. Below chroot no mount can be made private;
    it may be so.
    """
    yield ["unshare", "--mount"]
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as mounts:
        if " shared:" not in mounts.read():
            yield ["unshare", "--mount", "--propagation", "unchanged"]


def build_folder(test_preset):
    with open(os.path.join(ROOT, "CMakePresets.json"), encoding="utf-8") as file:
        presets = {preset["name"]: preset for preset in json.load(file)["testPresets"]}
    if "configurePreset" not in presets.get(test_preset, {}):
        sys.exit(f"run-tests.py: CMakePresets.json has no test preset '{test_preset}'")
    return os.path.join(ROOT, "build", presets[test_preset]["configurePreset"])


def run_ctest(arguments):
    """Runs ctest, passing its output on except for the closing line. Returns (status, closing line, lines).
    """
    closing, lines = "", []
    with subprocess.Popen(["ctest", *arguments], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors="replace") as process:
        for line in process.stdout:
            if CLOSING_LINE.match(line):
                closing = line.rstrip()
            else:
                print(line, end="", flush=True)
            lines.append(line)
    return process.returncode, closing, lines


def outputs(log):
    """The output of each test of a run, by name; `log` is the text of ctest's LastTest.log."""
    result, name = {}, None
    for line in log.splitlines(keepends=True):
        divider = DIVIDER.match(line)
        if divider:
            name = divider[1]
            result[name] = []
        elif name:
            result[name].append(line)
    return {name: "".join(lines) for name, lines in result.items()}


def test_files():
    for top in TESTED_FOLDERS:
        for folder, _, names in os.walk(os.path.join(ROOT, top)):
            for name in names:
                if name.endswith("_test.cc"):
                    yield os.path.relpath(os.path.join(folder, name), ROOT)


def builds_all_tests(test_preset):
    """Not so: the build of the fuzz targets has no test programs, and sanitizers cannot run some of them."""
    with open(os.path.join(ROOT, "CMakePresets.json"), encoding="utf-8") as file:
        configured = {preset["name"]: preset for preset in json.load(file)["configurePresets"]}
    name = os.path.basename(build_folder(test_preset))
    variables = configured[name].get("cacheVariables", {})
    return variables.get("SWALE_TESTS") != "OFF" and "SWALE_SANITIZE" not in variables


def unbuilt_test_files(build):
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        compiled = [entry["file"] for entry in json.load(file)]
    # Several sources may compile as one, which includes them (CMAKE_UNITY_BUILD).
    for unity in [path for path in compiled if "/Unity/" in path]:
        with open(unity, encoding="utf-8") as file:
            compiled += re.findall(r'^#include "(.+)"$', file.read(), re.MULTILINE)
    built = {os.path.relpath(os.path.realpath(path), os.path.realpath(ROOT)) for path in compiled}
    return sorted(path for path in test_files() if path not in built)


def skips(name, text):
    """One line for each case that the test `name` has skipped; `text` is its output."""
    found = []
    for reasons, counts in ((SKIP, SKIPPED_CASES), (UNITTEST_REASON, UNITTEST_SKIPS)):
        said = [f"  skipped {match['case']}: {match['reason']}" for match in reasons.finditer(text)]
        untold = sum(int(count) for count in counts.findall(text)) - len(said)
        found += said + [f"  skipped a case of {name}, which does not say why"] * untold
    return found


def judge(log, lines, unbuilt, in_ci):
    """Returns (remarks, problems) of a run: its log, what ctest printed, and the test files that are in no
    program.
    """
    remarks, problems, cases, skipped = [], [], 0, []
    ran = outputs(log)
    for name, text in ran.items():
        counts = [int(count) for runner in (CASES, UNITTEST_CASES) for count in runner.findall(text)]
        cases += sum(counts)
        if 0 in counts:
            problems.append(f"{name} ran no test case")
        skipped += skips(name, text)
    for name in (match[1] for match in map(CTEST_SKIP.match, lines) if match):
        reason = OWN_REASON.search(ran.get(name, ""))
        skipped.append(f"  skipped {name}: {reason[1] if reason else 'it does not say why'}")
    problems += [f"disabled: {line.strip()}" for line in lines if "Not Run (Disabled)" in line]
    for path in unbuilt:
        if path.split(os.sep)[0] in OPTIONAL_FOLDERS:
            remarks.append(f"not built here: {path}")
        else:
            problems.append(f"{path} is not part of the build: add it to its folder's CMakeLists.txt")
    remarks.append(f"{len(ran)} test programs ran {cases} cases; {len(skipped)} cases were skipped")
    avoidable = [line for line in skipped if not MACHINE_LACKS.search(line)]
    if in_ci and avoidable:
        problems.append(f"{len(avoidable)} cases were skipped, and CI is set: all of them have to run there")
    return remarks + skipped, problems


def self_test():
    log = ("1/5 Testing: full\n[==========] Running 3 tests from 1 test suite.\nfull_test.cc:7: "
           "Skipped\nneeds root\n\n"
           "[  SKIPPED ] Full.Mount (0 ms)\n[  SKIPPED ] 1 test, listed below:\n"
           "2/5 Testing: empty\n[==========] Running 0 tests from 0 test suites.\n"
           "3/5 Testing: python\n.s.\nRan 3 tests in 0.1s\n\nOK (skipped=1)\n"
           "4/5 Testing: verbose\ntest_man (m.T.test_man) ... skipped 'no man'\nRan 1 test in 0.1s\n\nOK "
           "(skipped=1)\n"
           "5/5 Testing: install\nSKIPPED: it needs cmake\n")
    no_mounts = "1/1 Testing: mount\n[==========] Running 1 test from 1 test suite.\n" \
                "m.cc:7: Skipped\nno FUSE mounts here: EPERM\n\n[  SKIPPED ] M.A (0 ms)\n" \
                "[  SKIPPED ] 1 test, listed below:\n"
    lines = ["3/3 Test #3: off ....***Not Run (Disabled)   0.00 sec\n",
             " 4/4 Test #4: install ....***Skipped   0.01 sec\n"]
    remarks, problems = judge(log, lines, ["src/io/lost_test.cc", "examples/lammps/lost_test.cc"],
                              in_ci=False)
    expected_remarks = ["not built here: examples/lammps/lost_test.cc",
                        "5 test programs ran 7 cases; 4 cases were skipped", "  skipped Full.Mount: needs "
                        "root",
                        "  skipped a case of python, which does not say why", "  skipped test_man: no man",
                        "  skipped install: it needs cmake"]
    seen = [any(word in problem for problem in problems) for word in ("empty ran no", "disabled: ",
                                                                      "src/io/lost")]
    in_ci = judge(log, lines, [], in_ci=True)[1]
    lacks = judge(no_mounts, [], [], in_ci=True)
    if remarks != expected_remarks or len(problems) != 3 or not all(
        seen) or "4 cases were skipped" not in in_ci[-1] \
            or lacks != (["1 test programs ran 1 cases; 1 cases were skipped",
                          "  skipped M.A: no FUSE mounts here: EPERM"], []):
        print(f"run-tests.py: self-test failed: {remarks} {problems} {in_ci} {lacks}", file=sys.stderr)
        return 1
    print("run-tests.py: notices empty programs, disabled tests, skipped cases and test files outside the "
          "build")
    return 0


def forged_seed():
    """Which part of the forged numbers a run tries, where it tries a share (tests/forged/forged_trials.h): of
    one commit always the same, of the next ones another."""
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True, text=True,
                            check=False).stdout
    return str(int(commit[:8] or "0", 16))


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    if sys.argv[1] == "--self-test":
        return self_test()
    open_way()
    build = build_folder(sys.argv[1])
    log_path = os.path.join(build, "Testing", "Temporary", "LastTest.log")
    if os.path.exists(log_path):
        os.remove(log_path)
    os.environ.setdefault("SWALE_FORGED_SEED", forged_seed())
    status, closing, lines = run_ctest(["--preset", *sys.argv[1:]])
    if not closing:
        return status or 1
    with open(log_path, encoding="utf-8", errors="replace") as file:
        unbuilt = unbuilt_test_files(build) if builds_all_tests(sys.argv[1]) else []
        remarks, problems = judge(file.read(), lines, unbuilt, in_ci=bool(os.environ.get("CI")))
    print("", *remarks, closing, sep="\n", flush=True)
    for problem in problems:
        print(f"run-tests.py: {problem}", file=sys.stderr)
    return status or (1 if problems else 0)


if __name__ == "__main__":
    sys.exit(main())
