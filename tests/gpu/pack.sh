#!/bin/bash
# tests/gpu/pack.sh FOLDER [BAZEL OPTIONS]: builds the GPU tests without oneDNN and writes them to FOLDER/programs.tar.gz with the libraries
# that a machine with a GPU and CUDA 13 may lack. Besides FOLDER, such a machine only needs this tree, for the recorded training runs of
# tests/conformance: run_on_gpu.sh. Its C library must not be older than this machine's.
set -euo pipefail
folder=${1:?usage: tests/gpu/pack.sh FOLDER [BAZEL OPTIONS]}
shift
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
cd "$(dirname "$0")/../.."
program=gpu_programs
bazel build --define=cpu=reference --dynamic_mode=off --strip=always "$@" //tests/gpu:$program
packed=$(mktemp -d)
trap 'rm -rf "$packed"' EXIT
strip -o "$packed/$program" "bazel-bin/tests/gpu/$program"
# CUDA's own libraries and the C library belong to the other machine.
ldd "bazel-bin/tests/gpu/$program" | awk '$3 ~ /^\// { print $3 }' |
  grep -Ev 'cuda|cublas|cudnn|nccl|nvrtc|libc\.so|libm\.so|ld-linux|libpthread|libdl|librt' | xargs -r cp -fL -t "$packed/"
tar -czf "$folder/programs.tar.gz" -C "$packed" .
rm -f "$folder/$program"
du -h "$folder/programs.tar.gz"
