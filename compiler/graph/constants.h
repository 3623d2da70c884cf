// What is known of a graph's constants.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "compiler/graph/graph.h"
#include "runtime/base/tensor.h"

namespace gradloom {

// The data of a constant; null: it is another value, or none.
const Tensor* ConstantData(const Graph& graph, ValueId id);

// The elements of a node's operand that is a constant of integers; nullopt: there is no such operand, or it is something else.
std::optional<std::vector<int64_t>> ConstantInts(const Graph& graph, const Node& node, size_t input);

// The number that all elements of a constant are; nullopt: they differ, there are none, or it is no constant.
std::optional<double> UniformConstant(const Graph& graph, ValueId id);

}  // namespace gradloom
