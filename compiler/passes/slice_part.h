// Which part of a tensor a Slice reads.
#pragma once

#include <cstdint>
#include <optional>

#include "compiler/graph/graph.h"

namespace gradloom {

// Extents [begin, end) of one axis; all of the others.
struct SlicePart {
  int axis = 0;
  int64_t begin = 0, end = 0;
};

// Of Slice(x, starts, ends, axes, steps), or of gradloom.SliceGrad, whose operands behind the first are the same: `whole` is the shape of
// x, `part` that of what is read. nullopt: bounds that are no constants, steps other than 1, or parts of more axes than one. Where all of x
// is read it is all of the first axis that is named.
std::optional<SlicePart> PartOf(const Graph& graph, const Node& slice, const Shape& whole, const Shape& part);

}  // namespace gradloom
