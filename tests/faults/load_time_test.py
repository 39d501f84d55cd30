"""load_time_test.py FOLDER (build/.../src): nothing of ours runs when the library is loaded or unloaded.

The compiler puts the address of what runs at load time into .init_array (older: .ctors) of an object file.
None of the object files of which the library, libswale-tls.so and libswale-ucx.so are built may have one, nor
.fini_array, nor a call of sigaction or signal. (UCX itself, which that one is linked with, has constructors;
what they do to signals is tested by fabric_test.py.)
"""
import glob
import os
import re
import subprocess
import sys
import tempfile

LOAD_TIME = re.compile(r"\.(init_array|ctors|fini_array|dtors|preinit_array)\b")
SIGNAL_CALL = re.compile(r" U (sigaction|signal|sigprocmask|atexit)\b")


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def objections(path):
    sections = {match[0] for match in LOAD_TIME.finditer(output("readelf", "-SW", path))}
    calls = {match[1] for match in SIGNAL_CALL.finditer(output("nm", path))}
    return [f"{path}: has {name}" for name in sorted(sections)] + [f"{path}: calls {name}"
                                                                   for name in sorted(calls)]


def shows_that_it_can_fail():
    with tempfile.TemporaryDirectory(prefix="swale-test-") as scratch:
        source, built = os.path.join(scratch, "canary.cc"), os.path.join(scratch, "canary.o")
        with open(source, "w", encoding="utf-8") as file:
            file.write("#include <signal.h>\nint f();\nint x = f();\nvoid g() { signal(1, SIG_IGN); }\n")
        subprocess.run([os.environ.get("CXX", "c++"), "-c", source, "-o", built], check=True)
        assert len(objections(built)) == 2, objections(built)


def main():
    build = sys.argv[1]
    shows_that_it_can_fail()
    archives = [path for path in glob.glob(os.path.join(build, "*", "libswale_*.a"))
                if not os.path.basename(path).startswith("libswale_test_")]  # tests' helpers
    # A library of its own, which is loaded to do something at load time (tests/preload).
    layers = {name for name in os.listdir(build)
              if name != "preload" and os.path.isdir(os.path.join(build, name, "CMakeFiles"))}
    unseen = layers - {os.path.basename(os.path.dirname(path)) for path in archives}
    assert layers and not unseen, f"no archive of {sorted(unseen)} below {build}"
    found = [objection for path in archives for objection in objections(path)]
    assert not found, "\n".join(found)
    print(f"{len(archives)} archives: nothing at load time, no signal handler")


main()
