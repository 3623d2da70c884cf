// The regions of interest of RoiAlign, MaxRoiPool and their gradients, and the scratch memory.
#pragma once

#include <cstdint>

#include "kernels/catalog/kernel.h"

namespace gradloom::cuda_rows {

// Operands: images x and boxes; for RoiAlign the image of each box; for gradients also the gradient of the output.
struct RegionSizes {
  // Sizes of a precomputed box and of the record of a bin's largest pixel.
  static constexpr int64_t kBoxBytes = 64, kMaxPixelBytes = 16;

  int64_t images, channels, height, width;
  int64_t count, bins_y, bins_x;  // number of boxes; bins per box
  bool keeps_max_pixels;          // the gradient goes to the largest pixel of each bin

  // x and the output must have rank 4.
  explicit RegionSizes(const KernelCall& call);

  int64_t bins() const { return bins_y * bins_x; }
  int64_t pixels() const { return height * width; }
  int64_t outputs() const { return count * channels * bins(); }
  int64_t bytes() const { return count * kBoxBytes + (keeps_max_pixels ? outputs() * kMaxPixelBytes : 0); }
};

}  // namespace gradloom::cuda_rows
