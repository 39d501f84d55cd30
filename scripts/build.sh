#!/usr/bin/env bash
# build.sh PRESET [TARGET...]: configures and builds a preset of CMakePresets.json into build/PRESET.
# On a terminal ninja shows its progress; elsewhere a line every few seconds does (progress.sh), beside what
# goes wrong.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/step.sh"
cd "$swale_root"
preset=${1:-release}
shift || true

# A second checkout (CI's) then finds in the cache what the first one compiled.
export CCACHE_BASEDIR=$swale_root CCACHE_NOHASHDIR=1
export CCACHE_DEPEND=1  # of the headers that the compiler names: no second run of the preprocessor

step "configure-$preset" "Configuring build/$preset" cmake --preset "$preset"
build=(cmake --build --preset "$preset" --parallel "$(nproc)" ${1:+--target "$@"})
if [ -t 1 ]; then
  say "Building build/$preset"
  "${build[@]}"
else
  NINJA_STATUS='[%f/%t] ' "$swale_root/scripts/progress.sh" "Building build/$preset" "${build[@]}"
fi
