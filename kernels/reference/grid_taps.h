// Maps the coordinates of a grid to the samples that they read and their weights: the common part of GridSample and its gradient.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/catalog/kernel.h"
#include "kernels/scalar/grid_sample.h"

namespace gradloom {

// The samples along one dimension that a coordinate reads.
struct GridTaps {
  static constexpr int kMaxTaps = 4;
  std::array<int64_t, kMaxTaps> at{};  // -1: in the zero padding
  std::array<double, kMaxTaps> weight{};
  std::array<double, kMaxTaps> slope{};  // d weight / d normalized coordinate
};

// Reads the attributes mode, padding_mode and align_corners. Throws Error(kAttr).
scalar::GridRules GridRulesOf(const KernelCall& call);

class GridSampler {
 public:
  explicit GridSampler(const KernelCall& call) : rules_(GridRulesOf(call)) {}

  const scalar::GridRules& rules() const { return rules_; }

  // The number of taps along one dimension.
  int num_taps() const { return rules_.mode == scalar::GridMode::kNearest ? 1 : rules_.mode == scalar::GridMode::kLinear ? 2 : 4; }

  // The taps of the normalized coordinate n (-1 and 1 are the ends) along a dimension of `extent` samples.
  GridTaps TapsOf(double n, int64_t extent) const;

 private:
  void Set(GridTaps& taps, size_t i, int64_t at, double weight, double slope, int64_t extent) const;

  scalar::GridRules rules_;
};

}  // namespace gradloom
