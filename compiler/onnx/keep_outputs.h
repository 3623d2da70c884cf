// Reduces an exported model to some of its outputs.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace onnx {
class GraphProto;
}

namespace gradloom {

// For each node of the graph: whether one of these outputs needs it. Throws Error(kConfig) with the existing names for a name that is not
// an output.
std::vector<bool> NodesNeededFor(const onnx::GraphProto& graph, const std::vector<std::string>& outputs);

// Keeps the named outputs of a model, in the model's order, and the nodes, inputs and initializers that they need. `model` and the result
// are binary ONNX. Throws Error(kConfig) with the existing names for a name that is not an output.
std::string KeepOutputs(std::string_view model, const std::vector<std::string>& names);

}  // namespace gradloom
