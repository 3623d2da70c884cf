// Trains matrices that a file has twice as one weight.
#pragma once

#include <string>
#include <vector>

#include "compiler/graph/graph.h"
#include "runtime/plan/plan.h"

namespace gradloom {

// Of `copies`, those that are both among the parameters, and that are each other's transpose also in this graph: `name` is no parameter any
// more, but the result of a Transpose of `source`, under the same name. Returns them.
std::vector<TiedTensor> TieCopies(Graph& graph, const std::vector<TiedTensor>& copies, std::vector<ValueId>& parameters);

}  // namespace gradloom
