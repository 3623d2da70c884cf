// The tensors of a PyTorch module that torch.export's metadata names. Private to compiler/onnx.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "onnx/onnx_pb.h"

namespace gradloom {

using NameSet = std::set<std::string, std::less<>>;

// From lines such as p_l_weight: PARAMETER target='l.weight'. Empty for files of other exporters.
struct ModuleSignature {
  explicit ModuleSignature(const onnx::GraphProto& graph);

  NameSet parameters;
  NameSet others;                                             // buffers, and tensors written in the code
  std::map<std::string, std::string, std::less<>> arguments;  // by the name that stands for them in torch.export's graph (p_l_weight)
  NameSet changed;                                            // buffers to which the module's forward() assigns new values
  std::vector<std::string> ordered;                           // all of these tensors, as they come in the module
  std::vector<std::string> outputs;                           // the names of the outputs in torch.export's graph
};

// The key of the metadata of an initializer with the tensors that the exporter computed it from, directly or indirectly.
inline constexpr std::string_view kFoldedFrom = "pkg.onnxscript.optimizer.folded_from";

// Those tensors.
NameSet SourcesOf(const onnx::ValueInfoProto& info);

}  // namespace gradloom
