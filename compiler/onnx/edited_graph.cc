#include "compiler/onnx/edited_graph.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

#include "compiler/onnx/proto_convert.h"

namespace gradloom {

EditedGraph::EditedGraph(ModelFile& file) : file_(file) {
  for (const onnx::TensorProto& tensor : proto().initializer()) initializers_.emplace(tensor.name(), &tensor);
  ForEachGraph(proto(), [&](const onnx::GraphProto& graph) {
    const auto take = [&](const std::string& name) {
      taken_.insert(name);
      if (&graph != &proto()) initializers_.erase(name);
    };
    for (const onnx::TensorProto& tensor : graph.initializer()) take(tensor.name());
    for (const onnx::SparseTensorProto& tensor : graph.sparse_initializer()) take(tensor.values().name());
    for (const onnx::ValueInfoProto& input : graph.input()) take(input.name());
    for (const onnx::NodeProto& node : graph.node()) std::ranges::for_each(node.output(), take);
  });
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

void ForEachGraph(onnx::GraphProto& graph, const std::function<void(onnx::GraphProto&)>& f) {
  f(graph);
  for (onnx::NodeProto& node : *graph.mutable_node()) {
    for (onnx::AttributeProto& attribute : *node.mutable_attribute()) {
      if (attribute.has_g()) ForEachGraph(*attribute.mutable_g(), f);
      for (onnx::GraphProto& nested : *attribute.mutable_graphs()) ForEachGraph(nested, f);
    }
  }
}

std::map<std::string, int> CountReaders(onnx::GraphProto& graph) {
  std::map<std::string, int> readers;
  ForEachGraph(graph, [&](const onnx::GraphProto& one) {
    for (const onnx::NodeProto& node : one.node()) {
      for (const std::string& input : node.input()) ++readers[input];
    }
    for (const onnx::ValueInfoProto& output : one.output()) ++readers[output.name()];
  });
  return readers;
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

void InsertAfter(std::map<const onnx::NodeProto*, std::vector<onnx::NodeProto>> added, onnx::GraphProto& graph) {
  auto& nodes = *graph.mutable_node();
  std::vector<onnx::NodeProto*> all(static_cast<size_t>(nodes.size()));
  nodes.ExtractSubrange(0, nodes.size(), all.data());
  for (onnx::NodeProto* const node : all) {
    nodes.AddAllocated(node);
    const auto found = added.find(node);
    if (found == added.end()) continue;
    for (onnx::NodeProto& one : found->second) *nodes.Add() = std::move(one);
  }
}

}  // namespace gradloom
