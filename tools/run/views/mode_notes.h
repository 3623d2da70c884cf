// Notes on how training mode changes an exported file, which is usually made for inference.
#pragma once

#include <string>
#include <vector>

#include "compiler/graph/graph.h"
#include "compiler/passes/recipe.h"

namespace gradloom {

// Lines about a freshly imported graph: the number of detached values and of padding rows, of weights that a quantizer converted to
// integers, of BatchNormalizations that the mode trains differently from the file, and, if batch statistics are requested, of layers that
// the exporter seems to have folded one into, with the exporter's flag that prevents it. PyTorch's exporters leave traces of folding in
// names.
std::vector<std::string> ModeNotes(const Graph& graph, GraphMode mode);

}  // namespace gradloom
