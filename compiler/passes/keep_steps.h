// Lets the gradients of LSTM, GRU and RNN use what the forward pass computed.
#pragma once

#include "compiler/graph/graph.h"
#include "kernels/catalog/kernel.h"

namespace gradloom {

// By default the gradient of a recurrent operator runs the forward pass again. If a kernel of the device keeps the steps of the forward
// pass, the operator becomes its training form, and the gradient gets Y and what is kept. On the CPU, 16-bit values are left alone: what is
// kept would be rounded, what is computed again is not.
void KeepSteps(Graph& graph, DeviceKind device, int threads);

}  // namespace gradloom
