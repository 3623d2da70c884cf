// Where parameters, states, constants and step parameters lie: in the plan, once for all programs.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "compiler/passes/program_plan.h"

namespace gradloom {

// By the name of a state: the places that hold it. A state without an entry is in all of them.
using StateHolders = std::map<std::string, std::vector<int>>;

// Adds the graph's parameters, states and constants to the plan where it does not have them yet (by name),
// with the layouts of `scheduled`, and gives them their offsets; constants are for the program's place alone. A state that is there
// already must agree in dtype, shape, layout and in whether it is partial: Error(kInternal). Constants are renamed in the graph where
// another of the same name has other bytes. Also fixes the step layout for the step parameters that the graph reads.
void PlaceStateAndConstants(Graph& graph, const ProgramPlan& scheduled, const StateHolders& holders, Plan& plan);

// The feeds of a graph in order: its inputs without the step parameters.
std::vector<ValueId> FeedsOf(const Graph& graph);

}  // namespace gradloom
