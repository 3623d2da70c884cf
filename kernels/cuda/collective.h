// Sums that the members of a group compute in a collective when they can read each other's memory.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>

#include "runtime/base/dtype.h"

namespace gradloom::cuda {

inline constexpr int kMaxGroupMembers = 64;

// to[i] = the sum of from[m][begin + i] over the members m, for i < count, as a binary tree: ((0 + 1) + (2 + 3)) + ... `to` may be from[m]
// + begin. Types: float32, float64, float16 and bfloat16 (both summed in float32), int32, int64.
void EnqueueTreeSum(DType dtype, std::span<const void* const> from, int64_t begin, int64_t count, void* to, cudaStream_t stream);

bool CanSum(DType dtype);

}  // namespace gradloom::cuda
