#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Training steps of Tessera beside PyTorch, in turns on the same machine:
#   compare.sh [ROUNDS] [train_step flags]     (for example compare.sh 3 --model gpt2-124m --batch 4)
# PYTHON names an interpreter with torch (default python3); OLD_PYTHON one with an older torch that
# has no compiler. Prints every run, then the ratios of the median rates and of peak memory.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
rounds=${1:-3}
[ $# -gt 0 ] && shift
lines=$(mktemp)
trap 'rm -f "$lines"' EXIT

measure() {  # measure NAME COMMAND...
  local name=$1
  shift
  local line
  line=$("$@" --json 2>/dev/null | tail -n 1)
  printf '%s\t%s\n' "$name" "$line" >>"$lines"
  printf '%-12s %s\n' "$name" "$line"
}

for _ in $(seq "$rounds"); do
  measure tessera build/release/bench/train_step "$@"
  measure eager "${PYTHON:-python3}" tests/bench/peer_torch.py "$@"
  measure compiled "${PYTHON:-python3}" tests/bench/peer_torch.py "$@" --mode compiled
  [ -z "${OLD_PYTHON:-}" ] || measure old "$OLD_PYTHON" tests/bench/peer_torch.py "$@"
done

awk -F'\t' '
  function field(text, key,   at) {
    at = index(text, "\"" key "\":")
    return at == 0 ? 0 : substr(text, at + length(key) + 3) + 0
  }
  function median(list,   n, a, i, j, t) {
    n = split(list, a, " ")
    for (i = 2; i <= n; ++i) for (j = i; j > 1 && a[j] < a[j - 1]; --j) { t = a[j]; a[j] = a[j - 1]; a[j - 1] = t }
    return a[int((n + 1) / 2)]
  }
  { gsub(/": /, "\":", $2); rate[$1] = rate[$1] " " field($2, "tokens_per_second")
    memory[$1] = memory[$1] " " field($2, "rss_bytes") }
  END {
    own = median(rate["tessera"]); bytes = median(memory["tessera"])
    printf "\n%-12s %10.1f tokens/s  %7.0f MiB\n", "tessera", own, bytes / 1048576
    for (peer in rate) if (peer != "tessera")
      printf "%-12s %10.1f tokens/s  %7.0f MiB   tessera: %.2f x the rate, %.2f x the memory\n", peer,
        median(rate[peer]), median(memory[peer]) / 1048576, own / median(rate[peer]), bytes / median(memory[peer])
  }' "$lines"
