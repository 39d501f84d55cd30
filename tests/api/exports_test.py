"""exports_test.py LIBRARY HEADER...: the shared library exports what the headers declare, and nothing else.
"""
import re
import subprocess
import sys


def declared(header):
    text = re.sub(r"/\*.*?\*/", "", open(header, encoding="utf-8").read(), flags=re.S)
    text = re.sub(r"^\s*#.*$", "", text, flags=re.M)
    return set(re.findall(r"\b(swale_\w+)\s*\([^()]*(?:\([^()]*\)[^()]*)*\)\s*;", text))


def exported(library):
    lines = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True,
                           text=True).stdout
    symbols = [line.split()[-1] for line in lines.splitlines() if not line.split()[-1].startswith("SWALE_")]
    unversioned = [symbol for symbol in symbols if not symbol.endswith("@@SWALE_0.1")]
    assert unversioned == [], f"without the version of the interface: {unversioned}"
    return {symbol.split("@")[0] for symbol in symbols}


def main():
    library, *headers = sys.argv[1:]
    wanted, found = set().union(*map(declared, headers)), exported(library)
    assert "swale_dir_append" in wanted and len(
        wanted) > 25, f"the header was not understood: {sorted(wanted)}"
    assert found - wanted == set(), f"exported and not declared: {sorted(found - wanted)}"
    assert wanted - found == set(), f"declared and not exported: {sorted(wanted - found)}"
    dynamic = subprocess.run(["readelf", "-d", library], check=True, capture_output=True, text=True).stdout
    assert "libswale.so.0]" in dynamic, f"not the soname of version 0:\n{dynamic}"
    print(f"{len(found)} functions, all of them declared")


main()
