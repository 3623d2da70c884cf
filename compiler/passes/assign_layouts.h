// Gives values the layouts in which the kernels that read and write them are fastest.
#pragma once

#include "compiler/passes/program_plan.h"

namespace gradloom {

// Fills plan.layouts and inserts gradloom.Reorder where a node reads a value in another layout than it is made in; a
// value is reordered to a layout once. Nodes whose kernel row has a wish (convolutions) get it; every other node takes
// the layout of an operand where one of its rows serves it so, and plain operands else. Feeds, constants, fetched
// values and the bodies of control flow stay plain. A parameter or state takes the layout of its first reader, or the
// one that `whole` has for it already, in all entries; its next value is brought to that. Of one that is cast first (a float32 weight that
// is computed with in 16 bits) that is the reader of the cast, where the order of dimensions is all that it wishes.
void AssignLayouts(Graph& graph, const Plan& whole, ProgramPlan& plan);

}  // namespace gradloom
