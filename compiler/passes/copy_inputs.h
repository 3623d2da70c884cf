// Inputs that are copied to the device before the step that reads them.
#pragma once

#include <set>

#include "compiler/graph/graph.h"

namespace gradloom {

// Which feeds are copied into an input slot: those named, or all.
struct InputCopies {
  bool all = false;
  std::set<ValueId> feeds;
};

// Puts a copy before the first node for each of them that a node reads; what read the feed reads the copy. The runtime can make copies
// while the step before is computed.
void CopyInputs(Graph& graph, const InputCopies& copies);

}  // namespace gradloom
