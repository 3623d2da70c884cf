// Recomputes activations in the backward pass instead of keeping them.
#pragma once

#include "compiler/graph/graph.h"
#include "kernels/catalog/kernel.h"

namespace gradloom {

// How much is recomputed at least.
struct RecomputeGoal {
  int64_t bytes = 0;     // by which the memory in use shall become less; 0: nothing is recomputed
  bool segments = true;  // whether parts of the forward pass may run again

  bool operator==(const RecomputeGoal&) const = default;
};

// The values that were chosen: their number, their bytes, an estimate of by how much less memory is in use, and the predicted seconds of
// recomputing them.
struct Recomputed {
  int values = 0;
  int64_t bytes = 0;
  int64_t saving = 0;
  double seconds = 0;
};

// Chooses values that the forward pass makes and the backward pass reads, so that they die in between. Takes those first whose bytes cost
// the least time to recompute from values that stay. If these are too few, the backward pass runs segments of the forward pass again
// (ForwardSegments), and beside them, the cheapest values of the others. Their operators are inserted a second time before the first reader
// in the backward pass; random ones draw the same numbers by their keys. The result of the graph stays the same, bit by bit.
Recomputed Recompute(Graph& graph, const RecomputeGoal& goal, DeviceKind device, int threads);

}  // namespace gradloom
