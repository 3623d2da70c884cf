// A plan as one self-contained HTML page: graph, time line and memory map.
#pragma once

#include <string>

#include "compiler/cost/simulate.h"
#include "runtime/plan/plan.h"

namespace gradloom {

// The page of an entry with its simulated times. Ranks beyond the first sixteen are not drawn. Names are treated as data and cannot become
// markup or script.
std::string PlanPage(const Plan& plan, int entry, const Simulation& simulation, const std::string& title);

}  // namespace gradloom
