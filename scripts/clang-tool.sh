#!/usr/bin/env bash
# clang-tool.sh NAME: prints the path of NAME (clang++, clang-tidy, ...) of a version that is tested: 16 as in
# Debian 12, else 19 as in Debian 13, else the one without a number. clang-format is always 16: every version
# writes some of our files in its own way. Where the release has no clang-format-16, PyPI's is put into
# build/clang-format.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/step.sh"

find_tool() {
  local name
  for name in "$@"; do
    if command -v "$name"; then return 0; fi
  done
  return 1
}

if [ "$1" != clang-format ]; then
  find_tool "$1-16" "$1-19" "$1" || die "no $1-16, $1-19 or $1; scripts/install-deps.sh check installs one"
  exit 0
fi

venv=$swale_root/build/clang-format
make_venv() {
  python3 -m venv "$venv" &&
    "$venv/bin/pip" install --disable-pip-version-check --only-binary :all: "clang-format==$version"
}
version=16.0.6
find_tool clang-format-16 "$venv/bin/clang-format" && exit 0
step clang-format "Preparing clang-format $version" make_venv >&2
echo "$venv/bin/clang-format"
