// Quantiles of measured values.
#pragma once

#include <algorithm>
#include <vector>

namespace gradloom {

// The value below which the share q, in [0, 1], of the values is, interpolated linearly as in numpy's default. `values`: at least one.
inline double QuantileOf(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  const double at = q * static_cast<double>(values.size() - 1);
  const auto low = static_cast<size_t>(at);
  const size_t high = std::min(low + 1, values.size() - 1);
  return values[low] + (values[high] - values[low]) * (at - static_cast<double>(low));
}

}  // namespace gradloom
