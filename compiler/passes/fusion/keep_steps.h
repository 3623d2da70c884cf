// Lets the gradients of LSTM, GRU and RNN use what the forward pass computed.
#pragma once

#include "compiler/graph/graph.h"
#include "kernels/catalog/kernel.h"

namespace gradloom {

// By default the gradient of a recurrent operator recomputes the forward pass. If a kernel of the device keeps the steps of the forward
// pass, the operator becomes its training form, and the gradient gets Y and the kept values. On the CPU, 16-bit values are not kept:
// keeping would round them, recomputing does not.
void KeepSteps(Graph& graph, DeviceKind device, int threads);

}  // namespace gradloom
