// Cuts a model into stages for devices that cannot hold all of it.
#pragma once

#include <cstdint>

#include "compiler/graph/graph.h"
#include "compiler/passes/devices/place_devices.h"
#include "compiler/passes/recipe.h"

namespace gradloom {

// Cuts the forward pass, in the order of its nodes, into contiguous parts for the recipe's devices. The number of parts divides the number
// of devices, and the parts fit the limit, or else come nearest, in the least time; the remaining devices hold copies, which share a batch
// of `batch` samples. Changes `device` of the nodes.
Stages CutStages(Graph& graph, const Recipe& recipe, int64_t batch, int64_t limit);

}  // namespace gradloom
