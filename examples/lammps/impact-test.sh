#!/usr/bin/env bash
# impact-test.sh PROGRAM_DIR OUT_DIR RANKS DRIFT: a short, small impact on RANKS ranks (1: without mpirun).
# Every record must be found again, the check must notice a flipped bit, and the scan of the dumps must give
# Swale's answer. With a DRIFT other than 0, nearly every atom must have changed its rank.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/mpi-env.sh"
programs=$1 out=$2 ranks=$3 drift=$4

die() {
  echo "impact-test.sh: $*" >&2
  exit 1
}

rm -rf "$out"
launcher=()
if [ "$ranks" -gt 1 ]; then launcher=(mpirun.openmpi -n "$ranks"); fi
"${launcher[@]}" "$programs/impact" --input "$here/in.impact" --out "$out" --drift "$drift" \
  --var cells 20 --var depth 10 --var radius 4 --steps 280 || {
  cat "$out"/lammps.log >&2
  die "the simulation failed"
}
grep -q "\"ranks\": $ranks,\?$" "$out/run.json" || die "not $ranks ranks: $(cat "$out/run.json")"
if [ "$drift" != 0 ]; then
  awk '/"moved_fraction"/ { moved = $2 + 0 } END { exit !(moved > 0.95) }' "$out/run.json" ||
    die "too few atoms changed their rank: $(cat "$out/run.json")"
fi

"$programs/impact-verify" "$out" || die "Swale and the dumps differ"
status=0
"$programs/impact-verify" "$out" --canary || status=$?
[ "$status" -eq 1 ] || die "the check did not notice a flipped bit: status $status"

"$programs/impact-query" "$out"
"$programs/impact-scan" "$out"
cmp "$out/answer-swale.csv" "$out/answer-scan.csv" || die "the scan gives another answer"
longer=$("$programs/impact-growth" "$out" --atoms 500 --frames 30 --swale "$programs/../../tools/swale") ||
  die "the series of longer runs failed"
grep -q 'by atom .*' <<< "$longer" && grep -q 'swale optimize. took' <<< "$longer" ||
  die "no word of what swale optimize saves: $longer"
[ "$(wc -l < "$out/answer-swale.csv")" -eq $((10 * (280 / 13 + 1) + 1)) ] ||
  die "the answer is not ten full trajectories"
rm -rf "$out"
