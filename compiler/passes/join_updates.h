// Joins the updates of many small parameters into one launch.
#pragma once

#include "compiler/passes/program_plan.h"

namespace gradloom {

// For GPUs, where a launch takes longer than the update of a bias: updates of small parameters by one optimizer with the same options
// become gradloom.MultiTensorUpdate, at most 32 each, at the position of the last of them. No bit changes. Layouts must be assigned.
void JoinUpdates(Graph& graph, const ProgramPlan& plan);

}  // namespace gradloom
