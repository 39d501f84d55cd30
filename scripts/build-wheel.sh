#!/usr/bin/env bash
# build-wheel.sh PRESET FOLDER: the wheel of the Python package, with the library of build/PRESET, into
# FOLDER, which has no other file then. Needs scripts/build.sh PRESET swale.
# build-wheel.sh --environment: only the environment that builds it (build/wheel-venv).
#
# The wheel runs where no library but glibc and libstdc++ is installed: auditwheel copies what libswale is
# linked with into it, and names the oldest glibc in its tag. UCX and OpenSSL stay the system's, as they must
# suit its network and its security updates; only the modules of jobs of several ranks are linked with them.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/step.sh"
cd "$swale_root"
preset=$1 folder=${2:-}
venv=$swale_root/build/wheel-venv
requirements=$swale_root/scripts/requirements-wheel.txt
libraries=$swale_root/build/$preset/src/capi
licences=$swale_root/build/wheel-licences
system_libraries='lib(uc[mpst]|ssl|crypto|numa|c|m|gcc_s|stdc\+\+)\.so'

# Where the site adds its own certificates to the system's bundle, pip should trust them as everything else
# does.
bundle=/etc/ssl/certs/ca-certificates.crt
if [ -z "${PIP_CERT:-}" ] && [ -f "$bundle" ]; then export PIP_CERT=$bundle; fi
export PIP_DISABLE_PIP_VERSION_CHECK=1

make_venv() {
  rm -rf "$venv" &&
    "${PYTHON:-/usr/bin/python3}" -m venv "$venv" &&
    "$venv/bin/pip" install --only-binary :all: -r "$requirements" &&
    cp "$requirements" "$venv/requirements.txt"
}

# The licences of what the wheel has copies of, also of headers, and ours.
collect_licences() {
  rm -rf "$licences"
  mkdir -p "$licences"
  cp LICENSE "$licences/swale"
  local path package
  for package in nlohmann-json3-dev libxxhash-dev; do
    cp "/usr/share/doc/$package/copyright" "$licences/$package" || return 1
  done
  cp "$venv"/lib/python*/site-packages/nanobind-*/licenses/LICENSE "$licences/nanobind" || return 1
  ldd "$libraries"/libswale*.so | grep -vE "$system_libraries" | awk '/=> \//{ print $3 }' | sort -u |
    xargs -n 1 realpath | while read -r path; do
    package=$(dpkg-query -S "$path" "${path#/usr}" 2> /dev/null | sed -n '1s/:.*//p')
    [ -n "$package" ] || { echo "no package owns $path, so its licence is not known"; return 1; }
    cp "/usr/share/doc/$package/copyright" "$licences/$package" || return 1
  done
}

build() {
  rm -rf "$folder" "$folder.raw"
  "$venv/bin/pip" wheel --no-build-isolation --no-deps --wheel-dir "$folder.raw" \
    --config-settings=build-dir="$swale_root/build/python-$preset" \
    --config-settings=cmake.define.SWALE_BUILD="$swale_root/build/$preset" \
    --config-settings=cmake.define.SWALE_LICENCES="$licences" ./python &&
    PATH=$venv/bin:$PATH "$venv/bin/auditwheel" repair --strip --wheel-dir "$folder" \
      --exclude 'libuc[mpst].so.*' --exclude 'libssl.so.*' --exclude 'libcrypto.so.*' "$folder".raw/*.whl &&
    rm -r "$folder.raw"
}

if ! cmp -s "$requirements" "$venv/requirements.txt"; then
  step wheel-venv "Preparing an environment that builds wheels" make_venv
fi
if [ "$preset" = --environment ]; then exit 0; fi
[ -n "$folder" ] || die "build-wheel.sh PRESET FOLDER"
[ -f "$libraries/libswale.so.0" ] || die "build/$preset has no libswale: run scripts/build.sh $preset swale"
command -v dpkg-query > /dev/null ||
  die "the licences of the libraries in a wheel are found by dpkg, on Debian and Ubuntu"
step wheel-licences "Collecting the licences of what the wheel has copies of" collect_licences
step "wheel-$preset" "Building the Python package as a wheel" build
