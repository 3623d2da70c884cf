// Sharing out the optimizer's state: each of the devices that share a batch keeps the states of some parameters, updates these, and
// broadcasts them to the others. Stage 1 of Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models",
// 2020, with whole parameters instead of slices, so that any optimizer computes the same bits as on every device alone.
#pragma once

#include <map>

#include "compiler/graph/graph.h"
#include "compiler/passes/memory/place_state.h"
#include "runtime/plan/plan.h"

namespace gradloom {

// Chooses the device (place) that keeps the optimizer's states of each parameter, as `holders` of these states: the one that the plan has
// for them already, otherwise, from the largest parameter on, the one that keeps the fewest bytes so far. States that `holders` contains
// keep theirs.
void ShareOutStates(const Graph& graph, const Plan& plan, int devices, StateHolders& holders);

// By gradient that only one device reads, since nothing but updates of its parameters depends on it: that device (place). A gradient is the
// result of an all-reduce or, if it is accumulated in parts, their sum on a device (Value::partial).
using GradientOwners = std::map<ValueId, int>;

// Of a device's graph before sum_partial_values. Empty if only sums of gradients come after what may refuse the batch: then devices learn
// from these that no other refuses it, as they do not from a sum that another one gets.
GradientOwners FindGradientOwners(const Graph& graph, const StateHolders& holders);

// The graph of device `place`, after gradients are summed: removes the updates of parameters whose states another device holds, and
// broadcasts each parameter that has such states after its update (gradloom.Broadcast). All devices broadcast in one order. On the device
// that updates, the update's result and the broadcast's are both the parameter's next value, since they are the same, in one place.
// Gradients with an owner are summed for it alone (gradloom.Reduce): those of an all-reduce by one reduce.
//
// `alike`: all devices compute the same batch. Each then keeps the gradients of all parameters, as outputs: the loss and layers that keep
// something for their gradients have other kernels where there are none, and so perhaps other bits.
void ShardUpdates(Graph& graph, int place, const StateHolders& holders, const GradientOwners& gradient_owners, bool alike);

}  // namespace gradloom
