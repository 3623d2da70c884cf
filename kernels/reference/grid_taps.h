// Maps the coordinates of a grid to the samples that they read: the common part of GridSample and its gradient. As in ONNX's reference
// implementation, a coordinate outside the border is clamped or reflected before its taps are chosen, and then each tap again. The
// exception is cubic interpolation with a clamped border, where the reference produces steps: it follows PyTorch and onnxruntime.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/catalog/kernel.h"

namespace gradloom {

// The samples along one dimension that a coordinate reads.
struct GridTaps {
  static constexpr int kMaxTaps = 4;
  std::array<int64_t, kMaxTaps> at{};  // -1: in the zero padding
  std::array<double, kMaxTaps> weight{};
  std::array<double, kMaxTaps> slope{};  // d weight / d normalized coordinate
};

class GridSampler {
 public:
  // Reads the attributes mode, padding_mode and align_corners. Throws Error(kAttr).
  explicit GridSampler(const KernelCall& call);

  // The number of taps along one dimension.
  int num_taps() const { return mode_ == Mode::kNearest ? 1 : mode_ == Mode::kLinear ? 2 : 4; }

  // The taps of the normalized coordinate n (-1 and 1 are the ends) along a dimension of `extent` samples.
  GridTaps TapsOf(double n, int64_t extent) const;

 private:
  // The taps of position x among the samples; `slope` is d x / d normalized coordinate.
  GridTaps TapsAround(double x, double slope, int64_t extent) const;

  enum class Mode : uint8_t { kNearest, kLinear, kCubic };
  enum class Padding : uint8_t { kZeros, kBorder, kReflection };

  void Set(GridTaps& taps, size_t i, int64_t at, double weight, double slope, int64_t extent) const;

  bool align_;
  Mode mode_;
  Padding padding_;
};

}  // namespace gradloom
