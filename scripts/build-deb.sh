#!/usr/bin/env bash
# build-deb.sh [FOLDER]: Debian packages of this tree, from packaging/debian, into FOLDER (build/deb). They
# are built in a copy, as a build server would, from the files that git knows (or, outside git, from all but
# build/).
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/step.sh"
cd "$swale_root"
out=${1:-build/deb}
version=$(sed -n 's/^project(swale VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
grep -q "^swale ($version-" packaging/debian/changelog ||
  die "packaging/debian/changelog does not begin with version $version, as CMakeLists.txt does: add an entry"

tree=$out/swale-$version
rm -rf "$tree" "$out"/*.deb "$out"/*.buildinfo "$out"/*.changes
mkdir -p "$tree"
if git rev-parse -q --git-dir > /dev/null 2>&1; then
  git ls-files -co --deduplicate --exclude-standard -z | while IFS= read -r -d '' file; do
    if [ -e "$file" ]; then printf '%s\0' "$file"; fi
  done | tar -c --null -T - | tar -x -C "$tree"
else
  tar -c --exclude=./build . | tar -x -C "$tree"
fi
cp -r packaging/debian "$tree/debian"
# The maintainer of a package is who builds it: DEBFULLNAME and DEBEMAIL, as for all Debian tools, or what git
# knows.
name=${DEBFULLNAME:-$(git config user.name || true)}
address=${DEBEMAIL:-$(git config user.email || true)}
if [ -n "$name" ] && [ -n "$address" ]; then
  maintainer="$name <$address>" awk \
    '/^Maintainer:/ { print "Maintainer: " ENVIRON["maintainer"]; next } { print }' \
    packaging/debian/control > "$tree/debian/control"
else
  say "the packages name no real maintainer: set DEBFULLNAME and DEBEMAIL"
fi

# debhelper gives the build a home of its own; the compiler's cache stays where it is.
export CCACHE_DIR=${CCACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/ccache} CCACHE_BASEDIR=$swale_root \
  CCACHE_NOHASHDIR=1
# Debian 12 has no packages of what builds the Python package.
scripts/build-wheel.sh --environment
export SWALE_PYTHON=$swale_root/build/wheel-venv/bin/python
build() (cd "$tree" && dpkg-buildpackage -b -us -uc -j"$(nproc)")
step deb "Building the Debian packages of version $version" build
for package in "$out"/*.deb; do say "$package"; done
