#!/usr/bin/env bash
# test-python.sh PRESET [--install-only | what pytest takes]: the tests of the Python package, as a wheel with
# the library of build/PRESET, in an environment of their own (build/python-venv): NumPy and what reads
# tables, pinned; no tool that builds. Then mypy. With CI set, a skipped test fails.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/step.sh"
cd "$swale_root"
preset=${1:-checked}
venv=$swale_root/build/python-venv
wheels=$swale_root/build/wheel-$preset
requirements=$swale_root/scripts/requirements-python.txt
[ -x "build/$preset/tools/swale" ] ||
  die "build/$preset has no command: run scripts/build.sh $preset swale_cli"

# Where the site adds its own certificates to the system's bundle, pip should trust them as everything else
# does.
bundle=/etc/ssl/certs/ca-certificates.crt
if [ -z "${PIP_CERT:-}" ] && [ -f "$bundle" ]; then export PIP_CERT=$bundle; fi

make_venv() {
  rm -rf "$venv" &&
    "${PYTHON:-/usr/bin/python3}" -m venv "$venv" &&
    "$venv/bin/pip" install --disable-pip-version-check --only-binary :all: -r "$requirements" &&
    cp "$requirements" "$venv/requirements.txt"
}
install_package() {
  "$venv/bin/pip" install --disable-pip-version-check --no-index --no-deps --force-reinstall "$wheels"/*.whl
}

# A fresh one in CI; elsewhere as long as it has what is asked for.
if [ -n "${CI:-}" ] || ! cmp -s "$requirements" "$venv/requirements.txt"; then
  step python-venv "Preparing an environment for the Python package" make_venv
fi
scripts/build-wheel.sh "$preset" "$wheels"
step python-package "Installing the wheel" install_package
if [ "${2:-}" = --install-only ]; then exit 0; fi
say "Testing the Python package"
cd python
strict=()
if [ -n "${CI:-}" ]; then strict=(--no-skips); fi
env HYPOTHESIS_STORAGE_DIRECTORY="$swale_root/build/hypothesis" \
  SWALE_COMMANDS="$swale_root/build/$preset/tools" \
  SWALE_WHEELS="$wheels" \
  "$venv/bin/python" -m pytest -q -p no:cacheprovider "${strict[@]}" "${@:2}"
"$venv/bin/mypy" --cache-dir "$swale_root/build/mypy" --strict -p swale
