// Texts by which nodes and tensors are found to be equal.
#pragma once

#include <cstdint>
#include <string>

#include "compiler/graph/graph.h"

namespace gradloom {

// Constants up to this size are compared with all others.
inline constexpr int64_t kMaxComparedBytes = 4 << 10;

// Tensors with equal keys have the same dtype, shape and bytes.
std::string KeyOf(const Tensor& tensor);

// Nodes with equal keys have equal results if they draw no random numbers, communicate nothing, and have no bodies.
std::string KeyOf(const Node& node);

}  // namespace gradloom
