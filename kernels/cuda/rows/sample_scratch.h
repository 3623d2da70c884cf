// The scratch memory of Resize, GridSample and their gradients, as the rows ask for it and the kernels use it.
#pragma once

#include <algorithm>

#include "kernels/catalog/kernel.h"

namespace gradloom {

// Resize has a table of what each output coordinate reads, its gradient one too of what each input coordinate is read by: at most so many
// bytes an entry, for every axis.
inline constexpr int64_t kResizeEntryBytes = 48;
inline constexpr int64_t kResizeRangeBytes = 16;

// GridSampleGrad adds up the gradient of X in integers, for some channels of all samples at a time.
struct GridSampleScratch {
  int64_t words = 1;     // integers for each element: 2 for float64
  int64_t channels = 0;  // at a time
  int64_t sums = 0;      // bytes of the integers; a float64 for each sample and channel follows
  int64_t bytes = 0;

  // From the type and the shape of X.
  explicit GridSampleScratch(const OperandType& x) {
    constexpr int64_t kMost = int64_t{64} << 20;  // beyond a single channel's
    const int64_t planes = x.shape[0], points = x.shape.elements() / std::max<int64_t>(planes * x.shape[1], 1);
    words = x.dtype == DType::kFloat64 ? 2 : 1;
    const int64_t channel = std::max<int64_t>(planes * points * words * 8, 1);
    channels = std::min(std::max<int64_t>(kMost / channel, 1), x.shape[1]);
    sums = channels * planes * points * words * 8;
    bytes = sums + channels * planes * 8;
  }
};

}  // namespace gradloom
