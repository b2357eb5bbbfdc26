#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what Tessera needs to build, test and run, from the packages of Debian or Ubuntu. Asks
# nothing, and does nothing when all of it is there.
set -euo pipefail

if [ $# -gt 0 ]; then
  echo "usage: cmake/install-dependencies.sh   (takes no arguments)"
  [ "$1" = "--help" ] && exit 0 || exit 2
fi

packages=(
  # build
  g++ cmake ninja-build ccache
  # libraries
  libopenmpi-dev openmpi-bin libdnnl-dev libhwy-dev libfmt-dev libspdlog-dev
  libtomlplusplus-dev libcli11-dev nlohmann-json3-dev
  # tests
  libgtest-dev librapidcheck-dev libbenchmark-dev clang-format-14
  # the text of the quickstart
  bible-kjv
)

is_installed() {
  [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "install-dependencies: this is not Debian or Ubuntu; install the equivalents of: ${packages[*]}" >&2
  exit 1
fi

missing=()
for package in "${packages[@]}"; do
  is_installed "$package" || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "install-dependencies: as root, run: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
apt() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o Dpkg::Use-Pty=0 "$@"
}

echo "Installing what building, testing and running Tessera need: ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
install() { apt install -y --no-install-recommends "${missing[@]}" >"$log" 2>&1; }
# The package lists may be missing or old: refresh them only when the packages cannot be had without.
if ! install; then
  apt update >"$log" 2>&1 && install || { tail -n 20 "$log" >&2; exit 1; }
fi
