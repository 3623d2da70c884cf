// The inputs that the host sets before each step.
#pragma once

#include <string_view>

#include "compiler/graph/graph.h"

namespace gradloom {

// The graph's input of this name (kStepLr: float32[], kStepNumber, kStepBatch, kStepSeed: int64[], see program_plan.h), made at the first
// call.
ValueId StepParam(Graph& graph, std::string_view name);

}  // namespace gradloom
