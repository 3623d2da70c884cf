// Keeps what an entry computes from constants and weights alone until its next run.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/graph/graph.h"
#include "compiler/passes/schedule/program_plan.h"

namespace gradloom {

// By value: whether it is the same in every step until somebody sets a state: it is a constant, a state that the graph does not change, or
// computed from such values alone. Not what is fetched, and not what is much larger than all that it is computed from: such a value is
// cheaper to compute again than to keep. Uses the layouts of `plan`.
std::vector<bool> WeightsAlone(const Graph& graph, const ProgramPlan& plan);

// By value: whether it is one of these, a step computes it, and nodes with other results read it. If PlanMemory gives them memory that
// nothing else uses, the next run of the entry can leave out the instructions that compute them (runtime/plan/settled.h). Views have no
// memory of their own, so the values that they are views of are kept.
std::vector<bool> KeptValues(const Graph& graph, const ProgramPlan& plan);

// PlanMemory with all of the values in `kept` (as KeptValues returns them), if the arena of a step and two slots for inputs then have at
// most `limit_bytes`; otherwise with as many of the smallest as fit. Returns whether any are kept.
bool PlanMemoryKeeping(const Graph& graph, const Plan& whole, ProgramPlan& plan, std::vector<bool> kept, int64_t limit_bytes);

}  // namespace gradloom
