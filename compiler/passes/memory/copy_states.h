// Next values of states that show the bytes of another state.
#pragma once

#include "compiler/graph/graph.h"

namespace gradloom {

// Makes a copy where the next value of a state is a view of another state that the step changes too, as if two states exchange their
// values, or one keeps the old value of the other. As a view, it would show the other's next value at the end of the step.
void CopyStates(Graph& graph);

}  // namespace gradloom
