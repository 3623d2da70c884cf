// Reduces an exported model to some of its outputs.
#pragma once

#include <string>
#include <vector>

namespace onnx {
class GraphProto;
class ModelProto;
}  // namespace onnx

namespace gradloom {

// For each node of the graph: whether one of these values needs it. Each is an output, or what a node of the graph itself produces. Throws
// Error(kConfig) with the existing outputs for a name that is neither.
std::vector<bool> NodesNeededFor(const onnx::GraphProto& graph, const std::vector<std::string>& values);

// Keeps the named outputs of a model, in the model's order, and the nodes, inputs and initializers that they need. Throws Error(kConfig)
// with the existing names for a name that is not an output.
void KeepOutputs(const std::vector<std::string>& names, onnx::ModelProto& model);

}  // namespace gradloom
