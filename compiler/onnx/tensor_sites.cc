#include <map>
#include <set>

#include "compiler/onnx/model_file.h"
#include "compiler/onnx/proto_convert.h"
#include "compiler/onnx/read/wire_reader.h"
#include "compiler/onnx/standard_domain.h"

namespace gradloom {
namespace {

class Walk {
 public:
  explicit Walk(const std::function<void(const TensorSite&)>& f) : f_(f) {}

  void Model(onnx::ModelProto& model) {
    Graph(*model.mutable_graph(), "");
    for (onnx::FunctionProto& function : *model.mutable_functions()) {
      const std::string path =
          function.domain() + "." + function.name() + (function.overload().empty() ? "" : ":" + function.overload()) + "/";
      for (onnx::NodeProto& node : *function.mutable_node()) Node(node, path);
      for (onnx::AttributeProto& attribute : *function.mutable_attribute_proto()) Attribute(attribute, path + attribute.name(), false);
    }
    for (onnx::TrainingInfoProto& training : *model.mutable_training_info()) {
      if (training.has_initialization()) Graph(*training.mutable_initialization(), "training.initialization/");
      if (training.has_algorithm()) Graph(*training.mutable_algorithm(), "training.algorithm/");
    }
  }

 private:
  // Nesting is bounded before a model is parsed.
  void Graph(onnx::GraphProto& graph, const std::string& path) {
    for (onnx::TensorProto& tensor : *graph.mutable_initializer()) Found({path + tensor.name(), &tensor, nullptr, true, &graph, nullptr});
    for (onnx::SparseTensorProto& tensor : *graph.mutable_sparse_initializer()) {
      Found({path + tensor.values().name(), nullptr, &tensor, true, &graph, nullptr});
    }
    for (onnx::NodeProto& node : *graph.mutable_node()) Node(node, path);
  }

  void Node(onnx::NodeProto& node, const std::string& path) {
    const std::string output = path + (node.output_size() > 0 ? node.output(0) : node.name());
    const bool constant = IsStandard(node, "Constant");
    for (onnx::AttributeProto& attribute : *node.mutable_attribute()) {
      Attribute(attribute, constant ? output : output + "/" + attribute.name(), constant);
    }
  }

  void Attribute(onnx::AttributeProto& attribute, const std::string& name, bool constant) {
    onnx::AttributeProto* holder = constant ? &attribute : nullptr;
    if (attribute.has_t()) Found({name, attribute.mutable_t(), nullptr, constant, nullptr, holder});
    if (attribute.has_sparse_tensor()) Found({name, nullptr, attribute.mutable_sparse_tensor(), constant, nullptr, holder});
    for (onnx::TensorProto& tensor : *attribute.mutable_tensors()) Found({name, &tensor});
    for (onnx::SparseTensorProto& tensor : *attribute.mutable_sparse_tensors()) Found({name, nullptr, &tensor});
    if (attribute.has_g()) Graph(*attribute.mutable_g(), name + "/");
    for (onnx::GraphProto& graph : *attribute.mutable_graphs()) Graph(graph, name + "/");
  }

  void Found(TensorSite site) {
    const std::string name = site.name;
    // Continues from the last number, because many tensors may have the same name.
    while (!taken_.insert(site.name).second) site.name = name + "." + std::to_string(++numbers_[name]);
    f_(site);
  }

  const std::function<void(const TensorSite&)>& f_;
  std::set<std::string> taken_;
  std::map<std::string, int> numbers_;  // the last numbers given
};

}  // namespace

void ForEachTensor(onnx::ModelProto& model, const std::function<void(const TensorSite&)>& f) { Walk(f).Model(model); }

void MakeDense(const TensorSite& site, const Tensor& value) {
  if (onnx::AttributeProto* attribute = site.attribute) {
    attribute->clear_sparse_tensor();
    attribute->set_name("value");
    attribute->set_type(onnx::AttributeProto::TENSOR);
    RemoveMark(*attribute->mutable_t());
    SetTensor(value.view(), attribute->mutable_t());
    return;
  }
  auto* sparse = site.graph->mutable_sparse_initializer();
  for (int i = 0; i < sparse->size(); ++i) {
    if (sparse->Mutable(i) != site.sparse) continue;
    onnx::TensorProto* dense = site.graph->add_initializer();
    dense->set_name(sparse->Get(i).values().name());
    SetTensor(value.view(), dense);
    sparse->DeleteSubrange(i, 1);
    return;
  }
}

}  // namespace gradloom
