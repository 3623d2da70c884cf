// A plan as one HTML page that needs nothing else: graph, time line, memory map.
#pragma once

#include <string>

#include "compiler/cost/simulate.h"
#include "runtime/plan/plan.h"

namespace gradloom {

// The page of an entry with the times of its simulation. Ranks beyond the first sixteen are not drawn. Names are data: none of
// them can become markup or script.
std::string PlanPage(const Plan& plan, int entry, const Simulation& simulation, const std::string& title);

}  // namespace gradloom
