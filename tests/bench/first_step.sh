#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Seconds from the start of mpirun to the end of the first step of the quickstart's model:
# first_step.sh [RANKS] [RUNS]. Needs build/release (cmake --preset release; cmake --build ...).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
ranks=${1:-2}
runs=${2:-5}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
yes 'In the beginning was the word.' 2>/dev/null | head -c 4300000 >"$directory/text" || true

for run in $(seq "$runs"); do
  begin=$(date +%s%N)
  mpirun --oversubscribe --bind-to none -n "$ranks" build/release/bin/tessera train \
    examples/configs/quickstart.toml --set "data.path=$directory/text" --set train.steps=2 --set optim.warmup=0 \
    --set "log.directory=$directory/run-$run" >/dev/null 2>"$directory/errors" &
  job=$!
  until [ -s "$directory/run-$run/metrics.jsonl" ]; do
    kill -0 "$job" 2>/dev/null || { cat "$directory/errors" >&2; exit 1; }
    sleep 0.005
  done
  end=$(date +%s%N)
  wait "$job"
  awk -v ns=$((end - begin)) -v run="$run" 'BEGIN { printf "run %d: %.2f s\n", run, ns / 1e9 }'
done
