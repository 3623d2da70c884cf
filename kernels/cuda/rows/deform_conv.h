// The sizes of a deformable convolution, and the scratch memory of its gradients.
#pragma once

#include <cstdint>

#include "kernels/catalog/kernel.h"

namespace gradloom::cuda_rows {

// Inputs of DeformConv. gradloom.DeformConvGrad has the gradient of the output behind them.
enum DeformInput : int { kDeformX, kDeformW, kDeformOffset, kDeformBias, kDeformMask, kDeformInputs };

// Planes x [images, channels, height, width], filters w [filters, channels / groups, taps], offsets
// [images, offset groups, taps, (y, x), points], a mask without (y, x), and an output [images, filters, points].
struct DeformSizes {
  int64_t images, channels, height, width;
  int64_t filters, groups, offset_groups;
  int64_t kernel[2], out[2];  // by axis: y, x

  // x, w and the output have four axes.
  explicit DeformSizes(const KernelCall& call);

  constexpr int64_t taps() const { return kernel[0] * kernel[1]; }
  constexpr int64_t points() const { return out[0] * out[1]; }
  constexpr int64_t pixels() const { return height * width; }
  constexpr int64_t group_channels() const { return channels / groups; }
  constexpr int64_t group_filters() const { return filters / groups; }
  constexpr int64_t planes() const { return images * channels; }
};

// What DeformConvGrad keeps on the way: the gradients of all samples that were drawn, and the sums that the gradient of x is made of.
struct DeformScratch {
  bool samples, sums;  // which there are
  int64_t sample_bytes = 0, sum_bytes = 0, unit_bytes = 0;

  explicit DeformScratch(const KernelCall& call);
  int64_t bytes() const { return sample_bytes + sum_bytes + unit_bytes; }
};

}  // namespace gradloom::cuda_rows
