#!/usr/bin/env bash
# test-python.sh PRESET [--install-only | --sanitized asan|tsan | what pytest takes]: the tests of the Python
# package, as a wheel with the library of build/PRESET, in an environment of their own (build/python-venv):
# NumPy and what reads tables, pinned; no tool that builds. Then mypy. With CI set, a skipped test fails.
# --sanitized: the tests that need no command, with the library of build/asan or build/tsan in the place of
# the wheel's. The interpreter and other libraries are as they are, so leaks are not looked for.
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

# Loaded first, and found under its name instead of the wheel's. The sanitizer looks for libstdc++ at once.
sanitized_tests() {
  local sanitizer=$1 runtime library=$swale_root/build/$1/src/capi/libswale.so.0
  [ -f "$library" ] || die "build/$sanitizer has no libswale: run scripts/build.sh $sanitizer swale"
  runtime=$("$(scripts/clang-tool.sh clang)" -print-file-name="libclang_rt.$sanitizer-$(uname -m).so")
  local stdcxx
  stdcxx=$("${CXX:-g++}" -print-file-name=libstdc++.so.6)
  local loaded=("LD_PRELOAD=$runtime $stdcxx $library"
    "ASAN_OPTIONS=detect_leaks=0:quarantine_size_mb=16:intercept_tls_get_addr=0"
    "TSAN_OPTIONS=second_deadlock_stack=1"
    "UBSAN_OPTIONS=print_stacktrace=1")
  # Canary: memory that was freed is written to, in the library.
  local used_after_free="import ctypes, swale
library, cancel = ctypes.CDLL('libswale.so.0'), ctypes.c_void_p()
library.swale_cancel_make(ctypes.byref(cancel))
library.swale_cancel_free(cancel)
library.swale_cancel_now(cancel)"
  mkdir -p build/logs
  if env "${loaded[@]}" "$venv/bin/python" -c "$used_after_free" > build/logs/python-canary.log 2>&1 ||
    ! grep -q "Sanitizer: heap-use-after-free" build/logs/python-canary.log; then
    die "the sanitizer does not see what the library does: build/logs/python-canary.log"
  fi
  say "Testing the Python package with the library of build/$sanitizer"
  local tests=(tests/test_{attributes,comm,faults,mistakes,random,read})
  # polars ends the process when it is loaded below ThreadSanitizer.
  if [ "$sanitizer" = asan ]; then tests+=(tests/test_{append_arrow,damage,export,push_down,tools}); fi
  cd python
  env "${loaded[@]}" HYPOTHESIS_STORAGE_DIRECTORY="$swale_root/build/hypothesis" \
    "$venv/bin/python" -m pytest -q -p no:cacheprovider \
    --deselect tests/test_comm.py::test_processes_load_the_packages_own_network \
    "${tests[@]/%/.py}" "${@:2}"
}
if [ "${2:-}" = --sanitized ]; then
  sanitized_tests "${@:3}"
  exit 0
fi
say "Testing the Python package"
cd python
strict=()
if [ -n "${CI:-}" ]; then strict=(--no-skips); fi
env HYPOTHESIS_STORAGE_DIRECTORY="$swale_root/build/hypothesis" \
  SWALE_COMMANDS="$swale_root/build/$preset/tools" \
  SWALE_WHEELS="$wheels" \
  "$venv/bin/python" -m pytest -q -p no:cacheprovider "${strict[@]}" "${@:2}"
"$venv/bin/mypy" --cache-dir "$swale_root/build/mypy" --strict -p swale
