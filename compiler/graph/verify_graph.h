// What every graph promises, checked after every pass.
#pragma once

#include "compiler/graph/builder.h"

namespace gradloom {

// Throws Error(kInternal) naming the node and what is wrong: an id out of range, a value made twice or
// read before it is made, data whose type differs from its value's, a next value of another type than its
// state, a body that is not well-formed. With `rules`, the types of all outputs are inferred again.
void VerifyGraph(const Graph& graph, const TypeRules* rules = nullptr);

}  // namespace gradloom
