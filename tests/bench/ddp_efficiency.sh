#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Two ranks with one thread each, training together and each on its own, in turns:
#   ddp_efficiency.sh [ROUNDS] [train_step flags]     (default 3 --model gpt2-124m --batch 4)
# Prints tokens per second of every run and the ratio of the medians.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
rounds=${1:-3}
[ $# -gt 0 ] && shift
[ $# -gt 0 ] || set -- --model gpt2-124m --batch 4
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
together=()
alone=()

rate() {
  mpirun --oversubscribe --bind-to none -n 2 build/release/bench/train_step --threads 1 --json "$@" |
    sed -n 's/.*"tokens_per_second":\([0-9.]*\).*/\1/p'
}
median() { printf '%s\n' "$@" | sort -n | sed -n "$((($# + 1) / 2))p"; }

for _ in $(seq "$rounds"); do
  together+=("$(rate "$@")")
  alone+=("$(rate "$@" --independent)")
  echo "together ${together[-1]}  independent ${alone[-1]} tokens/s"
done
awk -v a="$(median "${together[@]}")" -v b="$(median "${alone[@]}")" \
  'BEGIN { printf "median: %.1f of %.1f tokens/s, %.3f\n", a, b, a / b }'
