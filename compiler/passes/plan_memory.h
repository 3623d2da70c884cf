// Fixes the address of every value before the first step.
#pragma once

#include "compiler/passes/program_plan.h"

namespace gradloom {

// Fills placement, scratch_offset, copies and transient_bytes for a graph whose nodes run on streams with waits between
// them. `plan` has these and its kernels; `whole` has the state tensors, constants and step layout that the
// graph's values of those roles are found in by name.
//
// Values share bytes where one is dead before the other is born, in every order that streams and waits permit; the output of a view lies on
// its input, and an output lies on an input that dies at its node where the kernel permits it. A next value is written straight into its
// state's place if nothing can read the old one afterwards and no node can refuse the batch any more (refusals.h). Bodies of branches and
// loops are placed first: what they use on the way is scratch of their node.
void PlanMemory(const Graph& graph, const Plan& whole, ProgramPlan& plan);

}  // namespace gradloom
