#include "compiler/onnx/translate/linear_models.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/onnx/proto_convert.h"
#include "compiler/onnx/standard_domain.h"

namespace gradloom {
namespace {

// Operators in ONNX's own domain that files for scikit-learn's models may not import otherwise.
constexpr int64_t kOpsetIfAbsent = 13;

bool IsLinear(const onnx::NodeProto& node) { return IsLinearModel(node.domain(), node.op_type()); }

// Values that a graph declares with one axis.
std::set<std::string> VectorsOf(const onnx::GraphProto& graph) {
  std::set<std::string> names;
  for (const auto* infos : {&graph.input(), &graph.value_info()}) {
    for (const onnx::ValueInfoProto& info : *infos) {
      const auto& type = info.type().tensor_type();
      if (type.has_shape() && type.shape().dim_size() == 1) names.insert(info.name());
    }
  }
  return names;
}

void AddNames(const onnx::GraphProto& graph, std::set<std::string>& names) {
  for (const auto& tensor : graph.initializer()) names.insert(tensor.name());
  for (const auto& tensor : graph.sparse_initializer()) names.insert(tensor.values().name());
  for (const auto& input : graph.input()) names.insert(input.name());
  for (const auto& node : graph.node()) names.insert(node.output().begin(), node.output().end());
}

// The nodes and initializers that replace one node.
class LinearModel {
 public:
  // `vector`: whether the input has one axis.
  LinearModel(onnx::NodeProto node, bool vector, std::set<std::string>& names) : node_(std::move(node)), names_(names) {
    one_sample_ = vector && node_.op_type() == "LinearClassifier";
    base_ = !node_.name().empty() || node_.output_size() == 0 ? node_.name() : node_.output(0);
  }

  // Returns whether the node has a supported form; then `nodes` and `initializers` replace it.
  bool Write() {
    const auto* post = AttributeOf(node_, "post_transform");
    post_ = post == nullptr ? "NONE" : post->s();
    coefficients_ = FloatsOf("coefficients"), intercepts_ = FloatsOf("intercepts");
    if (node_.input_size() != 1 || coefficients_.empty()) return false;
    if (post_ != "NONE" && post_ != "LOGISTIC" && post_ != "SOFTMAX") return false;
    const size_t rows = Rows();
    if (rows < 1 || coefficients_.size() % rows != 0 || (!intercepts_.empty() && intercepts_.size() != rows)) return false;
    std::string scores = Multiply(rows);
    if (!intercepts_.empty()) {
      onnx::TensorProto& bias = Initializer("intercepts", onnx::TensorProto::FLOAT, {rows});
      bias.mutable_float_data()->Add(intercepts_.begin(), intercepts_.end());
      const std::string name = bias.name();
      scores = Op("Add", {scores, name});
    }
    node_.op_type() == "LinearRegressor" ? Transform(scores, node_.output(0)) : Classify(scores, rows);
    return true;
  }

  std::vector<onnx::NodeProto> nodes;
  std::vector<onnx::TensorProto> initializers;

 private:
  std::vector<float> FloatsOf(const char* name) const {
    const auto* attribute = AttributeOf(node_, name);
    return attribute == nullptr ? std::vector<float>() : std::vector<float>(attribute->floats().begin(), attribute->floats().end());
  }

  // The number of rows of coefficients; 0 if it is not known or not supported.
  size_t Rows() {
    if (node_.op_type() == "LinearRegressor") {
      const auto* targets = AttributeOf(node_, "targets");
      const int64_t rows = targets == nullptr ? 1 : targets->i();
      // onnxruntime does not transform the result of a single one, although ONNX's text says so.
      if (node_.output_size() != 1 || rows < 1 || (rows == 1 && post_ != "NONE")) return 0;
      return static_cast<size_t>(rows);
    }
    labels_ = AttributeOf(node_, "classlabels_ints");
    classes_ = labels_ == nullptr ? 0 : static_cast<size_t>(labels_->ints_size());
    if (node_.output_size() != 2 || classes_ < 2) return 0;
    // skl2onnx writes the one row of a model of two classes and its negative, which are one weight.
    if (classes_ == 2 && IsNegated(coefficients_) && (intercepts_.empty() || IsNegated(intercepts_))) {
      for (std::vector<float>* values : {&coefficients_, &intercepts_})
        values->erase(values->begin(), values->begin() + static_cast<std::ptrdiff_t>(values->size() / 2));
      return 1;
    }
    const size_t rows = intercepts_.empty() ? classes_ : intercepts_.size();
    // Of a single row only sigmoids have one meaning: implementations differ in the other class's score.
    return rows == classes_ || (rows == 1 && classes_ == 2 && post_ == "LOGISTIC") ? rows : 0;
  }

  static bool IsNegated(const std::vector<float>& values) {
    const size_t half = values.size() / 2;
    if (values.size() % 2 != 0) return false;
    return std::equal(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(half),
                      values.begin() + static_cast<std::ptrdiff_t>(half), [](float a, float b) { return a == -b; });
  }

  std::string Multiply(size_t rows) {
    const size_t features = coefficients_.size() / rows;
    onnx::TensorProto& weight = Initializer("coefficients", onnx::TensorProto::FLOAT, {features, rows});
    for (size_t i = 0; i < coefficients_.size(); ++i) weight.add_float_data(coefficients_[i % rows * features + i / rows]);
    const std::string name = weight.name();
    std::string x = Op("Cast", {node_.input(0)});
    Set("to", onnx::TensorProto::FLOAT);
    if (one_sample_) {
      x = Op("Flatten", {x});
      Set("axis", 0);
    }
    return Op("MatMul", {x, name});
  }

  void Classify(std::string scores, size_t rows) {
    if (rows == 1) {
      const std::string other = Op("Neg", {scores});
      scores = Op("Concat", {other, scores});
      Set("axis", 1);
    }
    // Neither transformation changes which score is the largest.
    if (!node_.output(0).empty()) {
      const std::string best = Op("ArgMax", {scores});
      Set("axis", 1);
      Set("keepdims", 0);
      onnx::TensorProto& labels = Initializer("labels", onnx::TensorProto::INT64, {classes_});
      for (const int64_t label : labels_->ints()) labels.add_int64_data(label);
      const std::string name = labels.name();
      Op("Gather", {name, best}, node_.output(0));
    }
    if (!node_.output(1).empty()) Transform(scores, node_.output(1));
  }

  void Transform(const std::string& scores, const std::string& out) {
    Op(post_ == "NONE" ? "Identity" : post_ == "LOGISTIC" ? "Sigmoid" : "Softmax", {scores}, out);
    if (post_ == "SOFTMAX") Set("axis", 1);
  }

  std::string Unique(const std::string& what) {
    std::string name = base_ + "/" + what;
    for (int i = 2; !names_.insert(name).second; ++i) name = base_ + "/" + what + "." + std::to_string(i);
    return name;
  }

  onnx::TensorProto& Initializer(const std::string& what, onnx::TensorProto::DataType type, const std::vector<size_t>& dims) {
    onnx::TensorProto& tensor = initializers.emplace_back();
    tensor.set_name(Unique(what));
    tensor.set_data_type(type);
    for (const size_t dim : dims) tensor.add_dims(static_cast<int64_t>(dim));
    return tensor;
  }

  std::string Op(const std::string& type, const std::vector<std::string>& inputs, const std::string& out = "") {
    onnx::NodeProto& node = nodes.emplace_back();
    node.set_op_type(type);
    for (const std::string& input : inputs) node.add_input(input);
    node.add_output(out.empty() ? Unique(type) : out);
    node.set_name(base_ + "/" + type);
    return node.output(0);
  }

  // Sets an attribute of the last node.
  void Set(const char* name, int64_t value) {
    onnx::AttributeProto& attribute = *nodes.back().add_attribute();
    attribute.set_name(name);
    attribute.set_type(onnx::AttributeProto::INT);
    attribute.set_i(value);
  }

  const onnx::NodeProto node_;
  std::set<std::string>& names_;
  std::string base_, post_;
  std::vector<float> coefficients_, intercepts_;
  const onnx::AttributeProto* labels_ = nullptr;
  size_t classes_ = 0;
  bool one_sample_ = false;  // a vector is one sample for a classifier; a regression has results without a sample axis
};

}  // namespace

bool IsLinearModel(std::string_view domain, std::string_view op) {
  return domain == "ai.onnx.ml" && (op == "LinearRegressor" || op == "LinearClassifier");
}

void WriteOutLinearModels(onnx::ModelProto& model) {
  onnx::GraphProto& graph = *model.mutable_graph();
  if (std::none_of(graph.node().begin(), graph.node().end(), IsLinear)) return;
  std::set<std::string> names;
  AddNames(graph, names);
  const std::set<std::string> vectors = VectorsOf(graph);
  google::protobuf::RepeatedPtrField<onnx::NodeProto> nodes;
  bool changed = false;
  for (onnx::NodeProto& node : *graph.mutable_node()) {
    if (!IsLinear(node)) {
      nodes.Add(std::move(node));
      continue;
    }
    LinearModel made(node, node.input_size() > 0 && vectors.contains(node.input(0)), names);
    if (!made.Write()) {
      nodes.Add(std::move(node));
      continue;
    }
    changed = true;
    for (onnx::NodeProto& own : made.nodes) nodes.Add(std::move(own));
    for (onnx::TensorProto& tensor : made.initializers) graph.mutable_initializer()->Add(std::move(tensor));
  }
  graph.mutable_node()->Swap(&nodes);
  const bool imports = std::any_of(model.opset_import().begin(), model.opset_import().end(),
                                   [](const auto& opset) { return IsStandardDomain(opset.domain()); });
  if (!changed || imports) return;
  onnx::OperatorSetIdProto& opset = *model.add_opset_import();
  opset.set_domain("");
  opset.set_version(kOpsetIfAbsent);
}

}  // namespace gradloom
