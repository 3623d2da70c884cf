// Cuts a model into stages for devices that cannot hold all of it.
#pragma once

#include <cstdint>

#include "compiler/graph/graph.h"
#include "compiler/passes/place_devices.h"
#include "compiler/passes/recipe.h"

namespace gradloom {

// The cost of a placement by the cost model, estimated before memory is planned.
struct PlacementEstimate {
  double seconds = 0;    // time of a step: of its slowest device, with transfers and all-reduces
  int64_t bytes = 0;     // memory of the device that uses most: states, constants and the values live at once
  int64_t too_much = 0;  // bytes above the limit, of the device that exceeds it most
  bool better_than(const PlacementEstimate& other) const;
};

// Estimates the placement of a graph over the whole batch, with loss, gradients and updates, whose nodes are placed on `stages` devices;
// `copies` of the model share the batch. `limit`: bytes of a device; 0: any.
PlacementEstimate EstimatePlacement(const Graph& graph, const Stages& stages, int copies, const Recipe& recipe, int64_t limit);

// Cuts the forward pass, in the order of its nodes, into contiguous parts for the recipe's devices. The number of parts divides the number
// of devices, and the parts fit the limit, or else come nearest, in the least time; the remaining devices hold copies. Sets `device` of the
// nodes to the last placement that was tried.
Stages CutStages(Graph& graph, const Recipe& recipe, int64_t limit);

}  // namespace gradloom
