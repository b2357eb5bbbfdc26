#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows that the tests can fail: makes the mistakes of mutations.txt one by one in a clone, builds the test
# program that must notice, and runs it. mutations.sh [NAME...]; without names all of them (half an hour).
# Lists the mistakes that no test noticed; the exit status is 0 if there was none.
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
clone=$root/build/mutations
rm -rf "$clone"
git clone -q "$root" "$clone" && cd "$clone" || exit 1
cmake --preset release >/dev/null || exit 1

trim() { sed 's/^ *//; s/ *$//' <<<"$1"; }
survivors=()
count=0
while IFS='|' read -r name file program change; do
  name=$(trim "$name")
  case $name in '' | \#*) continue ;; esac
  if [ $# -gt 0 ] && [[ " $* " != *" $name "* ]]; then continue; fi
  file=$(trim "$file")
  program=$(trim "$program")_test
  OLD=$(trim "${change%%==>*}") NEW=$(trim "${change#*==>}") perl -0pi -e \
    'BEGIN { $n = 0 } $n += s/\Q$ENV{OLD}\E/$ENV{NEW}/; END { exit($n == 0) }' "$file" ||
    { echo "$name: $file no longer holds the text"; survivors+=("$name"); continue; }
  if ! cmake --build --preset release -j2 --target "$program" >"$clone/log" 2>&1; then
    echo "$name: does not compile"
    survivors+=("$name")
  elif timeout 300 "build/release/tests/$program" --gtest_brief=1 --gtest_fail_fast >"$clone/log" 2>&1; then
    echo "$name: SURVIVED"
    survivors+=("$name")
  else
    echo "$name: $(grep -m 1 -o 'FAILED  \] [^ ,]*' "$clone/log" | sed 's/.*] //')"
  fi
  count=$((count + 1))
  git checkout -q -- "$file"
done <"$root/tests/support/mutations.txt"
printf '\n%d mistakes, not noticed: %s\n' "$count" "${survivors[*]:-none}"
[ ${#survivors[@]} -eq 0 ]
