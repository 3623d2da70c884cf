// How kernels divide their work when partial results pass through scratch memory, for the row, which states its size, and the kernel, which
// uses it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/catalog/kernel.h"

namespace gradloom::cuda_rows {

// A reduction in several parts per output, so that few outputs keep a device busy as well.
struct ReductionPlan {
  std::vector<bool> reduced;       // per axis of the input
  int64_t outputs = 1, count = 1;  // output elements; input elements for each of them
  bool rows = false;               // the innermost axis is reduced: each part has a group of threads; false: a single thread
  int64_t parts = 1;               // per output; with more than one, partial results go to scratch memory
};

// The axes, input 1, must be constant.
ReductionPlan PlanReduction(const KernelCall& call);

// The number of parts into which lines are divided whose elements depend on all previous ones.
inline int64_t PartsOfLines(int64_t lines, int64_t extent) {
  constexpr int64_t kMinThreads = 1 << 14, kShortestPart = 64, kMaxParts = 1024;
  return std::clamp<int64_t>(kMinThreads / std::max<int64_t>(lines, 1), 1, std::clamp<int64_t>(extent / kShortestPart, 1, kMaxParts));
}

// A loss and a weight in double: for each row, and for each part of the rows.
inline constexpr int64_t kLossTermBytes = 16, kMaxLossParts = 256;

// The options of an optimizer step and the values derived from them.
inline constexpr int64_t kUpdateBytes = 128;

// Multinomial keeps the running sums of each row, and a sum for each thread of a block of at most this many threads.
inline constexpr int64_t kMaxThreads = 1024;

}  // namespace gradloom::cuda_rows
