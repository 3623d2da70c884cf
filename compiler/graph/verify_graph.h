// Checks the invariants of a graph, after every pass.
#pragma once

#include "compiler/graph/builder.h"

namespace gradloom {

// Throws Error(kInternal) naming the node and the problem: an id out of range, a value that is made twice or read before it is made, data
// whose type differs from its value's, a next value whose type differs from its state's, a malformed body. With `rules`, infers the types
// of all outputs again.
void VerifyGraph(const Graph& graph, const TypeRules* rules = nullptr);

}  // namespace gradloom
