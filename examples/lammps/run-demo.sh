#!/usr/bin/env bash
# run-demo.sh BUILD_DIR OUT_DIR: the demo, from the simulation to the picture; README.md beside this tells the
# story. Environment: DEMO=ci a third of the atoms; DEMO_DRIFT=1 the whole system drifts, so that atoms change
# ranks; DEMO_RANKS (4); ROUTE=three-hop or direct: how records travel (net.route), by three hops as if each
# two ranks were a node; SWALE_PYTHON an interpreter with numpy, matplotlib and duckdb (build/venv, made by
# scripts/venv.sh).
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/mpi-env.sh"

if [ $# -ne 2 ]; then
  sed -n '2,5s/^# //p' "${BASH_SOURCE[0]}" >&2
  exit 2
fi
programs=$1/examples/lammps
out=$2
python=${SWALE_PYTHON:-$here/../../build/venv/bin/python}
if [ ! -x "$programs/impact" ]; then
  echo "run-demo.sh: $programs/impact is not built (needs liblammps-dev and libopenmpi-dev)" >&2
  exit 2
fi

mkdir -p "$out"
rm -rf "$out"/atoms.swale "$out"/dump.*.bin "$out"/*.json "$out"/*.csv "$out"/*.parquet \
  "$out"/last-frame.bin \
  "$out"/impact.png "$out"/lammps.log "$out"/growth
# The drift carries everything across more than half of the box, the width of a rank's part.
size=() drift=25
if [ "${DEMO:-full}" = ci ]; then size=(--var cells 20 --var depth 10 --var radius 4 --steps 455) drift=40; fi
if [ "${DEMO_DRIFT:-0}" != 1 ]; then drift=0; fi

part=0
heading() {
  part=$((part + 1))
  printf '\n%d. %s\n' "$part" "$*"
}

same_answer() {
  cmp -s "$out/answer-swale.csv" "$1" && return
  echo "  WRONG: $1 differs from $out/answer-swale.csv" >&2
  exit 1
}

heading "LAMMPS simulates a hypervelocity impact; each rank writes every atom, every frame," \
  "under the atom's id"
place=()
if [ -n "${ROUTE:-}" ]; then
  export SWALE_NET_ROUTE=$ROUTE
  # shellcheck disable=SC2016 # of each rank's own shell
  place=(sh -c 'export SWALE_JOB_NODE="node-$((OMPI_COMM_WORLD_RANK / 2))"; exec "$@"' sh)
  echo "  net.route=$ROUTE, and each two ranks are told that they are a node"
fi
mpirun.openmpi -n "${DEMO_RANKS:-4}" "${place[@]}" "$programs/impact" --input "$here/in.impact" --out "$out" \
  --drift "$drift" \
  "${size[@]}" || {
  status=$?
  grep -h '^ERROR' "$out/lammps.log" >&2 || true
  echo "run-demo.sh: the simulation failed; its log is $out/lammps.log" >&2
  exit "$status"
}

heading "Which target atoms ended with the highest energy, and where did they come from?" \
  "One process asks Swale"
"$programs/impact-query" "$out"

heading "The same answer from the plain dumps of the same run, by reading all of them"
"$programs/impact-scan" "$out"
same_answer "$out/answer-scan.csv"

heading "The same answer from DuckDB, over Parquet sorted by atom after the run"
if "$python" -c 'import duckdb, numpy' 2> /dev/null; then
  "$python" "$here/parquet.py" "$out"
  same_answer "$out/answer-parquet.csv"
else
  echo "  skipped: $python lacks duckdb or numpy; scripts/venv.sh installs them"
fi

heading "Side by side (cold: the files' pages dropped from the page cache and everything opened anew;" \
  "warm: median)"
python3 "$here/compare.py" "$out"

heading "Is every record that was written found again, byte for byte, and nothing else?"
"$programs/impact-verify" "$out"

heading "And if the run were longer? Atoms of the last frame fly on, and one path is asked for, cold," \
  "again and again; then \`swale optimize\` copies the frames by atom"
"$programs/impact-growth" "$out" --swale "$1/tools/swale" \
  --frames "$([ "${DEMO:-full}" = ci ] && echo 100 || echo 1000)"

heading "The picture"
if "$python" -c 'import matplotlib, numpy' 2> /dev/null; then
  "$python" "$here/plot.py" "$out"
  echo "  $out/impact.png"
else
  echo "  skipped: $python lacks matplotlib or numpy"
fi
printf '\nDone in %d s. Everything is in %s.\n' "$SECONDS" "$out"
echo "Look around: build/release/tools/swale info $out/atoms.swale"
