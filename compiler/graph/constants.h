// Queries about a graph's constants.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "compiler/graph/graph.h"
#include "runtime/base/tensor.h"

namespace gradloom {

// The data of a constant; null if the value is not a constant or absent.
const Tensor* ConstantData(const Graph& graph, ValueId id);

// The elements of a node's operand if it is an integer constant; otherwise nullopt.
std::optional<std::vector<int64_t>> ConstantInts(const Graph& graph, const Node& node, size_t input);

// The number that all elements of a constant equal; nullopt if they differ, there are none, or the value is not a constant.
std::optional<double> UniformConstant(const Graph& graph, ValueId id);

// The tensor consists of `count` parts along the axis. Returns how much each part exceeds the previous one: per position along the last
// axis, or one number for all. Empty if the differences vary, or there are fewer than two parts.
std::vector<int64_t> StepsAlong(const Tensor& data, int axis, int64_t count);

// A tensor with `count` parts along the axis. The first part is that of `data`, which has `parts` parts; each further part exceeds the
// previous one by `steps`.
Tensor CountedAlong(const Tensor& data, int axis, int64_t parts, const std::vector<int64_t>& steps, int64_t count);

}  // namespace gradloom
