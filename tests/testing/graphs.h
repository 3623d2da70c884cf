// What tests of passes need of graphs.
#pragma once

#include <algorithm>
#include <random>
#include <string>
#include <utility>

#include "compiler/graph/graph.h"
#include "runtime/base/tensor.h"

namespace gradloom {

// Normally distributed float32 elements.
inline Tensor RandomTensor(std::mt19937& random, Shape shape) {
  Tensor tensor(DType::kFloat32, std::move(shape));
  std::normal_distribution<float> normal(0, 0.7F);
  for (float& value : tensor.as<float>()) value = normal(random);
  return tensor;
}

// The number of nodes of an operator.
inline int Count(const Graph& graph, const std::string& op) {
  return static_cast<int>(std::count_if(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) { return node.op == op; }));
}

}  // namespace gradloom
