// Recognizes parameters that are vectors in the module, although the file stores them with more axes.
#pragma once

#include <set>
#include <span>

#include "compiler/graph/graph.h"

namespace gradloom {

// The parameters of rank 2 and more that an exporter made of vectors, and that therefore do not decay with those of rank 1:
// - the biases and peepholes of recurrent layers, which ONNX stores in one row for each direction;
// - slopes of PRelu, scales and biases that have at most one extent above 1 and a name that the exporter generated: PyTorch's folds the
//   axes that broadcasting needs into them ("onnx::Mul_37" float32[8,1,1]). Under its own name a parameter has its own shape.
// The graph is as imported: with all nodes, without gradients.
std::set<ValueId> StoredVectors(const Graph& graph, std::span<const ValueId> parameters);

}  // namespace gradloom
