// A program as a graph for Graphviz.
#pragma once

#include <string>

#include "runtime/plan/plan.h"

namespace gradloom {

// Launches, copies and meetings as nodes, a cluster a stream; an edge where one reads what another wrote, a dashed one where one
// waits for the other's stream.
std::string ProgramDot(const Program& program, const std::string& title);

}  // namespace gradloom
