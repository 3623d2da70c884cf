// A program as a Graphviz graph.
#pragma once

#include <string>

#include "runtime/plan/plan.h"

namespace gradloom {

// Launches, copies and communication are nodes, and each stream is a cluster. A solid edge means that one instruction reads what another
// one wrote, a dashed one that it waits for the other's stream.
std::string ProgramDot(const Program& program, const std::string& title);

}  // namespace gradloom
