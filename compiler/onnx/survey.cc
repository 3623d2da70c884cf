#include "compiler/onnx/survey.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "compiler/onnx/model_file.h"
#include "compiler/onnx/operator_support.h"
#include "compiler/onnx/proto_convert.h"
#include "compiler/onnx/standard_domain.h"
#include "runtime/base/counted.h"
#include "runtime/base/listing.h"

namespace gradloom {
namespace {

using onnx::GraphProto;
using onnx::NodeProto;
using Nodes = google::protobuf::RepeatedPtrField<NodeProto>;

std::string ListOf(const std::vector<std::string>& names) {
  Listing list(5);
  for (const std::string& name : names) list.Add("'" + Escaped(name) + "'");
  return list.text();
}

std::string Count(const std::vector<std::string>& names, const char* what) { return " (" + Counted(std::ssize(names), what) + ")"; }

// The values of a body (a graph, or the nodes of a function) that its outputs depend on.
class Needed {
 public:
  Needed(const Nodes& nodes, const std::vector<std::string>& outputs) : names_(outputs.begin(), outputs.end()) {
    for (int i = nodes.size() - 1; i >= 0; --i) {
      const bool needed = std::any_of(nodes[i].output().begin(), nodes[i].output().end(), [&](const auto& name) { return Has(name); });
      if (needed) AddUses(nodes[i]);
    }
  }
  bool Has(const std::string& name) const { return !name.empty() && names_.contains(name); }

 private:
  // Names in nested graphs may hide outer ones; then more values count as needed, which does no harm.
  void AddUses(const NodeProto& node) {
    names_.insert(node.input().begin(), node.input().end());
    for (const auto& attribute : node.attribute()) {
      if (attribute.has_g()) AddUses(attribute.g());
      for (const auto& graph : attribute.graphs()) AddUses(graph);
    }
  }
  void AddUses(const GraphProto& graph) {
    for (const NodeProto& node : graph.node()) AddUses(node);
    for (const auto& output : graph.output()) names_.insert(output.name());
  }

  std::set<std::string> names_;
};

std::vector<std::string> OutputsOf(const GraphProto& graph) {
  std::vector<std::string> names;
  for (const auto& output : graph.output()) names.push_back(output.name());
  return names;
}

// Operators without a gradient between a weight and an output.
struct OnPath {
  std::vector<std::string> nodes;
  std::string weight;  // a weight that needs the first of them
};

// Follows weights through a model by names.
class GradientSurvey {
 public:
  GradientSurvey(const onnx::ModelProto& model, const std::function<bool(const std::string&)>& is_frozen)
      : functions_(model), is_frozen_(is_frozen) {}

  std::map<std::string, OnPath> Run(const onnx::ModelProto& model) {
    Graph(model.graph(), nullptr);
    // Each function is visited once, through the call by which a weight first reached it.
    while (!entered_.empty()) {
      const auto [function, weight] = entered_.back();
      entered_.pop_back();
      Scope scope;
      for (const std::string& input : function->input()) scope.weights[input] = weight;
      const std::vector<std::string> outputs(function->output().begin(), function->output().end());
      Walk(function->node(), scope, Needed(function->node(), outputs));
    }
    return std::move(missing_);
  }

 private:
  // Maps a value to a weight that it depends on differentiably.
  struct Scope {
    const Scope* outer = nullptr;
    std::map<std::string, std::string> weights;

    const std::string* Find(const std::string& name) const {
      for (const Scope* scope = this; scope != nullptr; scope = scope->outer) {
        const auto found = scope->weights.find(name);
        if (found != scope->weights.end()) return &found->second;
      }
      return nullptr;
    }
  };

  bool IsWeight(const onnx::TensorProto& tensor, const std::string& name) const {
    const auto dtype = DTypeFromProto(tensor.data_type());
    return tensor.dims_size() > 0 && dtype && IsFloating(*dtype) && !(is_frozen_ && is_frozen_(name));
  }

  // Returns a weight that the outputs of a nested graph depend on, or nullopt.
  std::optional<std::string> Graph(const GraphProto& graph, const Scope* outer) {
    Scope scope{outer, {}};
    for (const auto& tensor : graph.initializer()) {
      if (IsWeight(tensor, tensor.name())) scope.weights.emplace(tensor.name(), tensor.name());
    }
    const std::vector<std::string> outputs = OutputsOf(graph);
    Walk(graph.node(), scope, Needed(graph.node(), outputs));
    for (const std::string& output : outputs) {
      if (const std::string* weight = scope.Find(output)) return *weight;
    }
    return std::nullopt;
  }

  void Walk(const Nodes& nodes, Scope& scope, const Needed& needed) {
    for (const NodeProto& node : nodes) {
      if (std::none_of(node.output().begin(), node.output().end(), [&](const auto& name) { return needed.Has(name); })) continue;
      const std::optional<std::string> weight = WeightBefore(node, scope);
      if (!weight || StopsGradients(node)) continue;
      if (const onnx::FunctionProto* function = functions_.Find(node)) {
        if (seen_.insert(function).second) entered_.emplace_back(function, *weight);
      } else if (SupportOf(node) != Support::kFull) {
        OnPath& missing = missing_[OperatorName(node)];
        missing.nodes.push_back(DisplayName(node));
        if (missing.weight.empty()) missing.weight = *weight;
      }
      for (const std::string& output : node.output()) scope.weights.emplace(output, *weight);
    }
  }

  std::optional<std::string> WeightBefore(const NodeProto& node, const Scope& scope) {
    if (IsStandard(node, "Constant")) {
      for (const auto& attribute : node.attribute()) {
        if (attribute.has_t() && node.output_size() > 0 && IsWeight(attribute.t(), node.output(0))) return node.output(0);
      }
    }
    // Running statistics are not weights.
    const int inputs = IsStandard(node, "BatchNormalization") ? std::min(node.input_size(), 3) : node.input_size();
    for (int i = 0; i < inputs; ++i) {
      if (const std::string* weight = scope.Find(node.input(i))) return *weight;
    }
    std::optional<std::string> inside;
    for (const auto& attribute : node.attribute()) {
      if (!attribute.has_g()) continue;
      std::optional<std::string> weight = Graph(attribute.g(), &scope);
      if (!inside) inside = std::move(weight);
    }
    return inside;
  }

  const FunctionIndex functions_;
  const std::function<bool(const std::string&)>& is_frozen_;
  std::set<const onnx::FunctionProto*> seen_;
  std::vector<std::pair<const onnx::FunctionProto*, std::string>> entered_;
  std::map<std::string, OnPath> missing_;
};

// Returns the names of tensors with unsupported element types, by type.
std::map<std::string, std::vector<std::string>> UnsupportedTypes(onnx::ModelProto& model) {
  std::map<std::string, std::vector<std::string>> types;
  const auto look = [&](int64_t type, const std::string& name) {
    if (!onnx::TensorProto::DataType_IsValid(static_cast<int>(type)) || type == onnx::TensorProto::UNDEFINED) return;
    const auto dtype = DTypeFromProto(static_cast<int32_t>(type));
    if (!dtype || *dtype == DType::kString) types[ProtoTypeName(static_cast<int32_t>(type))].push_back(name);
  };
  std::set<std::string> initializers;
  ForEachTensor(model, [&](const TensorSite& site) {
    look(site.dense != nullptr ? site.dense->data_type() : site.sparse->values().data_type(), site.name);
    if (site.graph == model.mutable_graph()) initializers.insert(site.name);
  });
  for (const auto& input : model.graph().input()) {
    if (!initializers.contains(input.name())) look(input.type().tensor_type().elem_type(), input.name());
  }
  ForEachNodeOf(model, [&](const NodeProto& node, const OpsetVersions&) {
    if (node.op_type() != "Cast") return;
    for (const auto& attribute : node.attribute()) {
      if (attribute.name() == "to" && attribute.ref_attr_name().empty()) look(attribute.i(), DisplayName(node));
    }
  });
  return types;
}

// Returns ONNX operators without a kernel.
NodesByOperator OperatorsWithoutKernel(const onnx::ModelProto& model, const NodesByOperator& unknown) {
  const FunctionIndex functions(model);
  NodesByOperator missing;
  ForEachNodeOf(model, [&](const NodeProto& node, const OpsetVersions&) {
    if (functions.Find(node) != nullptr || unknown.contains(OperatorName(node)) || SupportOf(node) != Support::kNone) return;
    missing[OperatorName(node)].push_back(DisplayName(node));
  });
  return missing;
}

}  // namespace

std::vector<Error> FindObstacles(const std::string& path, const std::function<bool(const std::string&)>& is_frozen,
                                 const LoadOptions& options) {
  const std::shared_ptr<ModelFile> file = ReadModelProto(path, options);
  const std::string where = Escaped(path, 1000) + "  ";
  std::vector<Error> obstacles;
  const auto add = [&](const std::string& message, const std::string& site, const std::string& help) {
    obstacles.emplace_back(ErrorCode::kUnsupported, message, where + site, help);
  };
  const NodesByOperator unknown = UnknownOperators(file->proto);
  for (const auto& [op, nodes] : unknown) {
    const std::string help = HelpForUnknown(op, file->proto);
    add("unknown operator '" + Escaped(op) + "'" + Count(nodes, "node"), "node " + ListOf(nodes),
        help.empty() ? "replace it with ONNX operators, or define it as a function in the model" : help);
  }
  for (const auto& [type, tensors] : UnsupportedTypes(file->proto)) {
    add("elements of type " + type + " are not supported" + Count(tensors, "tensor"), ListOf(tensors),
        "convert the model to float32 before training");
  }
  if (obstacles.empty()) return obstacles;
  std::map<std::string, OnPath> on_path = GradientSurvey(file->proto, is_frozen).Run(file->proto);
  for (const auto& [op, nodes] : OperatorsWithoutKernel(file->proto, unknown)) {
    const auto found = on_path.find(op);
    const std::string needed =
        found == on_path.end() ? "" : "    needed because '" + Escaped(found->second.weight) + "' is trained through it";
    add("no kernel and no gradient for operator '" + Escaped(op) + "'" + Count(nodes, "node"), "node " + ListOf(nodes) + needed,
        "replace it with other operators, or define it as a function in the model");
    if (found != on_path.end()) on_path.erase(found);
  }
  for (const auto& [op, missing] : on_path) {
    if (unknown.contains(op)) continue;
    add("no gradient for operator '" + Escaped(op) + "'" + Count(missing.nodes, "node"),
        "node " + ListOf(missing.nodes) + "    needed because '" + Escaped(missing.weight) + "' is trained through it",
        "freeze the weights before it: --freeze PATTERN");
  }
  return obstacles;
}

}  // namespace gradloom
