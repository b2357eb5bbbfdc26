#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# How jobs end: run_main_test.sh PROGRAM RANKS. Each way must give its exit code and its message,
# once, within seconds of what a job that succeeds takes here.
set -uo pipefail
program=$1
ranks=$2
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# This script may itself have been started by mpirun or a batch system.
unset "${!OMPI_COMM_@}" "${!PMIX_@}" "${!PMI_@}" "${!SLURM_@}"
start=(mpirun --oversubscribe --bind-to none -np "$ranks" "$program")
failed=0
usual=0  # seconds that a job takes that only starts and ends

# expect WAY CODE MESSAGE: the message must be there exactly once ("-": no error message at all).
expect() {
  local way=$1 code=$2 message=$3 out status begin=$SECONDS count
  out=$(timeout 60 "${start[@]}" "$way" </dev/null 2>&1)
  status=$?
  seconds=$((SECONDS - begin))
  check "$way" "$code" "$message" "$status" "$out" "$seconds"
}

check() {
  local way=$1 code=$2 message=$3 status=$4 out=$5 seconds=$6 wanted=1 count
  count=$(grep -cF -- "tessera: error:" <<<"$out")
  if [ "$message" = - ]; then wanted=0; fi
  if [ "$status" -ne "$code" ] || [ "$count" -ne "$wanted" ] || [ "$seconds" -gt $((usual + 8)) ] ||
    { [ "$wanted" -eq 1 ] && ! grep -F -- "tessera: error:" <<<"$out" | grep -qE -- "$message"; }; then
    echo "FAILED $way: exit code $status (expected $code), $count messages, $seconds s; output:"
    echo "$out"
    failed=1
  else
    echo "ok $way: $seconds s"
  fi
}

last=$((ranks - 1))
usual=50
expect success 0 -
usual=$seconds
expect mask 0 -
expect config 2 'unknown key "lerning_rate"'
expect one-throws 1 "rank $last: the loss is NaN"
expect one-is-killed 137 -
expect one-is-late 1 "all_reduce .*was not finished after 0.[0-9] s; not seen: rank $last"

# One rank alone, without mpirun, and a signal.
out=$("$program" config 2>&1)
check "config, alone" 2 'unknown key' $? "$out" 0
coproc alone { exec "$program" signal 2>&1; }
pid=$alone_PID
read -r line <&"${alone[0]}"
kill -INT "$pid"
out=$(cat <&"${alone[0]}")
wait "$pid"
check "signal, alone" 130 'stopped by a signal' $? "$out" 0
exit $failed
