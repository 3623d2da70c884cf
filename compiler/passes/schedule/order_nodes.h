// The order in which nodes run on one stream.
#pragma once

#include "compiler/graph/graph.h"
#include "kernels/catalog/kernel.h"

namespace gradloom {

// Keeps the given order, but moves each node of the update phase up to the first position at which its operands exist, every other reader
// of the state that it replaces has run, and no node on any device can refuse the batch any more (refusals.h). Its gradient then dies there
// instead of at the end of the step, and the update is still in place. An update that waits for a collective is placed where the collective
// has most likely ended, by the costs of the device with a team of `threads`; until then the stream continues with the rest.
void OrderNodes(Graph& graph, DeviceKind device, int threads);

}  // namespace gradloom
