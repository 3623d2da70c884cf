// Removes computation that is not needed.
#pragma once

#include "compiler/graph/builder.h"

namespace gradloom {

// Folds nodes whose inputs are all constants (results up to 64 KiB), merges equal expressions, drops operations that change nothing (x * 1,
// x + 0, a cast to the same type ...), and removes nodes on which no output, next value or collective depends. Random operators are never
// merged or folded. Values that are outputs or next values keep their identity.
void Simplify(Graph& graph);

// Folds and removes like Simplify, but does not merge equal expressions: expressions that are equal at one batch size may differ at
// another.
void FoldConstants(Graph& graph);

// Only removes dead nodes.
void RemoveDeadNodes(Graph& graph);

}  // namespace gradloom
