// Generates CUDA C++ for a pointwise program, specialized to one call.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/catalog/kernel.h"
#include "kernels/catalog/pointwise.h"

namespace gradloom::cuda {

struct PointwiseSource {
  std::string text;     // extern "C" __global__ void gradloom_pointwise(const Arguments)
  int64_t threads = 0;  // the number of threads needed
  int width = 1;        // the neighboring elements that a thread loads and stores at once
};

// The threads of a block, and the elements of a group of tensors that it computes at a time.
inline constexpr int kPointwiseThreads = 256;
inline constexpr int64_t kPointwiseTile = 4 * kPointwiseThreads;

inline constexpr char kPointwiseName[] = "gradloom_pointwise";

// `call` has row-major operands (see PhysicalOf), or padded rows (see PaddedPointwiseStride), whose padding the kernel sets to zero. The
// struct Arguments holds the addresses of the inputs, then of the outputs, then, with `preserves_state`, KernelSite::refused. Shapes and
// strides are written into the text as numbers, constants as their bits; nothing else of the plan is.
PointwiseSource WritePointwiseSource(const KernelCall& call, const PointwiseProgram& program, bool preserves_state);

// The same for groups of tensors (kernels/catalog/pointwise_tensors.h). The struct Arguments holds for each group the addresses of its
// inputs and outputs, its number of elements, and the number of blocks of kPointwiseTile elements of this group and those before; then
// KernelSite::refused.
PointwiseSource WriteTensorsSource(const KernelCall& call, bool preserves_state);

}  // namespace gradloom::cuda
