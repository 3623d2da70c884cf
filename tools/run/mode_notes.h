// What a person should know of what the training view makes of an exported file, which is mostly made for inference.
#pragma once

#include <string>
#include <vector>

#include "compiler/graph/graph.h"
#include "compiler/passes/recipe.h"

namespace gradloom {

// Lines about a freshly imported graph: how many values are detached, how many weights a quantizer made whole numbers, how many
// BatchNormalizations the mode trains otherwise than the file has them, and, where batch statistics are asked for, how many layers the
// exporter seems to have folded one into, with the flag that keeps it. PyTorch's exporters leave traces of that in names.
std::vector<std::string> ModeNotes(const Graph& graph, GraphMode mode);

}  // namespace gradloom
