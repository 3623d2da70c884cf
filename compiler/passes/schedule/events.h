// Makes streams wait for each other.
#pragma once

#include "compiler/passes/schedule/program_plan.h"

namespace gradloom {

// Fills plan.waits with one wait for each dependency between nodes of different streams.
void InsertEvents(const Graph& graph, ProgramPlan& plan);

// Removes each wait that the others and the order of the streams imply. The remaining ones are the fewest for this order: the edges between
// streams of the transitively reduced graph.
void ElideEvents(const Graph& graph, ProgramPlan& plan);

}  // namespace gradloom
