// The boxes over images of RoiAlign, MaxRoiPool and their gradients, and the scratch memory that they need.
#pragma once

#include <cstdint>

#include "kernels/catalog/kernel.h"

namespace gradloom::cuda_rows {

// Operands: images x, boxes, for RoiAlign the image of each box; for gradients that of the output.
struct RegionSizes {
  // Of what is known of a box when its images are read, and of the largest pixel of a bin.
  static constexpr int64_t kBoxBytes = 64, kPeakBytes = 16;

  int64_t images, channels, height, width;
  int64_t count, bins_y, bins_x;  // boxes, bins of each
  bool keeps_peaks;               // a gradient goes to the largest pixel of each bin

  // The operands have four axes.
  explicit RegionSizes(const KernelCall& call);

  int64_t bins() const { return bins_y * bins_x; }
  int64_t pixels() const { return height * width; }
  int64_t outputs() const { return count * channels * bins(); }
  int64_t bytes() const { return count * kBoxBytes + (keeps_peaks ? outputs() * kPeakBytes : 0); }
};

}  // namespace gradloom::cuda_rows
