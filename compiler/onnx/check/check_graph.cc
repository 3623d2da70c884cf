#include "compiler/onnx/check/check_graph.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <unordered_map>

#include "compiler/onnx/check/attribute_form.h"
#include "compiler/onnx/check/check_names.h"
#include "compiler/onnx/check/node_order.h"
#include "compiler/onnx/operator_support.h"
#include "compiler/onnx/proto_convert.h"
#include "compiler/onnx/schema.h"
#include "compiler/onnx/standard_domain.h"
#include "runtime/base/error.h"
#include "runtime/base/suggestion.h"

namespace gradloom {
namespace {

using onnx::GraphProto;
using onnx::NodeProto;
using Nodes = google::protobuf::RepeatedPtrField<NodeProto>;

// Producers of values other than nodes.
constexpr int kInput = -1, kInitializer = -2;

// Comparing two names takes time proportional to the product of their lengths.
constexpr size_t kMaxCompared = 256;

// The names that are visible to the nodes of one body.
struct Names {
  const Names* outer = nullptr;
  std::unordered_map<std::string_view, int> made;  // by name: the position of the node that produces it, kInput or kInitializer

  bool Has(std::string_view name) const {
    for (const Names* names = this; names != nullptr; names = names->outer) {
      if (names->made.contains(name)) return true;
    }
    return false;
  }
};

class GraphChecker {
 public:
  GraphChecker(const std::string& where, const ModelLimits& limits) : where_(where), limits_(limits), names_(where, limits) {}

  void Main(const onnx::ModelProto& model) {
    const GraphProto& graph = model.graph();
    // An output need not have a type, as in files to which a value was added as an output by its name alone: it follows from the nodes.
    if (graph.output().empty()) Fail(ErrorCode::kGraph, "the graph has no output");
    CheckListedInitializers(graph);
    CheckSequences(graph, VersionsOf(model));
    Graph(graph, nullptr, "");
  }

  void Function(const onnx::FunctionProto& function) {
    names_.Check(function.name(), "a function");
    names_.Check(function.domain(), "a function's domain");
    names_.Check(function.overload(), "a function's overload");
    const std::string place = "function '" + Escaped(FunctionName(function)) + "'";
    if (function.name().empty()) Fail(ErrorCode::kSchema, "a function has no name", place);
    in_function_ = true;
    Names names;
    for (const std::string& input : function.input()) {
      names_.Check(input, "an input of a function", place);
      if (!names.made.emplace(input, kInput).second)
        Fail(ErrorCode::kGraph, "a function has the input '" + Escaped(input) + "' twice", place);
    }
    Body(function.node(), names);
    std::set<std::string_view> outputs;
    for (const std::string& output : function.output()) {
      if (!outputs.insert(output).second) Fail(ErrorCode::kGraph, "a function has the output '" + Escaped(output) + "' twice", place);
      names_.Check(output, "an output of a function", place);
      if (!names.Has(output)) Fail(ErrorCode::kGraph, "no node of the function produces its output '" + Escaped(output) + "'", place);
    }
    for (const auto& attribute : function.attribute_proto()) CheckForm(attribute, limits_, [&] { return where_ + "  " + place; });
    in_function_ = false;
  }

 private:
  [[noreturn]] void Fail(ErrorCode code, const std::string& message, const std::string& place = "", const std::string& help = "") const {
    throw Error(code, message, where_ + (place.empty() ? "" : "  " + place), help);
  }

  // Before IR version 4, initializers were also listed as inputs; both must have the same type.
  void CheckListedInitializers(const GraphProto& graph) const {
    std::unordered_map<std::string_view, int32_t> types;
    for (const auto& info : graph.input()) {
      if (info.type().has_tensor_type()) types.emplace(info.name(), info.type().tensor_type().elem_type());
    }
    for (const auto& tensor : graph.initializer()) {
      const auto listed = types.find(tensor.name());
      if (listed == types.end() || listed->second == tensor.data_type()) continue;
      Fail(ErrorCode::kType,
           "'" + Escaped(tensor.name()) + "' is a graph input of type " + ProtoTypeName(listed->second) + " and an initializer of type " +
               ProtoTypeName(tensor.data_type()),
           "input '" + Escaped(tensor.name()) + "'");
    }
  }

  // Refuses graph inputs that are not tensors where an operator only takes tensors.
  void CheckSequences(const GraphProto& graph, const OpsetVersions& versions) const {
    std::set<std::string_view> others;
    for (const auto& info : graph.input()) {
      const auto kind = info.type().value_case();
      if (kind != onnx::TypeProto::VALUE_NOT_SET && kind != onnx::TypeProto::kTensorType) others.insert(info.name());
    }
    if (others.empty()) return;
    for (const NodeProto& node : graph.node()) {
      const auto version = versions.find(node.domain() == "ai.onnx" ? "" : node.domain());
      const onnx::OpSchema* schema = version == versions.end() ? nullptr : FindSchema(version->first, node.op_type(), version->second);
      if (schema == nullptr || schema->inputs().empty()) continue;
      for (int i = 0; i < node.input_size(); ++i) {
        const auto& formal = schema->inputs()[std::min(static_cast<size_t>(i), schema->inputs().size() - 1)];
        const auto& types = formal.GetTypes();
        const bool tensors = std::all_of(types.begin(), types.end(), [](const std::string* type) { return type->starts_with("tensor("); });
        if (!tensors || types.empty() || !others.contains(node.input(i))) continue;
        Fail(ErrorCode::kType, "input '" + Escaped(node.input(i)) + "' is a sequence, an optional or a map; expected a tensor",
             Describe(node));
      }
    }
  }

  // `place` names the graph in messages; empty for the main graph.
  void Graph(const GraphProto& graph, const Names* outer, const std::string& place) {
    names_.Check(graph);
    Names names;
    names.outer = outer;
    for (const auto& info : graph.input()) {
      if (info.name().empty() && outer == nullptr) Fail(ErrorCode::kGraph, "a graph input has no name", place);
      if (!names.made.emplace(info.name(), kInput).second)
        Fail(ErrorCode::kGraph, "the graph has the input '" + Escaped(info.name()) + "' twice",
             place.empty() ? "input '" + Escaped(info.name()) + "'" : place);
    }
    for (int i = 0; i < graph.initializer_size(); ++i)
      Initializer(graph.initializer(i).name(), "initializer " + std::to_string(i), names, place);
    for (int i = 0; i < graph.sparse_initializer_size(); ++i) {
      Initializer(graph.sparse_initializer(i).values().name(), "sparse initializer " + std::to_string(i), names, place);
    }
    Body(graph.node(), names);
    for (const auto& info : graph.output()) {
      if (names.Has(info.name())) continue;
      const std::string output = "output '" + Escaped(info.name()) + "'";
      Fail(ErrorCode::kGraph, "no node produces the " + std::string(place.empty() ? "graph " : "") + output,
           place.empty() ? output : place);
    }
  }

  void Initializer(const std::string& name, const std::string& which, Names& names, const std::string& place) const {
    if (name.empty()) Fail(ErrorCode::kGraph, which + " has no name", place);
    int& producer = names.made.emplace(name, kInput).first->second;
    if (producer == kInitializer)
      Fail(ErrorCode::kGraph, "there are two initializers with the name '" + Escaped(name) + "'", place.empty() ? which : place);
    producer = kInitializer;
  }

  void Body(const Nodes& nodes, Names& names) {
    for (int i = 0; i < nodes.size(); ++i) {
      const NodeProto& node = nodes[i];
      names_.Check(node);
      if (node.op_type().empty()) Fail(ErrorCode::kSchema, "a node has no op_type", "node " + std::to_string(i) + Describe(node));
      if (node.input().empty() && node.output().empty()) Fail(ErrorCode::kGraph, "a node has no inputs and no outputs", Describe(node));
      for (const std::string& input : node.input()) {
        if (!input.empty() && !names.Has(input)) Unresolved(nodes, node, input, names);
      }
      Attributes(node, names);
      for (const std::string& output : node.output()) {
        if (output.empty()) continue;
        const auto [at, fresh] = names.made.emplace(output, i);
        if (!fresh) FailDuplicate(nodes, node, output, at->second);
      }
    }
  }

  [[noreturn]] void FailDuplicate(const Nodes& nodes, const NodeProto& node, const std::string& name, int producer) const {
    const std::string other = producer == kInput         ? "a graph input"
                              : producer == kInitializer ? "an initializer"
                                                         : Describe(nodes[producer]);
    Fail(ErrorCode::kGraph, "'" + Escaped(name) + "' is produced twice, by " + other + " and by " + Describe(node), Describe(node),
         "give every value a unique name");
  }

  [[noreturn]] void Unresolved(const Nodes& nodes, const NodeProto& node, const std::string& name, const Names& names) const {
    if (const std::string fault = OrderFault(nodes, node, name); !fault.empty())
      Fail(ErrorCode::kGraph, fault, Describe(node), "each node must come after the nodes that produce its inputs");
    std::vector<std::string> known;
    for (const Names* scope = &names; scope != nullptr; scope = scope->outer) {
      for (const auto& [other, producer] : scope->made) {
        if (other.size() <= kMaxCompared) known.emplace_back(other);
      }
    }
    std::sort(known.begin(), known.end());
    Fail(ErrorCode::kGraph, "input '" + Escaped(name) + "' is not defined", Describe(node),
         name.size() <= kMaxCompared ? Suggestion(name, known) : "");
  }

  void Attributes(const NodeProto& node, const Names& names) {
    std::set<std::string_view> given;
    for (const auto& attribute : node.attribute()) {
      const auto place = [&] { return where_ + "  " + Describe(node); };
      if (attribute.name().empty()) Fail(ErrorCode::kAttr, "an attribute has no name", Describe(node));
      if (!given.insert(attribute.name()).second)
        Fail(ErrorCode::kAttr, "attribute '" + Escaped(attribute.name()) + "' is given twice", Describe(node));
      CheckForm(attribute, limits_, place);
      if (!attribute.ref_attr_name().empty() && !in_function_) {
        Fail(ErrorCode::kAttr,
             "attribute '" + Escaped(attribute.name()) + "' refers to '" + Escaped(attribute.ref_attr_name()) + "' outside of a function",
             Describe(node));
      }
      if (IsStandard(node, "If") && attribute.g().input_size() > 0)
        Fail(ErrorCode::kGraph, "the branch '" + Escaped(attribute.name()) + "' must not have inputs", Describe(node));
      // Nesting is bounded before a model is parsed.
      if (attribute.has_g()) Graph(attribute.g(), &names, Describe(node));
      for (const GraphProto& graph : attribute.graphs()) Graph(graph, &names, Describe(node));
    }
  }

  const std::string& where_;
  const ModelLimits& limits_;
  const NameRules names_;
  bool in_function_ = false;
};

}  // namespace

void CheckGraphs(const onnx::ModelProto& model, const std::string& where, const ModelLimits& limits) {
  GraphChecker(where, limits).Main(model);
  for (const auto& function : model.functions()) GraphChecker(where, limits).Function(function);
}

}  // namespace gradloom
