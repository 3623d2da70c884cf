// Removes what need not be computed.
#pragma once

#include "compiler/graph/builder.h"

namespace gradloom {

// Folds nodes whose inputs are all constants (results up to 64 KiB), computes equal expressions once,
// drops operations that change nothing (x * 1, x + 0, a cast to the same type ...), and removes nodes that
// neither an output, a next value nor a meeting of devices depends on. Random operators are never merged or folded. Values that
// are outputs or next values keep their identity.
void Simplify(Graph& graph);

// Folds and removes as Simplify does, but computes no expression once for two: what is made so for one batch size is made so for
// another, too.
void FoldConstants(Graph& graph);

// The last part alone.
void RemoveDeadNodes(Graph& graph);

}  // namespace gradloom
