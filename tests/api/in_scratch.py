"""in_scratch.py PROGRAM [ARGUMENT...]: runs the program with a fresh directory as its last argument, removed afterwards."""
import subprocess
import sys
import tempfile

with tempfile.TemporaryDirectory(prefix="swale-test-") as scratch:
    sys.exit(subprocess.run(sys.argv[1:] + [scratch], timeout=110).returncode)
