#!/bin/bash
# Prepares a fresh Debian 12 machine for building the project, with apt-get and pip. With "tests", also for running its tests.
set -euo pipefail

packages=(
  bazel-bootstrap bazel-platforms bazel-rules-java bazel-rules-proto bazel-skylib
  clang-format g++ git python3 python3-pip python3-venv unzip
  libprotobuf-dev protobuf-compiler
  libgtest-dev libgmock-dev
  libcli11-dev libtomlplusplus-dev nlohmann-json3-dev zlib1g-dev libzip-dev libxxhash-dev libjpeg62-turbo-dev libpng-dev
  libopenmpi-dev
)
if [ "${1:-}" = tests ]; then packages+=(chromium-headless-shell cmake openmpi-bin pkg-config); fi

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
if [ "${#missing[@]}" -gt 0 ]; then
  echo "installing: ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  as_root apt-get update -qq
  as_root apt-get install -y -qq --no-install-recommends "${missing[@]}"
fi

# Tools that do not know our include paths would find the headers of another onnx under /usr/include.
if [ -e /usr/include/onnx/checker.h ]; then
  echo "warning: libonnx-dev is installed; this project brings its own onnx" >&2
fi
python3 -m pip --version >/dev/null || { echo "python3 has no pip" >&2; exit 1; }
echo "ready: now 'bazel test //...'"
