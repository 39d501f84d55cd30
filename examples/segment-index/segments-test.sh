#!/usr/bin/env bash
# segments-test.sh OUT_DIR SWALE RANKS COMMAND...: runs COMMAND OUT_DIR, with a fresh OUT_DIR; segments checks
# itself. Here it is checked that its RANKS knew of each other, and that `swale verify` finds the store whole.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lammps/mpi-env.sh"
out=$1 swale=$2 ranks=$3
shift 3
rm -rf "$out"
"$@" "$out" | tee "$out.log"
gets=$((ranks * 20000))
grep -q "^$ranks ranks: $((ranks * 10000)) segments put, $gets of $gets gets are right$" "$out.log"
"$swale" meta verify "$out" | grep "all good"
"$swale" meta stats "$out"
"$swale" meta dump "$out" > "$out.dump"
grep -q "name=/checkpoint " "$out.dump"
rm -rf "$out" "$out.dump"
