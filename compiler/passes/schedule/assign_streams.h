// Decides which chains of nodes run at the same time.
#pragma once

#include "compiler/passes/schedule/program_plan.h"

namespace gradloom {

inline constexpr int kMaxStreams = 16;

// Decides how many streams the graph gets, and how many of `threads` each: `streams` of them or, if that is 0, as many (1, 2 or 4) as are
// fastest by the cost model. One wins a tie. The streams of a GPU share its rates, so that they save only fixed costs; more of them must
// save a twentieth of the time, because they keep buffers apart that could share memory. Collectives get a stream of their own.
void ChooseStreams(const Graph& graph, int streams, int threads, ProgramPlan& plan);

// Gives each node that launches something one of plan.streams streams. Nodes are taken in the order of the list. Each goes where it can
// begin first by the cost model, and in doubt behind its predecessor on a minimum path cover, so that a chain stays together. Fills
// plan.stream.
void AssignStreams(const Graph& graph, ProgramPlan& plan);

}  // namespace gradloom
