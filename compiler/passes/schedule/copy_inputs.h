// Copies inputs to the device before the step that reads them.
#pragma once

#include <set>

#include "compiler/graph/graph.h"

namespace gradloom {

// The feeds to copy into an input slot: those named, or all.
struct InputCopies {
  bool all = false;
  std::set<ValueId> feeds;
};

// For each of them that a node reads, puts a copy before the first node; readers of the feed read the copy instead. The runtime can run the
// copies during the previous step.
void CopyInputs(Graph& graph, const InputCopies& copies);

}  // namespace gradloom
