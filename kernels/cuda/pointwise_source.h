// Generates CUDA C++ for a pointwise program, specialized to one call.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/catalog/kernel.h"
#include "kernels/catalog/pointwise.h"

namespace gradloom::cuda {

struct PointwiseSource {
  std::string text;     // extern "C" __global__ void gradloom_pointwise(const Arguments)
  int64_t threads = 0;  // the number of threads needed: each computes `width` neighboring elements
  int width = 1;
};

inline constexpr char kPointwiseName[] = "gradloom_pointwise";

// `call` has row-major operands (see PhysicalOf). The struct Arguments holds the addresses of the inputs, then of the outputs, then, with
// `preserves_state`, KernelSite::refused. Shapes and strides are written into the text as numbers, constants as their bits; nothing else of
// the plan is.
PointwiseSource WritePointwiseSource(const KernelCall& call, const PointwiseProgram& program, bool preserves_state);

}  // namespace gradloom::cuda
