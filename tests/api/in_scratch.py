"""in_scratch.py [--here] PROGRAM [ARGUMENT...]: runs the program with a fresh directory as its last argument,
removed afterwards.

--here: in the current directory, because /tmp may be without extended attributes.
"""
import os
import subprocess
import sys
import tempfile

here = sys.argv[1] == "--here"
with tempfile.TemporaryDirectory(prefix="swale-test-", dir=os.getcwd() if here else None) as scratch:
    sys.exit(subprocess.run(sys.argv[1 + here:] + [scratch], timeout=110).returncode)
