// The name of the state that holds the moving average of a parameter (StateKind::kAverage), in plans and in files.
#pragma once

#include <map>
#include <string>

#include "runtime/base/tensor.h"

namespace gradloom {

inline std::string AverageOf(const std::string& parameter) { return parameter + "/average"; }

// The name of the stored tensor with the trained value of a weight: its moving average, if there is one, otherwise itself. `types`: of the
// stored tensors, by name, without data. `is_weight`: whether the model has a weight of a name, which is then no average.
template <typename IsWeight>
std::string TrainedTensor(const std::map<std::string, TensorView>& types, const std::string& weight, const IsWeight& is_weight) {
  const std::string name = AverageOf(weight);
  const auto own = types.find(weight), average = types.find(name);
  const bool fits = own != types.end() && average != types.end() && average->second.dtype == own->second.dtype &&
                    average->second.shape == own->second.shape;
  return fits && !is_weight(name) ? name : weight;
}

}  // namespace gradloom
