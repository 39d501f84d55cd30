#!/usr/bin/env bash
# progress.sh WHAT COMMAND...: runs a build by ninja and says every few seconds how far it is, for output that
# is a file or a pipe (on a terminal ninja shows that by itself). Lines that are no progress (warnings,
# errors) are passed on. progress.sh --self-test shows that it does so.
set -euo pipefail

interval_s=5

# report WHAT: reads ninja's output. Ninja may be silent for longer than the interval; then the last step is
# said again.
report() {
  local what=$1 began=$SECONDS said=$SECONDS part='' line='' done_steps=0 steps='?' status
  while :; do
    status=0
    IFS= read -r -t 1 part || status=$?
    line+=$part
    if [ "$status" -gt 128 ]; then # the time is over, the line is not
      :
    elif [ "$status" -ne 0 ]; then
      [ -z "$line" ] || printf '%s\n' "$line"
      return 0
    elif [[ $line =~ ^\[([0-9]+)/([0-9]+)\]\  ]]; then
      done_steps=${BASH_REMATCH[1]} steps=${BASH_REMATCH[2]} line=''
    else
      printf '%s\n' "$line"
      line=''
    fi
    if [ $((SECONDS - said)) -ge "$interval_s" ] && [ "$done_steps" != 0 ]; then
      said=$SECONDS
      printf '== %s: %d of %d steps, %d s\n' "$what" "$done_steps" "$steps" $((SECONDS - began))
    fi
  done
}

self_test() {
  local text status=0
  interval_s=1
  build() {
    echo '[1/3] Building CXX object a.o'
    sleep 2.5
    echo 'a.cc:1: warning: said by the compiler'
    echo '[2/3] Building CXX object b.o'
    echo 'FAILED: b.o'
    return 7
  }
  text=$(build | report 'Building it') || status=$?
  local expected
  for expected in '== Building it: 1 of 3 steps, ' 'a.cc:1: warning' 'FAILED: b.o'; do
    grep -qF -e "$expected" <<< "$text" || {
      printf 'progress.sh: the self-test misses "%s" in:\n%s\n' "$expected" "$text" >&2
      exit 1
    }
  done
  if [ "$status" -ne 7 ] || grep -q 'Building CXX' <<< "$text"; then
    printf 'progress.sh: the self-test has status %s and says:\n%s\n' "$status" "$text" >&2
    exit 1
  fi
  echo "progress.sh: says how far a build is, passes on what else it says, and its status"
}

if [ "${1:-}" = --self-test ]; then
  self_test
else
  what=$1
  shift
  "$@" 2>&1 | report "$what"
fi
