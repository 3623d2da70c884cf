// Updates of many small parameters in one launch.
#pragma once

#include "compiler/passes/program_plan.h"

namespace gradloom {

// For GPUs, where a launch takes longer than the update of a bias: updates of small parameters by one optimizer with the same options
// become gradloom.MultiTensorUpdate, at most 32 each, in the place of the last of them. Every bit stays. Layouts are decided.
void JoinUpdates(Graph& graph, const ProgramPlan& plan);

}  // namespace gradloom
