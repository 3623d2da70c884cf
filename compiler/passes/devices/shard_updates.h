// Sharing out the optimizer's state: each of the devices that share a batch keeps the states of some parameters, updates these, and
// broadcasts them to the others. Stage 1 of Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models",
// 2020, with whole parameters instead of slices, so that any optimizer computes the same bits as on every device alone.
#pragma once

#include "compiler/graph/graph.h"
#include "compiler/passes/memory/place_state.h"
#include "runtime/plan/plan.h"

namespace gradloom {

// Chooses the device (place) that keeps the optimizer's states of each parameter, as `holders` of these states: the one that the plan has
// for them already, otherwise, from the largest parameter on, the one that keeps the fewest bytes so far. States that `holders` contains
// keep theirs.
void ShareOutStates(const Graph& graph, const Plan& plan, int devices, StateHolders& holders);

// The graph of device `place`, after gradients are summed: removes the updates of parameters whose states another device holds, and
// broadcasts each parameter that has such states after its update (gradloom.Broadcast). All devices broadcast in one order. On the device
// that updates, the update's result and the broadcast's are both the parameter's next value, since they are the same, in one place.
void ShardUpdates(Graph& graph, int place, const StateHolders& holders);

}  // namespace gradloom
