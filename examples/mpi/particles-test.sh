#!/usr/bin/env bash
# particles-test.sh OUT_DIR RANKS COMMAND...: runs COMMAND OUT_DIR, with a fresh OUT_DIR; particles checks
# itself, and here it is checked that its RANKS knew of each other.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lammps/mpi-env.sh"
out=$1 ranks=$2
shift 2
rm -rf "$out"
"$@" "$out" | tee "$out.log"
grep -q "^$ranks ranks: 10000 of 10000 trajectories are right; 50000 records, 50000 expected$" "$out.log"
rm -rf "$out"
