# Sourced by the other scripts: says what is being done in one line a step and keeps the details in a log.

swale_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

say() { printf '== %s\n' "$*"; }

die() {
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}

# step LOG WHAT COMMAND...: runs COMMAND with its output in build/logs/LOG.log. On a terminal a clock runs
# beside WHAT; elsewhere one line is printed. When COMMAND fails, the end of the log is shown and its status
# returned.
step() {
  local name=$1 what=$2 log=$swale_root/build/logs/$1.log began=$SECONDS status=0
  shift 2
  mkdir -p "$swale_root/build/logs"
  if [ -t 1 ]; then
    "$@" > "$log" 2>&1 < /dev/null &
    local child=$!
    while kill -0 "$child" 2> /dev/null; do
      printf '\r== %s ... %d s ' "$what" $((SECONDS - began))
      sleep 0.5
    done
    wait "$child" || status=$?
    printf '\r== %s (%d s)      \n' "$what" $((SECONDS - began))
  else
    say "$what"
    "$@" > "$log" 2>&1 < /dev/null || status=$?
  fi
  if [ "$status" -ne 0 ]; then
    printf '%s failed with status %d. The end of build/logs/%s.log:\n' "$what" "$status" "$name" >&2
    tail -n 40 "$log" >&2
  fi
  return "$status"
}
