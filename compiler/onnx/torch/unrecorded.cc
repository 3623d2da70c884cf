#include "compiler/onnx/torch/unrecorded.h"

#include <iterator>
#include <set>
#include <string_view>

#include "compiler/onnx/torch/module_signature.h"
#include "compiler/onnx/torch/torch_source.h"
#include "runtime/base/counted.h"
#include "runtime/base/error.h"
#include "runtime/base/listing.h"

namespace gradloom {
namespace {

// The module whose tensor this is, with the dot: "blocks.0.norm." for blocks.0.norm.running_mean.
std::string_view OwnerOf(std::string_view tensor) { return tensor.substr(0, tensor.rfind('.') + 1); }

// ... aten.embedding.default](args = (%p_weight, %ids, -1, True), kwargs = {})
bool ScalesByFrequency(const TorchCall& call) { return call.op == "embedding" && call.arguments.size() > 3 && call.arguments[3] == "True"; }

}  // namespace

std::vector<std::string> WarningsOfUnrecorded(const onnx::GraphProto& graph) {
  const ModuleSignature module(graph);
  std::vector<std::string> warnings;
  if (module.parameters.empty()) return warnings;
  std::set<std::string_view> normalizations;
  bool by_frequency = false, bounded = false;
  for (const onnx::NodeProto& node : graph.node()) {
    const TorchCall call(TorchSource(node));
    by_frequency = by_frequency || ScalesByFrequency(call);
    bounded = bounded || call.op == "embedding_renorm";
    if (const std::string_view family = call.family(); family != "batch_norm" && family != "instance_norm") continue;
    for (const std::string_view operand : call.operands) {
      const auto found = module.arguments.find(operand);
      if (found != module.arguments.end()) normalizations.insert(OwnerOf(found->second));
    }
  }
  // Running statistics have rules of their own.
  NameSet changed = module.changed;
  std::erase_if(changed, [&](const std::string& name) { return normalizations.contains(OwnerOf(name)); });
  if (!changed.empty()) {
    Listing names(4);
    for (const std::string& name : changed) names.Add(Escaped(name, 80));
    const bool one = changed.size() == 1;
    warnings.push_back("the module assigns new values to " + Counted(std::ssize(changed), "buffer", "buffers") +
                       " whenever it is called (" + names.text() + "), which the file does not do: every step begins with the value" +
                       (one ? "" : "s") + " that " + (one ? "it" : "they") +
                       " had at the export, so it trains differently from the second step on");
  }
  if (by_frequency) {
    warnings.push_back(
        "the module divides the gradients of an embedding by how often a batch has each word (scale_grad_by_freq), which "
        "the file does not do");
  }
  if (bounded)
    warnings.push_back("the module rescales rows of embeddings in place (max_norm), which the file only does to what it looks up");
  return warnings;
}

}  // namespace gradloom
