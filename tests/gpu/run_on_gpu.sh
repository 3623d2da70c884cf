#!/bin/bash
# tests/gpu/run_on_gpu.sh FOLDER [REPORT]: runs the contents of FOLDER, which pack.sh created, on the first GPU of this machine in less than 9
# minutes. Writes the folder REPORT (gpu_report): report.txt with the device, the date, what passed, and what failed and how; and the output
# of each process. Exit status 0 means that everything passed.
set -uo pipefail
folder=$(cd "${1:?usage: tests/gpu/run_on_gpu.sh FOLDER [REPORT]}" && pwd) || exit 2
report=$(realpath -m "${2:-gpu_report}")
[ -x "$folder/gpu_programs" ] || tar -xzf "$folder/programs.tar.gz" -C "$folder" || exit 2
cd "$(dirname "$0")/../.." || exit 2
export LD_LIBRARY_PATH="$folder:$(tests/gpu/cuda_libraries.sh):${LD_LIBRARY_PATH:-}"
export GRADLOOM_CACHE=${GRADLOOM_CACHE:-/tmp/gradloom_gpu_cache}
exec python3 tests/gpu/run_on_gpu.py "$folder/gpu_programs" "$report"
