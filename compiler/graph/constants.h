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

// What the parts of a tensor, `count` of them one after the other along the axis, are more than the one before: by place along the last
// axis, or one number for all. Empty: they are more by something else, or there are fewer than two.
std::vector<int64_t> StepsAlong(const Tensor& data, int axis, int64_t count);

// A tensor of which `count` parts are along the axis, each by these steps more than the one before, the first as that of `data`, which has
// `parts`.
Tensor CountedAlong(const Tensor& data, int axis, int64_t parts, const std::vector<int64_t>& steps, int64_t count);

}  // namespace gradloom
