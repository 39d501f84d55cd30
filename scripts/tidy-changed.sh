#!/usr/bin/env bash
# tidy-changed.sh PRESET [SECONDS]: clang-tidy over the sources that changed since the branch left origin/main
# (or since the commit before), with the compile commands of PRESET, in which each source compiles alone.
# Takes SECONDS at most (150): files for which there was no time are named, and do not fail the check.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/step.sh"
cd "$swale_root"
preset=${1:?tidy-changed.sh needs a preset}
build=build/$preset
step "configure-$preset" "Configuring $build for clang-tidy" cmake --preset "$preset"
tidy=$(scripts/clang-tool.sh clang-tidy)
export tidy build deadline=$(($(date +%s) + ${2:-150}))

changed() {
  local base=
  if git rev-parse -q --verify HEAD > /dev/null; then
    base=$(git merge-base origin/main HEAD 2> /dev/null || true)
    [ -n "$base" ] && [ "$base" != "$(git rev-parse HEAD)" ] ||
      base=$(git rev-parse -q --verify HEAD~1 || true)
  fi
  {
    if [ -n "$base" ]; then git diff --name-only --diff-filter=d "$base"; else git ls-files; fi
    git ls-files --others --exclude-standard
  } | grep -E '\.(h|hpp|c|cc)$' | sort -u
}

# A changed header is checked through the source of its own name. Tests come last: when time is short, they
# wait.
compiled() {
  while IFS= read -r file; do
    local source=${file%.*}.cc
    [ "${file##*.}" != c ] || source=$file
    if [ -f "$source" ] && grep -qF -e "/$source\"" "$build/compile_commands.json"; then
      printf '%s\n' "$source"
    fi
  done | sort -u |
    awk '/_test\.cc$/ { tests[++n] = $0; next } { print } END { for (i = 1; i <= n; i++) print tests[i] }'
}

# One file: 0 clean or out of time, else findings. Options of gcc that clang does not know are no finding.
tidy_one() {
  local left=$((deadline - $(date +%s))) status=0
  if [ "$left" -gt 0 ]; then
    timeout "$left" "$tidy" --quiet -p "$build" --extra-arg=-Wno-unknown-warning-option "$1" \
      2> >(grep -vE '^[0-9]+ warnings?' >&2) || status=$?
  fi
  if [ "$left" -le 0 ] || [ "$status" -eq 124 ]; then
    echo "no time for $1"
    return 0
  fi
  return "$status"
}
export -f tidy_one

mapfile -t files < <(changed | compiled)
say "clang-tidy on ${#files[@]} changed files"
[ ${#files[@]} -eq 0 ] || printf '%s\0' "${files[@]}" |
  xargs -0 -n 1 -P "$(nproc)" bash -c 'tidy_one "$1"' tidy_one
