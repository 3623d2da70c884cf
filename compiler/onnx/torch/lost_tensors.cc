#include "compiler/onnx/torch/lost_tensors.h"

#include <string>
#include <string_view>

#include "compiler/onnx/torch/torch_source.h"

namespace gradloom {

NameSet LostTensors(EditedGraph& edited, const ModuleSignature& module) {
  NameSet lost(module.ordered.begin(), module.ordered.end());
  for (const onnx::TensorProto& tensor : edited.proto().initializer()) lost.erase(tensor.name());
  for (const onnx::ValueInfoProto& info : edited.proto().value_info()) {
    if (edited.Find(info.name()) == nullptr) continue;
    for (const std::string& source : SourcesOf(info)) lost.erase(source);
  }
  ForEachGraph(edited.proto(), [&](const onnx::GraphProto& graph) {
    for (const onnx::NodeProto& node : graph.node()) {
      for (const std::string_view name : NamesOfCall(TorchSource(node))) {
        if (const auto found = module.arguments.find(name); found != module.arguments.end()) lost.erase(found->second);
      }
    }
  });
  return lost;
}

}  // namespace gradloom
