// Recomputes activations in the backward pass instead of keeping them.
#pragma once

#include "compiler/graph/graph.h"
#include "kernels/catalog/kernel.h"

namespace gradloom {

// The values that were chosen: their number, their bytes, and the predicted seconds of recomputing them.
struct Recomputed {
  int values = 0;
  int64_t bytes = 0;
  double seconds = 0;
};

// Chooses values that the forward pass makes and the backward pass reads, until they have `wanted_bytes` together, so that they die in
// between. Takes those first whose bytes cost the least time to recompute from values that stay. Their operators are inserted a second time
// before the first reader in the backward pass; random ones draw the same numbers by their keys. The result of the graph stays the same,
// bit by bit.
Recomputed Recompute(Graph& graph, int64_t wanted_bytes, DeviceKind device, int threads);

}  // namespace gradloom
