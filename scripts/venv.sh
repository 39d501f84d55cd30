#!/usr/bin/env bash
# venv.sh [DIRECTORY]: the Python of the demo and the benchmarks: Debian's numpy and matplotlib, and from PyPI
# only what Debian lacks (DuckDB, pinned in requirements-demo.txt). Made once; made anew when the requirements
# change. Prints nothing when all is there.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/step.sh"

venv=${1:-$swale_root/build/venv}
requirements=$swale_root/scripts/requirements-demo.txt
stamp=$venv/requirements.txt
cmp -s "$requirements" "$stamp" && exit 0

# The system's interpreter, not whichever comes first in PATH: only that one sees the system's numpy.
python=${PYTHON:-/usr/bin/python3}
"$python" -c 'import numpy, matplotlib' 2> /dev/null ||
  die "$python has no numpy or matplotlib; run scripts/install-deps.sh demo," \
      "or name another interpreter in PYTHON"

# Where the site adds its own certificates to the system's bundle, pip should trust them as everything else
# does.
bundle=/etc/ssl/certs/ca-certificates.crt
if [ -z "${PIP_CERT:-}" ] && [ -f "$bundle" ]; then export PIP_CERT=$bundle; fi

make_venv() {
  rm -rf "$venv" &&
    "$python" -m venv --system-site-packages "$venv" &&
    "$venv/bin/pip" install --disable-pip-version-check --only-binary :all: -r "$requirements" &&
    "$venv/bin/python" -c 'import duckdb, matplotlib, numpy' &&
    cp "$requirements" "$stamp"
}
step venv "Preparing Python" make_venv
