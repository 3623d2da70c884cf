// Where to cut a model for devices of which none can hold all of it.
#pragma once

#include <cstdint>

#include "compiler/graph/graph.h"
#include "compiler/passes/place_devices.h"
#include "compiler/passes/recipe.h"

namespace gradloom {

// What a placement needs by the cost model: an estimate, made before memory is planned.
struct PlacementEstimate {
  double seconds = 0;    // of a step: of its slowest device, with transfers and all-reduces
  int64_t bytes = 0;     // of the fullest device: states, constants and what is live at once
  int64_t too_much = 0;  // bytes above the limit, of the device where it is most
  bool better_than(const PlacementEstimate& other) const;
};

// Of a graph over the whole batch, with loss, gradients and updates, whose nodes are placed on `stages` devices; `copies` of the model
// share the batch. `limit`: bytes of a device; 0: any.
PlacementEstimate EstimatePlacement(const Graph& graph, const Stages& stages, int copies, const Recipe& recipe, int64_t limit);

// Cuts the forward pass, in the order of its nodes, into contiguous parts for the recipe's devices: as many parts as divide the
// number of devices and fit the limit, or else come nearest, in the least time; further devices hold copies. Sets
// `device` of the nodes to the last placement that was looked at.
Stages CutStages(Graph& graph, const Recipe& recipe, int64_t limit);

}  // namespace gradloom
