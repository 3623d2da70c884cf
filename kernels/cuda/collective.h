// What the members of a group on directly readable memory compute in a collective.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>

#include "runtime/base/dtype.h"

namespace gradloom::cuda {

inline constexpr int kMaxGroupMembers = 64;

// to[i] = the sum of from[m][begin + i] over the members m as a binary tree, ((0 + 1) + (2 + 3)) + ..., for i < count. `to` may be
// from[m] + begin. float32, float64, float16, bfloat16 (summed in float32), int32, int64.
void EnqueueTreeSum(DType dtype, std::span<const void* const> from, int64_t begin, int64_t count, void* to, cudaStream_t stream);

bool CanSum(DType dtype);

}  // namespace gradloom::cuda
