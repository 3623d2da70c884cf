// The part of a tensor that a Slice reads.
#pragma once

#include <cstdint>
#include <optional>

#include "compiler/graph/graph.h"

namespace gradloom {

// Positions [begin, end) of one axis, and all of the other axes.
struct SlicePart {
  int axis = 0;
  int64_t begin = 0, end = 0;
};

// The part of Slice(x, starts, ends, axes, steps), or of gradloom.SliceGrad, whose operands after the first are the same. `whole`: the
// shape of x; `part`: the shape of what is read. nullopt: bounds that are not constants, steps other than 1, or parts of more than one
// axis. If all of x is read, it is all of the first axis that is named.
std::optional<SlicePart> PartOf(const Graph& graph, const Node& slice, const Shape& whole, const Shape& part);

}  // namespace gradloom
