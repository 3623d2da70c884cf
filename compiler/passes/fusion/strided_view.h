// Where operators that only move elements find them, or put them, in the memory of another value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "compiler/graph/graph.h"

namespace gradloom {

// Positions that are `stride` elements apart.
struct StridedRun {
  int64_t extent = 1, stride = 0;
};

// The elements of a value within another, row-major value.
struct StridedView {
  // For each axis, its runs from the outermost to the innermost: none if its extent is 1, and several if a reshape merged axes that are not
  // adjacent in memory. No two runs are one.
  std::vector<std::vector<StridedRun>> axes;
  int64_t first = 0;  // the position of the first element

  int64_t Extent(size_t axis) const;
};

// A whole value. Views of values without elements have no meaning.
StridedView ViewOf(const Shape& shape);

// The same elements in row-major order with other extents; nullopt if an extent of `shape` ends within one of the view.
std::optional<StridedView> Reshaped(const StridedView& view, const Shape& shape);

// Axis i of the result is axis perm[i] of the view.
StridedView Transposed(const StridedView& view, const std::vector<int64_t>& perm);

// The view that an output of a node is, if its input 0 is `input`. nullopt if the node is not a Reshape, Squeeze, Unsqueeze, Flatten,
// Identity, Transpose, Split, Slice along one axis, or Gather of one position, or if no runs describe its result.
std::optional<StridedView> OutputView(const Graph& graph, const Node& node, size_t output, const StridedView& input);

// The view that an input of a node becomes a part of, if its output 0 is `output`. nullopt if the node is not a Concat or one of the above
// that change no elements.
std::optional<StridedView> InputView(const Graph& graph, const Node& node, size_t input, const StridedView& output);

}  // namespace gradloom
