// Places parameters, states, constants and step parameters in the plan, once for all programs.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "compiler/passes/schedule/program_plan.h"

namespace gradloom {

// By name of a state: the places that hold it. A state without an entry is in all places.
using StateHolders = std::map<std::string, std::vector<int>>;

// Adds the graph's parameters, states and constants to the plan unless it has them already (by name), with the layouts of `scheduled`, and
// assigns their offsets. Constants are placed only for the program's place. A state that exists must agree in dtype, shape, layout and in
// whether it is partial: Error(kInternal). A constant is renamed in the graph if another of the same name has other bytes. Also fixes the
// step layout for the step parameters that the graph reads.
void PlaceStateAndConstants(Graph& graph, const ProgramPlan& scheduled, const StateHolders& holders, Plan& plan);

// The name in the plan of a parameter or state: one that is read as its average has that of the average.
std::string StateName(const Value& value);

// The feeds of a graph in order: its inputs except the step parameters.
std::vector<ValueId> FeedsOf(const Graph& graph);

}  // namespace gradloom
