// Gives values the layouts in which the kernels that read and write them are fastest.
#pragma once

#include "compiler/passes/schedule/program_plan.h"

namespace gradloom {

// Fills plan.layouts, and inserts gradloom.Reorder where a node reads a value in another layout than the one in which it is made; a value
// is reordered to a layout only once. A node whose kernel row asks for layouts (convolutions) gets them. Every other node takes the layout
// of an operand if one of its rows supports it, and otherwise plain operands. Feeds, constants, fetched values and the bodies of control
// flow stay plain. A parameter or state takes the layout of its first reader, or the one that `whole` already has for it, in all entries;
// its next value is brought to that layout. If it is cast first (a float32 weight used in 16 bits), the reader of the cast decides,
// provided that it asks only for an order of dimensions.
void AssignLayouts(Graph& graph, const Plan& whole, ProgramPlan& plan);

}  // namespace gradloom
