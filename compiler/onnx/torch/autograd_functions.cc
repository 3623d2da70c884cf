// What a file tells of autograd functions in the module's code.
#include <algorithm>
#include <set>
#include <string>
#include <string_view>

#include "compiler/onnx/import.h"
#include "compiler/onnx/model_file.h"
#include "compiler/onnx/torch/torch_source.h"

namespace gradloom {
namespace {

void Search(const onnx::GraphProto& graph, FunctionCode& found) {
  for (const onnx::NodeProto& node : graph.node()) {
    for (const onnx::AttributeProto& attribute : node.attribute()) {
      if (attribute.has_g()) Search(attribute.g(), found);
    }
    const std::optional<CodeFrame> frame = FunctionFrame(node);
    if (!frame) continue;
    ++found.nodes;
    std::string_view file = frame->file;
    file.remove_prefix(std::min(file.find_last_of("/\\") + 1, file.size()));
    const std::string begin = std::string(file) + ":";
    const auto of_file = [&](const std::string& place) { return place.starts_with(begin); };
    if (std::ranges::none_of(found.places, of_file)) found.places.push_back(begin + std::string(frame->line));
  }
}

}  // namespace

FunctionCode CodeOfFunctions(const Model& model) {
  FunctionCode found;
  Search(model.file().proto.graph(), found);
  return found;
}

std::vector<std::string> ReadThroughRemoved(const Model& model, const std::set<std::string>& values) {
  const onnx::GraphProto& graph = model.file().proto.graph();
  const std::set<std::string_view> names = ValueNames(graph);
  std::vector<std::string> found;
  for (const onnx::NodeProto& node : graph.node()) {
    const TorchCall call(TorchSource(node));
    // Where that operator was the detach() itself, the gradient stops.
    const auto is_detach = [](std::string_view name) { return name.starts_with("detach"); };
    if (std::ranges::all_of(call.RemovedOperands(names), is_detach)) continue;
    for (const std::string& input : node.input()) {
      if (!values.contains(input) || std::ranges::find(call.operands, input) != call.operands.end()) continue;
      found.push_back(input + "@" + (node.name().empty() ? node.output(0) : node.name()));
    }
  }
  return found;
}

}  // namespace gradloom
