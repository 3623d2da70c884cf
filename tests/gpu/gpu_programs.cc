// gpu_programs tests|replay|workload ARGS...: everything that is run on a GPU, in one program without oneDNN: the tests of kernels, streams
// and memory (with GoogleTest's flags), the recorded training runs (tests/conformance/replay_cases.cc), and a benchmark
// (tests/bench/workload.cc).
#include <gtest/gtest.h>

#include <cstdio>
#include <string_view>

#include "runtime/device/plugin.h"
#include "tests/bench/workload.h"
#include "tests/conformance/replay_cases.h"

// The CUDA device is linked into this program instead of loaded as a library.
extern "C" gradloom::DevicePlatform* gradloom_cuda_platform(int version);

int main(int argc, char** argv) {
  gradloom::SetCudaPlatform(gradloom_cuda_platform(gradloom::kPluginVersion));
  const std::string_view word = argc > 1 ? argv[1] : "";
  if (word == "replay") return gradloom::ReplayCases(argc - 1, argv + 1);
  if (word == "workload") return gradloom::RunWorkload(argc - 1, argv + 1);
  if (word == "tests") {
    int words = argc - 1;
    testing::InitGoogleTest(&words, argv + 1);
    return RUN_ALL_TESTS();
  }
  std::fprintf(stderr, "usage: gpu_programs tests|replay|workload WORDS...\n");
  return 2;
}
