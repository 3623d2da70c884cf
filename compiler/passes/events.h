// What makes one stream wait for another.
#pragma once

#include "compiler/passes/program_plan.h"

namespace gradloom {

// Fills plan.waits: one for each dependency between nodes of different streams.
void InsertEvents(const Graph& graph, ProgramPlan& plan);

// Leaves out each wait that the others and the order of the streams imply. What is left is the least for this order:
// the edges between streams of the transitively reduced graph.
void ElideEvents(const Graph& graph, ProgramPlan& plan);

}  // namespace gradloom
