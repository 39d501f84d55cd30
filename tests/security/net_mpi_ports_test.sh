#!/bin/sh
# net_mpi_ports_test.sh PROGRAM LAUNCHER...: runs net_mpi_ports under an MPI: nothing more is open, and its
# canary fails.
set -eu
program=$1
shift
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
. "$(dirname "$0")/../../examples/lammps/mpi-env.sh"
"$@" "$program" "$scratch/directory"
if "$@" "$program" "$scratch/canary" port >"$scratch/out" 2>&1; then
  cat "$scratch/out"
  echo "the canary has a port, and nobody noticed" >&2
  exit 1
fi
grep -q '1 ports' "$scratch/out"
