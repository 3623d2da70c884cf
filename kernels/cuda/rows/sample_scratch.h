// The scratch memory of Resize, GridSample and their gradients, for the rows and the kernels.
#pragma once

#include <algorithm>

#include "kernels/catalog/kernel.h"

namespace gradloom {

// Resize has a table of what each output coordinate reads; its gradient also has one of the outputs that read each input coordinate. These
// are the sizes of an entry, for every axis.
inline constexpr int64_t kResizeEntryBytes = 48;
inline constexpr int64_t kResizeRangeBytes = 16;

// GridSampleGrad accumulates the gradient of X in integers, for several channels of all samples at a time.
struct GridSampleScratch {
  int64_t words = 1;     // integers per element: 2 for float64
  int64_t channels = 0;  // at a time
  int64_t sums = 0;      // bytes of the integers; a float64 per sample and channel follows
  int64_t bytes = 0;

  // `x` is the type and shape of X.
  explicit GridSampleScratch(const OperandType& x) {
    constexpr int64_t kMaxBytes = int64_t{64} << 20;  // bytes of integers, unless one channel needs more
    const int64_t planes = x.shape[0], points = x.shape.elements() / std::max<int64_t>(planes * x.shape[1], 1);
    words = x.dtype == DType::kFloat64 ? 2 : 1;
    const int64_t channel = std::max<int64_t>(planes * points * words * 8, 1);
    channels = std::min(std::max<int64_t>(kMaxBytes / channel, 1), x.shape[1]);
    sums = channels * planes * points * words * 8;
    bytes = sums + channels * planes * 8;
  }
};

}  // namespace gradloom
