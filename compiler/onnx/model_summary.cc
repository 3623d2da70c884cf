#include "compiler/onnx/model_summary.h"

#include <algorithm>
#include <set>

#include "compiler/onnx/model_file.h"
#include "compiler/onnx/proto_convert.h"

namespace gradloom {
namespace {

std::string DomainOf(const std::string& domain) { return domain.empty() ? "ai.onnx" : domain; }

// Returns a type such as "float32[N,1,8,8]". Unnamed dynamic extents are "?"; types other than tensors are given by their kind.
std::string TypeText(const onnx::TypeProto& type) {
  if (type.has_sequence_type()) return "sequence";
  if (type.has_optional_type()) return "optional";
  if (type.has_map_type()) return "map";
  const auto& tensor = type.tensor_type();
  std::string text = ProtoTypeName(tensor.elem_type());
  if (!tensor.has_shape()) return text;
  text += "[";
  for (int i = 0; i < tensor.shape().dim_size(); ++i) {
    const auto& dim = tensor.shape().dim(i);
    if (i > 0) text += ",";
    text += dim.has_dim_value() ? std::to_string(dim.dim_value()) : dim.has_dim_param() ? dim.dim_param() : "?";
  }
  return text + "]";
}

}  // namespace

ModelSummary SummaryOf(const Model& model) {
  const ModelFile& file = model.file();
  const onnx::ModelProto& proto = file.proto;
  const onnx::GraphProto& graph = proto.graph();
  ModelSummary summary{.graph = graph.name(), .producer = proto.producer_name(), .ir_version = proto.ir_version()};
  if (!proto.producer_version().empty()) summary.producer += " " + proto.producer_version();
  for (const auto& opset : proto.opset_import()) summary.opsets.emplace_back(DomainOf(opset.domain()), opset.version());
  const std::vector<std::string> fed = model.input_names();
  for (const auto& input : graph.input()) {
    if (std::find(fed.begin(), fed.end(), input.name()) != fed.end()) summary.inputs.emplace_back(input.name(), TypeText(input.type()));
  }
  for (const auto& output : graph.output()) summary.outputs.emplace_back(output.name(), TypeText(output.type()));
  for (const auto& node : graph.node()) ++summary.operators[node.domain().empty() ? node.op_type() : node.domain() + "." + node.op_type()];
  summary.nodes = graph.node_size();
  summary.functions = proto.functions_size();
  for (const auto& initializer : graph.initializer()) {
    const Tensor& data = file.tensors.at(&initializer).data;
    summary.weights.push_back({initializer.name(), {data.dtype(), data.shape(), nullptr}});
  }
  return summary;
}

}  // namespace gradloom
