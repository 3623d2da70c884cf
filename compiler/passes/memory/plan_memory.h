// Fixes the address of every value before the first step.
#pragma once

#include <vector>

#include "compiler/passes/schedule/program_plan.h"

namespace gradloom {

// Fills placement, scratch_offset, copies and transient_bytes for a graph whose nodes run on streams with waits between them. `plan` has
// these and its kernels. `whole` has the state tensors, constants and step layout, in which the graph's values of those roles are found by
// name.
//
// Values share bytes if one is dead before the other is made, in every order that streams and waits permit. The values in `kept` (by value;
// empty: none) are alive from the first node to the last, and share bytes only with values that become them in place; they may not be
// initial values of a loop, which overwrites these. The output of a view shares its input's bytes, and so does an output with an input that
// dies at its node, if the kernel permits it. A next value is written directly into its state's place if nothing can read the old one
// afterwards and no node can refuse the batch any more (refusals.h). Bodies of branches and loops are placed first; their intermediate
// values are scratch memory of their node.
void PlanMemory(const Graph& graph, const Plan& whole, ProgramPlan& plan, const std::vector<bool>& kept = {});

}  // namespace gradloom
