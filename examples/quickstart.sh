#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Trains a small language model, from nothing installed to generated text.
usage() {
  cat <<'END'
usage: examples/quickstart.sh [TEXT]

Installs what is missing, builds Tessera and trains a small byte-level GPT on the file TEXT with two
processes. Without TEXT it trains on the King James Bible. The run directory is runs/quickstart.
Example: examples/quickstart.sh my_novel.txt
END
}
set -euo pipefail
fail() {
  echo "quickstart: $1" >&2
  exit 2
}

case ${1:-} in --help | -h) usage; exit 0 ;; -*) fail "unknown option '$1'; see --help" ;; esac
[ $# -le 1 ] || fail "takes at most one text file, got $#; see --help"
text=${1:-}
if [ $# -eq 1 ]; then
  [ -e "$text" ] || fail "there is no file '$text'"
  [ -f "$text" ] || fail "'$text' is not a file"
  [ -r "$text" ] || fail "'$text' cannot be read; check its permissions"
  [ -s "$text" ] || fail "'$text' is empty"
  text=$(realpath -- "$text")
fi
cd "$(dirname "${BASH_SOURCE[0]}")/.."

cmake/install-dependencies.sh
cmake --preset release >/dev/null
cmake --build --preset release --target example_train_gpt

if [ -z "$text" ]; then
  text=$PWD/runs/bible.txt
  mkdir -p runs
  bible 'Gen1:1-Rev22:21' >"$text.part"
  mv "$text.part" "$text"
fi

# Open MPI refuses to run as root unless told.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
ranks=2
[ "$(nproc)" -gt 1 ] || ranks=1
exec mpirun -n $ranks --oversubscribe --bind-to none build/release/examples/train_gpt \
  --config examples/configs/quickstart.toml --set "data.path=$text" --set log.overwrite=true
