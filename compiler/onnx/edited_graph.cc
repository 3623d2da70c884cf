#include "compiler/onnx/edited_graph.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "compiler/onnx/proto_convert.h"

namespace gradloom {

EditedGraph::EditedGraph(ModelFile& file) : file_(file) {
  for (const onnx::TensorProto& tensor : proto().initializer()) initializers_.emplace(tensor.name(), &tensor);
  for (const auto& [name, tensor] : initializers_) taken_.insert(name);
  for (const onnx::ValueInfoProto& input : proto().input()) taken_.insert(input.name());
  for (const onnx::NodeProto& node : proto().node()) taken_.insert(node.output().begin(), node.output().end());
}

const onnx::TensorProto* EditedGraph::Find(const std::string& name) const {
  const auto found = initializers_.find(name);
  return found == initializers_.end() ? nullptr : found->second;
}

std::string EditedGraph::TakeSimilar(std::string name) {
  while (!Take(name)) name += "_";
  return name;
}

void EditedGraph::AddInitializer(const std::string& name, Tensor data) {
  onnx::TensorProto& tensor = *proto().add_initializer();
  tensor.set_name(name);
  tensor.set_data_type(static_cast<int32_t>(data.dtype()));
  for (int64_t extent : data.shape().dims()) tensor.add_dims(extent);
  file_.tensors.emplace(&tensor, ModelTensor{name, std::move(data)});
  initializers_.emplace(name, &tensor);
}

std::optional<int64_t> FeaturesOf(const onnx::NodeProto& layer, const Shape& weight) {
  if (weight.rank() < 2) return std::nullopt;
  if (layer.op_type() == "Conv") return weight[0];
  if (layer.op_type() == "Gemm") return IntOf(layer, "transB", 0) == 0 ? weight[1] : weight[0];
  const int64_t groups = IntOf(layer, "group", 1);
  return groups < 1 || groups > weight[0] ? std::nullopt : std::optional(weight[1] * groups);
}

onnx::NodeProto TransposeNode(const std::string& name, const std::string& matrix, const std::string& transposed) {
  onnx::NodeProto node;
  node.set_op_type("Transpose");
  node.set_name(name);
  node.add_input(matrix);
  node.add_output(transposed);
  SetAttribute("perm", std::vector<int64_t>{1, 0}, node.add_attribute());
  return node;
}

void Prepend(std::vector<onnx::NodeProto> nodes, onnx::GraphProto& graph) {
  for (onnx::NodeProto& node : nodes) *graph.add_node() = std::move(node);
  auto& all = *graph.mutable_node();
  std::rotate(all.pointer_begin(), all.pointer_end() - std::ssize(nodes), all.pointer_end());
}

}  // namespace gradloom
