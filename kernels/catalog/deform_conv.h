// The parts of calls to DeformConv and its gradient that all kernels share.
#pragma once

#include <cstdint>

#include "kernels/catalog/kernel.h"

namespace gradloom {

// Inputs of DeformConv. In gradloom.DeformConvGrad, the gradient of the output follows them.
enum DeformInput : int { kDeformX, kDeformW, kDeformOffset, kDeformBias, kDeformMask, kDeformInputs };

// Planes x [images, channels, height, width], filters w [filters, channels / groups, taps], offsets
// [images, offset groups, taps, (y, x), points], a mask without (y, x), and an output [images, filters, points].
struct DeformSizes {
  int64_t images, channels, height, width;
  int64_t filters, groups, offset_groups;
  int64_t kernel[2], out[2];  // by axis: y, x

  // x, w and the output must have rank 4.
  explicit DeformSizes(const KernelCall& call);

  constexpr int64_t taps() const { return kernel[0] * kernel[1]; }
  constexpr int64_t points() const { return out[0] * out[1]; }
  constexpr int64_t pixels() const { return height * width; }
  constexpr int64_t group_channels() const { return channels / groups; }
  constexpr int64_t group_filters() const { return filters / groups; }
  constexpr int64_t planes() const { return images * channels; }
};

// The output's shape, also for a call of the gradient.
const Shape& DeformOutputShape(const KernelCall& call);

// Whether attributes, offsets and mask fit x, w and the output, which must have rank 4.
bool DeformFits(const KernelCall& call);

}  // namespace gradloom
