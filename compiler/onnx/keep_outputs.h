// A written model with some of its outputs alone.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace onnx {
class GraphProto;
}

namespace gradloom {

// By node of the graph: whether one of these outputs needs it. Throws Error(kConfig) for a name that is no output, with those there are.
std::vector<bool> NodesBehind(const onnx::GraphProto& graph, const std::vector<std::string>& outputs);

// Leaves of a model's outputs those named, in the model's order, and of nodes, inputs and initializers what they need. `model` is binary
// ONNX, and so is what comes out. Throws Error(kConfig) for a name that is no output, with those there are.
std::string KeepOutputs(std::string_view model, const std::vector<std::string>& names);

}  // namespace gradloom
