// Pooling windows on the CPU: a table of the points of each window, made once and shared by all planes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/catalog/kernel.h"
#include "kernels/cpu/parallel.h"

namespace gradloom {

// The input points of every window of a plane, in scan order. Operands are row-major or channels-last.
struct WindowTable {
  // x and y are the input and the output of the pooling, whichever of them the call computes. RejectsPooling must accept the call.
  WindowTable(const KernelCall& call, const Shape& x, const Shape& y);

  static constexpr int64_t kGroup = 64;  // channels that a thread processes together if they are innermost

  int64_t images, channels, inputs, outputs;  // inputs, outputs: points per plane
  bool innermost;
  std::vector<int32_t> first;  // per window, with one more at the end
  std::vector<int32_t> points;
  int64_t row;  // windows in a row along the last dimension

  // The distance in points between consecutive windows of a row if all of them have the same points relative to their start; else 0.
  int64_t Step() const;

  int Threads(const KernelCall& call) const;

  // Calls plane(input, output) with the offsets of each plane; or, if channels are innermost, group(input, output, channels of the group)
  // for each group of up to kGroup channels of an image.
  template <typename Plane, typename Group>
  void ForEach(int threads, Plane plane, Group group) const {
    if (!innermost) {
      ParallelFor(images * channels, threads, [&](int64_t i) { plane(i * inputs, i * outputs); });
      return;
    }
    const int64_t groups = (channels + kGroup - 1) / kGroup;
    ParallelFor(images * groups, threads, [&](int64_t i) {
      const int64_t image = i / groups, channel = i % groups * kGroup;
      group(image * inputs * channels + channel, image * outputs * channels + channel, std::min(kGroup, channels - channel));
    });
  }

  std::span<const int32_t> PointsOf(size_t window) const {
    return {points.data() + first[window], static_cast<size_t>(first[window + 1] - first[window])};
  }
  int64_t taps(size_t window) const { return first[window + 1] - first[window]; }
  bool Empty(size_t window) const { return taps(window) == 0; }
};

// Returns "" if the operands are float32, all row-major or all channels-last, and the extents of y match the windows of x; else the reason.
std::string RejectsPooling(const KernelCall& call, const Shape& x, const Shape& y);

}  // namespace gradloom
