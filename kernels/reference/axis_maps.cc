#include "kernels/reference/axis_maps.h"

namespace gradloom {

AxisMap AxisMap::Transposed() const {
  AxisMap map{.in = out, .out = in, .identity = identity, .starts = {0}, .indices = {}, .weights = {}, .outside = {}};
  if (identity) return map;
  const auto n = static_cast<size_t>(in);
  map.starts.assign(n + 1, 0);
  for (int64_t index : indices) ++map.starts[static_cast<size_t>(index) + 1];
  for (size_t i = 0; i < n; ++i) map.starts[i + 1] += map.starts[i];
  map.indices.resize(indices.size());
  map.weights.resize(indices.size());
  std::vector<size_t> next(map.starts.begin(), map.starts.end() - 1);
  for (size_t o = 0; o + 1 < starts.size(); ++o) {
    for (size_t k = starts[o]; k < starts[o + 1]; ++k) {
      const size_t place = next[static_cast<size_t>(indices[k])]++;
      map.indices[place] = static_cast<int64_t>(o);
      map.weights[place] = weights[k];
    }
  }
  return map;
}

}  // namespace gradloom
