// Activations made again in the backward pass in place of being kept for it.
#pragma once

#include "compiler/graph/graph.h"
#include "kernels/catalog/kernel.h"

namespace gradloom {

// What was chosen: how many values, their bytes, and the predicted seconds that making them again takes.
struct Recomputed {
  int values = 0;
  int64_t bytes = 0;
  double seconds = 0;
};

// Lets values that the forward pass makes and the backward pass reads die in between, until they have `wanted_bytes` together: those
// whose bytes cost the least time to make again first, from values that stay. The operators that make them are put a second
// time before their first reader in the backward pass; random ones draw the same numbers by their keys. The result of the graph
// stays the same, bit by bit.
Recomputed Recompute(Graph& graph, int64_t wanted_bytes, DeviceKind device, int threads);

}  // namespace gradloom
