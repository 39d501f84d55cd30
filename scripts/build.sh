#!/usr/bin/env bash
# build.sh PRESET [TARGET...]: configures and builds a preset of CMakePresets.json into build/PRESET.
# On a terminal ninja shows its progress; elsewhere only what goes wrong is printed.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/step.sh"
cd "$swale_root"
preset=${1:-release}
shift || true

# A second checkout (CI's) then finds in the cache what the first one compiled.
export CCACHE_BASEDIR=$swale_root CCACHE_NOHASHDIR=1

step "configure-$preset" "Configuring build/$preset" cmake --preset "$preset"
say "Building build/$preset"
quiet=(--quiet)
[ -t 1 ] && quiet=()
cmake --build --preset "$preset" --parallel "$(nproc)" ${1:+--target "$@"} -- "${quiet[@]}"
