// Joins small pointwise updates of state, such as running statistics, into one launch.
#pragma once

#include "compiler/passes/schedule/program_plan.h"

namespace gradloom {

// For GPUs, where a launch takes longer than computing a few hundred elements: pointwise nodes with the same program whose results are next
// values of state, and nothing else, become gradloom.FusedTensors, at the position of the last of them, or behind the last node that may
// refuse the batch (refusals.h). Such are the running mean and variance of every batch normalization. No bit changes. Layouts must be
// assigned.
void JoinPointwise(Graph& graph, const ProgramPlan& plan);

}  // namespace gradloom
