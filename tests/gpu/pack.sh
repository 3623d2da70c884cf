#!/bin/bash
# tests/gpu/pack.sh FOLDER: builds the GPU tests without oneDNN and copies them to FOLDER with the libraries that a machine with a GPU and
# CUDA 13 may lack. Besides FOLDER, such a machine only needs the recorded training runs of tests/conformance: run_on_gpu.sh.
set -euo pipefail
folder=${1:?usage: tests/gpu/pack.sh FOLDER}
cd "$(dirname "$0")/../.."
program=gpu_programs
bazel build --define=cpu=reference --dynamic_mode=off --strip=always //tests/gpu:$program
mkdir -p "$folder"
cp -f "bazel-bin/tests/gpu/$program" "$folder/"
strip "$folder/$program"
# CUDA's own libraries and the C library belong to the other machine.
ldd "$folder/$program" | awk '$3 ~ /^\// { print $3 }' | grep -Ev 'cuda|cublas|cudnn|nccl|nvrtc|libc\.so|libm\.so|ld-linux|libpthread|libdl|librt' |
  xargs -r cp -fL -t "$folder/"
du -sh "$folder"
