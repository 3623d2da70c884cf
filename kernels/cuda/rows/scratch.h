// How kernels divide their work where partial results pass through scratch memory: the row of the catalog states how much of it there is,
// the kernel uses it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/catalog/kernel.h"

namespace gradloom::cuda_rows {

// A reduction in parts, so that few outputs keep a device busy too.
struct ReductionPlan {
  std::vector<bool> reduced;       // by axis of the input
  int64_t outputs = 1, count = 1;  // elements of the output; of the input for each of them
  bool rows = false;               // the innermost axis is reduced: a group of threads for each part; false: a thread
  int64_t parts = 1;               // of each output; their results pass through scratch memory where there are two or more
};

// The axes, input 1, are known.
ReductionPlan PlanReduction(const KernelCall& call);

// Into how many parts lines are cut whose elements depend on all before them.
inline int64_t PartsOfLines(int64_t lines, int64_t extent) {
  constexpr int64_t kThreadsWanted = 1 << 14, kShortestPart = 64, kMostParts = 1024;
  return std::clamp<int64_t>(kThreadsWanted / std::max<int64_t>(lines, 1), 1, std::clamp<int64_t>(extent / kShortestPart, 1, kMostParts));
}

// A loss and a weight for each row, in double, and for each part of the rows.
inline constexpr int64_t kLossTermBytes = 16, kMostLossParts = 256;

// The options of an optimizer's step and what goes with them.
inline constexpr int64_t kUpdateBytes = 128;

// Multinomial: the running sums of each row, and those of the parts that a block's threads have.
inline constexpr int64_t kMostThreads = 1024;

}  // namespace gradloom::cuda_rows
