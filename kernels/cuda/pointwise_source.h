// CUDA C++ for a program over single elements, made for one call.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/catalog/kernel.h"
#include "kernels/catalog/pointwise.h"

namespace gradloom::cuda {

struct PointwiseSource {
  std::string text;     // extern "C" __global__ void gradloom_pointwise(const Arguments)
  int64_t threads = 0;  // that have work: each computes `width` neighbouring elements
  int width = 1;
};

inline constexpr char kPointwiseName[] = "gradloom_pointwise";

// `call` has plain operands (see PhysicalOf). Arguments are the addresses of the inputs, then of the outputs, then, with
// `keeps_state`, `refused` of a KernelSite. Shapes and strides stand in the text as numbers, constants as their bits; nothing else of the
// plan does.
PointwiseSource WritePointwiseSource(const KernelCall& call, const PointwiseProgram& program, bool keeps_state);

}  // namespace gradloom::cuda
