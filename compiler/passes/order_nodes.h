// The order in which nodes run on one stream.
#pragma once

#include "compiler/graph/graph.h"
#include "kernels/catalog/kernel.h"

namespace gradloom {

// Keeps the given order, but moves each node of the update phase up to the first place at which its
// operands are there, every other reader of the state that it replaces has run, and no node on any device can refuse the batch any more
// (refusals.h): its gradient dies there instead of at the end of the step, and the update is still in place. One that waits for a meeting
// of devices comes where, by the costs of the device with a team of `threads`, that has most likely ended: until then the stream goes on
// with the rest.
void OrderNodes(Graph& graph, DeviceKind device, int threads);

}  // namespace gradloom
