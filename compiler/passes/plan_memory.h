// Fixes the address of every value before the first step.
#pragma once

#include "compiler/passes/program_plan.h"

namespace gradloom {

// Fills placement, scratch_offset, copies and transient_bytes for a graph whose nodes run in order on one
// stream. `plan` has its kernels; `whole` has the state tensors, constants and step layout that the
// graph's values of those roles are found in by name.
//
// Values share bytes where one is dead before the other is born; the output of a view lies on its input,
// and an output lies on an input that dies at its node where the kernel permits it. A next value is
// written straight into its state's place if nothing reads the old one afterwards.
void PlanMemory(const Graph& graph, const Plan& whole, ProgramPlan& plan);

}  // namespace gradloom
