#!/usr/bin/env bash
# test-python-outside.sh PRESET: files of `swale export`, opened by the large programs of the field
# (MDAnalysis, OVITO, vtk, openPMD-api), and tables as xarray and Dask have them, in an environment of their
# own (build/python-outside-venv, 1 GB). For the long run.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/step.sh"
cd "$swale_root"
preset=${1:-checked}
venv=$swale_root/build/python-outside-venv
wheels=$swale_root/build/wheel-$preset
bundle=/etc/ssl/certs/ca-certificates.crt
if [ -z "${PIP_CERT:-}" ] && [ -f "$bundle" ]; then export PIP_CERT=$bundle; fi

make_venv() {
  rm -rf "$venv" &&
    "${PYTHON:-/usr/bin/python3}" -m venv "$venv" &&
    "$venv/bin/pip" install --disable-pip-version-check --only-binary :all: -r \
      scripts/requirements-python.txt \
      -r scripts/requirements-python-outside.txt
}
install_package() {
  "$venv/bin/pip" install --disable-pip-version-check --no-index --no-deps --force-reinstall "$wheels"/*.whl
}

step python-outside-venv "Preparing an environment with programs of the field" make_venv
scripts/build-wheel.sh "$preset" "$wheels"
step python-outside-package "Installing the wheel" install_package
say "Opening exported files with programs of the field"
cd python
QT_QPA_PLATFORM=offscreen "$venv/bin/python" -m pytest -q -p no:cacheprovider -W default tests_outside
