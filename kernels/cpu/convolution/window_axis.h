// The windows of a convolution along each of its spatial dimensions, tap by tap.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/catalog/kernel.h"
#include "runtime/base/windows.h"

namespace gradloom {

// One spatial dimension: the extents of x and y, and the windows along it.
struct WindowAxis {
  int64_t in = 1, out = 1, taps = 1, stride = 1, pad = 0, dilation = 1;

  // The outputs [begin, end) for which tap k is within the input, and the input position of the first of them.
  struct Range {
    int64_t begin, end, first;
  };
  Range OutputRange(int64_t k) const {
    const int64_t offset = k * dilation - pad;
    const int64_t begin = offset >= 0 ? 0 : (-offset + stride - 1) / stride;
    const int64_t end = std::clamp<int64_t>(in > offset ? (in - offset - 1) / stride + 1 : 0, 0, out);
    return {begin, std::max(begin, end), begin * stride + offset};
  }
};

// Depth, height and width of x[N, C, D, H, W], y[N, O, OD, OH, OW] and w[O, C, KD, KH, KW]; a missing depth or height is 1.
inline std::array<WindowAxis, 3> VolumeAxesOf(const Attributes& attributes, const Shape& x, const Shape& y, const Shape& w) {
  const Windows windows = WindowsOf(attributes, x, {w.begin() + 2, w.end()});
  std::array<WindowAxis, 3> axes;
  for (int i = 0; i < windows.rank(); ++i) {
    const auto at = static_cast<size_t>(i);
    axes[at + 3 - static_cast<size_t>(windows.rank())] = {
        x[i + 2], y[i + 2], windows.kernel[at], windows.strides[at], windows.pads_begin[at], windows.dilations[at]};
  }
  return axes;
}

// Height and width, where there is no depth.
inline std::pair<WindowAxis, WindowAxis> WindowAxesOf(const Attributes& attributes, const Shape& x, const Shape& y, const Shape& w) {
  const std::array<WindowAxis, 3> axes = VolumeAxesOf(attributes, x, y, w);
  return {axes[1], axes[2]};
}

// For each index along a dimension: its contribution to the offset of an element, which is the sum over all dimensions.
inline std::vector<int64_t> AxisOffsets(const OperandType& operand, int axis) {
  std::vector<int64_t> index(static_cast<size_t>(operand.shape.rank()), 0), offsets;
  int64_t& along = index[static_cast<size_t>(axis)];
  for (along = 0; along < operand.shape[axis]; ++along) offsets.push_back(operand.layout.Offset(operand.shape, index));
  return offsets;
}

}  // namespace gradloom
