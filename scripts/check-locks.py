#!/usr/bin/env python3
"""check-locks.py [--self-test]: clang's thread-safety analysis over the sources of src/ that see something
that a mutex guards: what is GUARDED_BY a mutex is touched with it locked. Only syntax is checked, nothing is
built: some minutes.

Every mutex of src/ is a swale::Mutex: a std::mutex is a failure, but in tests and for those that MAY_NAME_STD
lists. The self-test breaks the rule and expects to be told so.
"""
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CLANG = os.environ.get("SWALE_CLANG") or next(
    (name for name in ("clang++-16", "clang++-19") if shutil.which(name)), "clang++")
# The mutex itself, and one that is more than a std::mutex.
MAY_NAME_STD = {"src/base/mutex.h", "src/base/biased_mutex.h", "src/base/biased_mutex.cc"}
STD_LOCK = re.compile(
    r"std::(\w*mutex|lock_guard|unique_lock|scoped_lock|shared_lock|condition_variable\w*)\b")
FLAGS = ["-std=c++20", "-DFMT_SHARED", '-DSWALE_VERSION="0"', '-DSWALE_LIBRARIES_FROM_PROGRAMS=""',
         "-DSPDLOG_FMT_EXTERNAL", "-Werror=thread-safety", "-fsyntax-only"]

CANARY = """#include "base/mutex.h"
class Canary {
 public:
  int count() { return count_; }
 private:
  swale::Mutex mutex_;
  int count_ GUARDED_BY(mutex_) = 0;
};
"""


def analyse(path):
    """What clang says of the source, or nothing."""
    command = [CLANG, *FLAGS, "-I", os.path.join(ROOT, "src"), "-I", os.path.join(ROOT, "include"), path]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if run.returncode == 0 else run.stderr


def guards(path):
    """Whether the file has something that a mutex guards."""
    with open(path, encoding="utf-8") as file:
        return re.search(r"\b(GUARDED_BY|REQUIRES)\(", file.read()) is not None


def uses_mutex(path):
    """Whether the source, or a header that it includes, has something that a mutex guards: a class may have
    its functions in many sources."""
    if guards(path):
        return True
    with open(path, encoding="utf-8") as file:
        headers = re.findall(r'^#include "(.*)"', file.read(), re.MULTILINE)
    found = (os.path.join(ROOT, "src", header) for header in headers)
    return any(guards(header) for header in found if os.path.exists(header))


def sources():
    for folder in sorted(os.listdir(os.path.join(ROOT, "src"))):
        for place, _, names in os.walk(os.path.join(ROOT, "src", folder)):
            for name in sorted(names):
                if name.endswith(".cc") and not name.endswith("_test.cc"):
                    yield os.path.join(place, name)


def unannotated():
    """Lines of src that name the mutexes of the standard library."""
    for place, _, names in os.walk(os.path.join(ROOT, "src")):
        for name in sorted(names):
            path = os.path.relpath(os.path.join(place, name), ROOT)
            of_tests = "_test" in name or name.startswith("test_")
            if not path.endswith((".h", ".cc")) or of_tests or path in MAY_NAME_STD:
                continue
            with open(os.path.join(ROOT, path), encoding="utf-8") as file:
                for number, line in enumerate(file, 1):
                    if STD_LOCK.search(line.split("//")[0]):
                        yield f"{path}:{number}: use Mutex, MutexLock and CondVar of base/mutex.h"


def self_test():
    with tempfile.TemporaryDirectory(prefix="swale-locks-") as scratch:
        path = os.path.join(scratch, "canary.cc")
        with open(path, "w", encoding="utf-8") as file:
            file.write(CANARY)
        if "requires holding mutex" not in analyse(path):
            print("check-locks.py: an access without the lock went unnoticed", file=sys.stderr)
            return 1
        with open(path, "w", encoding="utf-8") as file:
            file.write(CANARY.replace("return count_;", "const swale::MutexLock lock(mutex_); return "
                                      "count_;"))
        if said := analyse(path):
            print(f"check-locks.py: a locked access is refused: {said}", file=sys.stderr)
            return 1
    print("locks: the check notices its canary")
    return 0


def main():
    if "--self-test" in sys.argv[1:]:
        return self_test()
    wrong = list(unannotated())
    checked = [path for path in sources() if uses_mutex(path)]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for said in pool.map(analyse, checked):
            wrong.extend(line for line in said.splitlines() if "error:" in line)
    for line in wrong:
        print(line)
    if not wrong:
        print(f"locks: {len(checked)} sources touch what is guarded only with its mutex locked")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
