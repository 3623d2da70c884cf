// Turns a scheduled graph into instructions.
#pragma once

#include "compiler/passes/schedule/program_plan.h"

namespace gradloom {

// The program of a graph: one launch for each node with a kernel, collectives and transfers, the events that order the streams, then the
// copies of late states. `output_buffers` gets the buffer of each of graph.outputs.
Program EmitProgram(const Graph& graph, const ProgramPlan& scheduled, std::vector<int>& output_buffers);

}  // namespace gradloom
