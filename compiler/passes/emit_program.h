// Turns a scheduled graph into instructions.
#pragma once

#include "compiler/passes/program_plan.h"

namespace gradloom {

// Adds the graph's parameters, states and constants to the plan where it does not have them yet (by name),
// with the layouts of `scheduled`, and gives them their offsets. A state that is there already must agree in
// dtype, shape and layout: Error(kInternal). Constants are renamed in the graph where another of the same name has
// other bytes. Also fixes the step layout for the step parameters that the graph reads.
void PlaceStateAndConstants(Graph& graph, const ProgramPlan& scheduled, Plan& plan);

// The program of a graph on one stream: one launch per node with a kernel, then the copies of late states.
// `output_buffers` gets the buffer of each of graph.outputs.
Program EmitProgram(const Graph& graph, const ProgramPlan& scheduled, std::vector<int>& output_buffers);

// The feeds of a graph in order: its inputs without the step parameters.
std::vector<ValueId> FeedsOf(const Graph& graph);

}  // namespace gradloom
