#!/bin/bash
# tests/gpu/run_on_gpu.sh FOLDER [REPORT]: runs the contents of FOLDER, which pack.sh created, on the first GPU of this machine, and writes
# a report with the device, the date, what passed and what failed. Takes less than 9 minutes: a step gets the time that is left, and counts
# as failed if there is none. Only compute-sanitizer, which comes last, may be left out. Exit status 0 means that everything passed.
set -uo pipefail
folder=$(cd "${1:?usage: tests/gpu/run_on_gpu.sh FOLDER [REPORT]}" && pwd) || exit 2
report=${2:-gpu_report.txt}
[ -x "$folder/gpu_programs" ] || tar -xzf "$folder/programs.tar.gz" -C "$folder" || exit 2
cd "$(dirname "$0")/../.."
failed=0
deadline=$((SECONDS + 520))

export LD_LIBRARY_PATH="$folder:$(tests/gpu/cuda_libraries.sh):${LD_LIBRARY_PATH:-}"
export GRADLOOM_CACHE=${GRADLOOM_CACHE:-/tmp/gradloom_gpu_cache}

step() {
  local name=$1 limit=$2 left=$((deadline - SECONDS))
  shift 2
  echo "== $name"
  if [ "$left" -lt 1 ]; then
    echo "== $name: FAILED: no time left"
    failed=1
    return
  fi
  [ "$limit" -le "$left" ] || limit=$left
  local begin=$SECONDS
  if timeout -k 5 "$limit" "$@" 2>&1 | tail -60; then
    echo "== $name: passed in $((SECONDS - begin)) s"
  else
    echo "== $name: FAILED in $((SECONDS - begin)) s, of $limit at most"
    failed=1
  fi
}

main() {
  date -u +%FT%TZ
  git rev-parse HEAD 2>/dev/null
  nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
  step "kernels, streams, memory" 240 "$folder/gpu_programs" tests
  local cases=tests/conformance
  step "recorded trainings on cuda:0" 120 "$folder/gpu_programs" replay $cases/cases $cases/recorded --devices cuda:0
  step "without graphs" 60 "$folder/gpu_programs" replay $cases/cases --devices cuda:0 --cuda-graph off
  step "three streams, random delays" 60 "$folder/gpu_programs" replay $cases/cases --devices cuda:0 --streams 3 --chaos 1
  step "on cuda:0,cuda:0" 60 "$folder/gpu_programs" replay $cases/cases --devices cuda:0,cuda:0
  if command -v compute-sanitizer >/dev/null; then
    for tool in memcheck racecheck initcheck synccheck; do
      if [ $((deadline - SECONDS)) -lt 60 ]; then
        echo "== compute-sanitizer $tool: not run, no time left"
        continue
      fi
      GRADLOOM_OPS=MatMul,Gemm,Softmax,LayerNormalization,gradloom.LayerNormGrad,gradloom.CrossEntropy,Gather,gradloom.GatherGrad,ReduceSum \
        step "compute-sanitizer $tool" 120 compute-sanitizer --tool $tool --error-exitcode 1 "$folder/gpu_programs" tests --gtest_filter='CudaKernels.*:CudaRandomCalls.*:RowGradient.*:AttentionProducts.*Agree*'
    done
  fi
  if [ "$failed" = 0 ]; then echo "everything passed"; else echo "something FAILED"; fi
}

main | tee "$report"
grep -q "^everything passed" "$report"
