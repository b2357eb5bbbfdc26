#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds Tessera and runs its tests.
usage() {
  cat <<'END'
usage: tests/run.sh [--all] [--slow] [--help]

Installs what is missing, builds build/release and runs all tests but the slow ones.
  --slow  runs the slow tests as well
  --all   adds: the unit and rank tests under AddressSanitizer and UndefinedBehaviorSanitizer; core,
          comm, spmd and parallel under ThreadSanitizer; every public header compiled alone; the
          benchmarks' build; the CUDA build, where nvcc is found
The last line says how many tests passed and failed. The exit status is 0 if none failed.
END
}
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

all=false
exclude=(-LE slow)
for argument in "$@"; do
  case $argument in
    --all) all=true ;;
    --slow) exclude=() ;;
    --help) usage; exit 0 ;;
    *) echo "tests/run.sh: unknown option '$argument'; see --help" >&2; exit 2 ;;
  esac
done

# Open MPI refuses to run as root, and to start more ranks than there are cores, unless told.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none

passed=0
failed=0
skipped=0
problems=()
log=$(mktemp)
trap 'rm -f "$log"' EXIT

note_failure() {
  failed=$((failed + 1))
  problems+=("$1")
}

# build <preset> [cmake --build arguments]: a build that fails counts as one failed test.
build() {
  local preset=$1
  shift
  printf '\n== %s: build\n' "$preset"
  if ! cmake --preset "$preset" >"$log" 2>&1; then
    cat "$log"
    note_failure "$preset: configure"
    return 1
  fi
  if ! cmake --build --preset "$preset" -j2 "$@"; then
    note_failure "$preset: build"
    return 1
  fi
}

# check <preset> [ctest arguments]: runs tests and adds up what CTest reports.
check() {
  local preset=$1
  shift
  printf '\n== %s: tests\n' "$preset"
  local status=0 bad total missed
  "${under[@]}" ctest --preset "$preset" -j2 --no-tests=error "$@" 2>&1 | tee "$log" |
    grep --line-buffered -vE '^ +Start +[0-9]+:|Passed +[0-9.]+ sec$' || true
  status=${PIPESTATUS[0]}
  read -r bad total < <(sed -nE 's/^[0-9]+% tests passed, ([0-9]+) tests failed out of ([0-9]+)$/\1 \2/p' "$log")
  missed=$(grep -cE '\*\*\*Skipped +[0-9.]+ sec$' "$log")
  skipped=$((skipped + missed))
  passed=$((passed + ${total:-0} - ${bad:-0} - missed))
  failed=$((failed + ${bad:-0}))
  if [ "$status" -ne 0 ] && [ "${bad:-0}" -eq 0 ]; then note_failure "$preset: ctest"; fi
  while read -r name; do problems+=("$preset: $name"); done < <(
    sed -nE 's/^\t *[0-9]+ - (.*) \((Failed|Timeout|SEGFAULT|Not Run|.*Exception.*|Subprocess.*|Bus error|ILLEGAL|NUMERICAL)\).*$/\1/p' "$log")
}
under=()

cmake/install-dependencies.sh || exit 1

if build release; then check release "${exclude[@]}"; fi

if $all; then
  if build asan; then check asan -L 'unit|ranks' -LE slow; fi
  thread_tests=()
  if cmake --preset tsan >"$log" 2>&1; then
    targets=$(cmake --build --preset tsan --target help)
    for layer in core comm spmd parallel; do
      if grep -q "^${layer}_test:" <<<"$targets"; then thread_tests+=("${layer}_test"); fi
    done
  fi
  # GCC's ThreadSanitizer cannot live with the address randomisation of newer kernels.
  if setarch -R true 2>/dev/null; then under=(setarch -R); fi
  if build tsan --target "${thread_tests[@]}"; then check tsan -L 'unit|ranks' -LE slow; fi
  under=()
  build release --target header_check bench && passed=$((passed + 1))
  if command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; then
    build cuda && passed=$((passed + 1))
  fi
fi

printf '\n'
if [ ${#problems[@]} -gt 0 ]; then printf 'failed: %s\n' "${problems[@]}"; fi
if [ $skipped -gt 0 ]; then echo "skipped: $skipped"; fi
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
