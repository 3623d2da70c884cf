#!/bin/bash
# onnx_node_tests.sh RUNNER TESTS.tar PENDING [DIR] [FLAG]...: runs the tests in DIR, or by default those of the archive, of which PENDING
# lists the ones that do not pass.
set -eu
runner="$1" archive="$2" pending="$3"
shift 3
if [ "$#" -gt 0 ] && [ "${1#--}" = "$1" ]; then
  # Relative paths refer to the caller's directory: `bazel run` starts programs elsewhere.
  folder="$(cd "${BUILD_WORKING_DIRECTORY:-.}" && realpath "$1")"
  shift
  exec "$runner" "$folder" "$@"
fi
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
tar xf "$archive" -C "$folder"
"$runner" "$folder" --pending "$pending" "$@"
