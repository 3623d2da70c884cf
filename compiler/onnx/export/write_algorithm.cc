#include "compiler/onnx/export/write_algorithm.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/onnx/export/inference_form.h"
#include "compiler/onnx/export/training_form.h"
#include "compiler/onnx/operator_support.h"
#include "compiler/onnx/proto_convert.h"
#include "compiler/onnx/schema.h"
#include "compiler/onnx/translate/upgrade.h"

namespace gradloom {
namespace {

constexpr char kTraining[] = "ai.onnx.preview.training";
// The first IR version with training_info.
constexpr int kMinIrVersion = 7;

class Writer {
 public:
  Writer(const Algorithm& algorithm, const TrainedValues& values, const std::string& name, SeparateElements& elements,
         onnx::ModelProto& model)
      : algorithm_(algorithm),
        graph_(*algorithm.graph),
        values_(values),
        where_(name),
        elements_(elements),
        model_(model),
        opset_(VersionsOf(model)[""]) {}

  // Returns the targets that have another name in the file.
  std::map<std::string, std::string> Run() {
    TakeNames();
    TrainingForm form = TrainingFormOf(model_, algorithm_.restores_training, [this](const std::string& wanted) { return NewName(wanted); });
    ToInferenceForm(model_);
    model_.clear_training_info();
    proto_ = (info_ = model_.add_training_info())->mutable_algorithm();
    proto_->set_name("training");
    NameValues(form);
    for (const auto& [parameter, gradient] : algorithm_.gradients) RequireInitializer(graph_.value(parameter).name);
    if (!form.true_name.empty()) AddInitializer(form.true_name, Tensor::Scalar<bool>(true));
    proto_->mutable_node()->Swap(&form.nodes);
    AddInputs();
    AddNodes();
    AddBindings(form);
    AddInitializers();
    Declare(algorithm_.loss, proto_->mutable_output()->Add());
    std::swap(*proto_->mutable_output(0), *proto_->mutable_output(proto_->output_size() - 1));
    if (model_.ir_version() < kMinIrVersion) model_.set_ir_version(kMinIrVersion);
    if (VersionsOf(model_).contains(kTraining)) return renamed_targets_;
    auto& opset = *model_.add_opset_import();
    opset.set_domain(kTraining);
    opset.set_version(1);
    return renamed_targets_;
  }

 private:
  // Takes all names of the model, because an algorithm sees all its values.
  void TakeNames() {
    const std::function<void(const onnx::GraphProto&)> take = [&](const onnx::GraphProto& graph) {
      for (const auto& tensor : graph.initializer()) taken_.insert(tensor.name());
      for (const auto& tensor : graph.sparse_initializer()) taken_.insert(tensor.values().name());
      for (const auto& input : graph.input()) taken_.insert(input.name());
      for (const auto& node : graph.node()) {
        taken_.insert(node.output().begin(), node.output().end());
        for (const auto& attribute : node.attribute()) {
          if (attribute.has_g()) take(attribute.g());
        }
      }
    };
    take(model_.graph());
  }

  std::string NewName(const std::string& wanted) {
    std::string name = wanted;
    for (int i = 1; !taken_.insert(name).second; ++i) name = wanted + "." + std::to_string(i);
    return name;
  }

  // Values of the model keep their names; their training forms get new ones.
  void NameValues(const TrainingForm& form) {
    for (const ValueId id : algorithm_.model_inputs) names_.emplace(id, graph_.value(id).name);
    for (const ValueId id : graph_.outputs) {
      const auto named = algorithm_.output_names.find(id);
      const std::string& name = named != algorithm_.output_names.end() ? named->second : graph_.value(id).name;
      const auto renamed = form.renamed.find(name);
      names_.insert_or_assign(id, renamed != form.renamed.end() ? renamed->second : name);
    }
    for (const Value& value : graph_.values()) {
      if (value.role == Role::kParam) names_.emplace(value.id, value.name);
    }
    for (const ValueId id : graph_.inputs) {
      if (names_.contains(id)) continue;
      const auto named = algorithm_.target_names.find(id);
      const std::string& target = named != algorithm_.target_names.end() ? named->second : graph_.value(id).name;
      const std::string& name = names_.emplace(id, NewName(target)).first->second;
      if (name != target) renamed_targets_.emplace(target, name);
    }
    // States first, so that they keep their names.
    for (const Value& value : graph_.values()) {
      if (value.role == Role::kState) NameOf(value.id);
    }
  }

  const std::string& NameOf(ValueId id) {
    const auto known = names_.find(id);
    if (known != names_.end()) return known->second;
    const Value& value = graph_.value(id);
    const std::string wanted = value.next_of != kNoValue ? graph_.value(value.next_of).name + "/next" : value.name;
    return names_.emplace(id, NewName(wanted)).first->second;
  }

  // Turns a Constant node of the model that holds a trained tensor into an initializer.
  void RequireInitializer(const std::string& name) {
    auto& graph = *model_.mutable_graph();
    for (const auto& tensor : graph.initializer()) {
      if (tensor.name() == name) return;
    }
    for (int i = 0; i < graph.node_size(); ++i) {
      const onnx::NodeProto& node = graph.node(i);
      if (node.op_type() != "Constant" || !node.domain().empty() || node.output_size() != 1 || node.output(0) != name) continue;
      onnx::TensorProto* tensor = graph.add_initializer();
      elements_.Set(
          values_.types.at(name), [values = &values_, name] { return values->read(name); }, tensor);
      tensor->set_name(name);
      graph.mutable_node()->DeleteSubrange(i, 1);
      return;
    }
    throw Error(
        ErrorCode::kUnsupported,
        "the trained tensor '" + Escaped(name) + "' is inside a function or a nested graph, which update bindings cannot reach",
        Escaped(where_),
        "inline the functions of the model (onnx.inliner) before training, or do not train the tensor: --freeze '" + Escaped(name) + "'");
  }

  void Declare(ValueId id, onnx::ValueInfoProto* info) {
    info->set_name(NameOf(id));
    SetTensorType(graph_.type(id), info->mutable_type());
  }

  // Adds the targets as inputs.
  void AddInputs() {
    for (const ValueId id : graph_.inputs) {
      const auto& own = algorithm_.model_inputs;
      if (std::find(own.begin(), own.end(), id) != own.end()) continue;
      onnx::ValueInfoProto& info = *proto_->add_input();
      Declare(id, &info);
      const auto symbols = algorithm_.symbols.find(id);
      if (symbols == algorithm_.symbols.end()) continue;
      for (size_t axis = 0; axis < symbols->second.size(); ++axis) {
        const std::string& symbol = symbols->second[axis];
        auto* dim = info.mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim(static_cast<int>(axis));
        if (symbol.empty()) continue;
        dim->clear_value();
        if (symbol != kUnnamedExtent) dim->set_dim_param(symbol);
      }
    }
  }

  void AddNodes() {
    std::set<ValueId> gradients;
    for (const auto& [parameter, gradient] : algorithm_.gradients) gradients.insert(gradient);
    bool derived = gradients.empty();
    for (const Node& node : graph_.nodes) {
      if (node.id < algorithm_.first) continue;
      const bool reads = std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) { return gradients.contains(id); });
      if (reads && !std::exchange(derived, true)) AddGradient();
      AddNode(node);
    }
    if (!derived) AddGradient();
  }

  void AddGradient() {
    onnx::NodeProto& node = *proto_->add_node();
    node.set_op_type("Gradient");
    node.set_domain(kTraining);
    std::vector<std::string> xs, zs;
    for (const auto& [parameter, gradient] : algorithm_.gradients) {
      xs.push_back(NameOf(parameter));
      node.add_output(NameOf(gradient));
      // Type inference has no rule for these values, so they are declared.
      Declare(gradient, proto_->add_value_info());
    }
    for (const ValueId id : graph_.inputs) zs.push_back(NameOf(id));
    for (const auto* names : {&xs, &zs}) {
      for (const std::string& name : *names) node.add_input(name);
    }
    SetAttribute("xs", xs, node.add_attribute());
    SetAttribute("zs", zs, node.add_attribute());
    SetAttribute("y", NameOf(algorithm_.loss), node.add_attribute());
  }

  void AddNode(Node node) {
    // Without zeros in the target shape, `allowzero` has no effect.
    if (node.op == "Reshape" && node.domain.empty()) {
      const Shape& shape = graph_.value(node.outputs[0]).shape;
      if (std::find(shape.begin(), shape.end(), 0) == shape.end()) node.attributes.erase("allowzero");
    }
    CheckOpset(node);
    onnx::NodeProto& proto = *proto_->add_node();
    proto.set_op_type(node.op);
    proto.set_domain(node.domain);
    for (const ValueId id : node.inputs) proto.add_input(id == kNoValue ? "" : NameOf(id));
    for (const ValueId id : node.outputs) proto.add_output(id == kNoValue ? "" : NameOf(id));
    for (const auto& [name, value] : node.attributes) SetAttribute(name, value, proto.add_attribute());
  }

  // Checks that a node of kOpset has the same meaning in the model's opset.
  void CheckOpset(const Node& node) const {
    if (!node.domain.empty()) return;
    const onnx::OpSchema* schema = FindSchema("", node.op, opset_);
    std::string why = "unknown operator";
    if (schema != nullptr && !schema->deprecated()) {
      if (IsUpgraded(graph_, node, schema->since_version())) {
        why = "it has a different definition";
      } else {
        try {
          CheckNode(graph_, node, *schema);
          return;
        } catch (const Error& error) {
          why = error.message();
        }
      }
    }
    throw Error(ErrorCode::kUnsupported,
                "the algorithm needs operator '" + node.op + "', which is not available in opset " + std::to_string(opset_) +
                    " of the model: " + why,
                Escaped(where_) + "  " + Describe(node),
                "export the model for a newer opset, or convert it (onnx.version_converter), and train the result");
  }

  void Bind(const std::string& state, const std::string& next) {
    auto& binding = *info_->add_update_binding();
    binding.set_key(state);
    binding.set_value(next);
  }

  void AddBindings(const TrainingForm& form) {
    for (const Value& value : graph_.values()) {
      if (value.next_of == kNoValue) continue;
      Bind(NameOf(value.next_of), NameOf(value.id));
      Declare(value.id, proto_->add_output());
    }
    for (const auto& [statistic, next] : form.statistics) {
      Bind(statistic, next);
      onnx::ValueInfoProto& info = *proto_->add_output();
      info.set_name(next);
      for (const auto& tensor : model_.graph().initializer()) {
        if (tensor.name() != statistic) continue;
        auto* type = info.mutable_type()->mutable_tensor_type();
        type->set_elem_type(tensor.data_type());
        for (const int64_t dim : tensor.dims()) type->mutable_shape()->add_dim()->set_dim_value(dim);
      }
    }
  }

  void AddInitializer(const std::string& name, const TensorView& type, SeparateElements::Read read) {
    onnx::TensorProto& tensor = *proto_->add_initializer();
    tensor.set_name(name);
    elements_.Set(type, std::move(read), &tensor);
  }

  void AddInitializer(const std::string& name, const Tensor& value) {
    AddInitializer(name, value.view(), [value] { return value; });
  }

  // Adds constants of the algorithm, and states with the values that the run has reached.
  void AddInitializers() {
    std::set<ValueId> read;
    for (const Node& node : graph_.nodes) {
      if (node.id >= algorithm_.first) ForEachUse(node, [&](ValueId id) { read.insert(id); });
    }
    for (const Value& value : graph_.values()) {
      const bool is_state = value.role == Role::kState;
      if (!is_state && (!read.contains(value.id) || graph_.data(value.id) == nullptr || value.role != Role::kConst)) continue;
      // A constant that the model already has.
      if (!is_state && names_.at(value.id) == value.name && !value.derived) continue;
      const auto given = values_.types.find(value.name);
      const Tensor* data = graph_.data(value.id);
      if (is_state && given != values_.types.end()) {
        AddInitializer(NameOf(value.id), given->second, [values = &values_, name = value.name] { return values->read(name); });
      } else if (data != nullptr) {
        AddInitializer(NameOf(value.id), *data);
      } else {
        AddInitializer(NameOf(value.id), {value.dtype, value.shape, nullptr},
                       [dtype = value.dtype, shape = value.shape] { return Tensor(dtype, shape); });
      }
    }
  }

  const Algorithm& algorithm_;
  const Graph& graph_;
  const TrainedValues& values_;
  const std::string& where_;
  SeparateElements& elements_;
  onnx::ModelProto& model_;
  const int opset_;
  onnx::TrainingInfoProto* info_ = nullptr;
  onnx::GraphProto* proto_ = nullptr;
  std::set<std::string> taken_;
  std::map<ValueId, std::string> names_;
  std::map<std::string, std::string> renamed_targets_;
};

}  // namespace

std::map<std::string, std::string> WriteAlgorithm(const Algorithm& algorithm, const TrainedValues& values, const std::string& name,
                                                  SeparateElements& elements, onnx::ModelProto& model) {
  return Writer(algorithm, values, name, elements, model).Run();
}

}  // namespace gradloom
