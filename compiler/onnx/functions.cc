// Inlines calls of functions, both the model's and those of ONNX's schemas.
#include <algorithm>
#include <map>

#include "compiler/onnx/check/node_rules.h"
#include "compiler/onnx/importer.h"
#include "compiler/onnx/operator_support.h"
#include "compiler/onnx/proto_convert.h"
#include "compiler/onnx/schema.h"
#include "compiler/onnx/translate/own_bodies.h"
#include "compiler/ops/op.h"
#include "kernels/reference/reference.h"
#include "onnx/defs/function.h"
#include "runtime/base/counted.h"

namespace gradloom {
namespace {

// The information about a node that a schema's body builder asks for.
class BuildContext : public onnx::FunctionBodyBuildContext {
 public:
  using NamedAttributes = std::unordered_map<std::string, onnx::AttributeProto>;

  BuildContext(const Graph& graph, const Node& node, const NamedAttributes& attributes, const std::vector<std::string>& output_names)
      : node_(node), attributes_(attributes), output_names_(output_names), types_(node.inputs.size()) {
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] != kNoValue) SetTensorType(graph.type(node.inputs[i]), &types_[i]);
    }
  }
  const onnx::AttributeProto* getAttribute(const std::string& name) const override {
    const auto found = attributes_.find(name);
    return found == attributes_.end() ? nullptr : &found->second;
  }
  bool hasInput(int i) const override {
    return i >= 0 && static_cast<size_t>(i) < node_.inputs.size() && node_.inputs[static_cast<size_t>(i)] != kNoValue;
  }
  bool hasOutput(int i) const override {
    return i >= 0 && static_cast<size_t>(i) < output_names_.size() && !output_names_[static_cast<size_t>(i)].empty();
  }
  const onnx::TypeProto* getInputType(int i) const override { return hasInput(i) ? &types_[static_cast<size_t>(i)] : nullptr; }

 private:
  const Node& node_;
  const NamedAttributes& attributes_;
  const std::vector<std::string>& output_names_;
  std::vector<onnx::TypeProto> types_;
};

// Whether the node is an attention whose scores are also read: no kernel computes their gradient, and they are stored anyway.
bool OutputsScores(const Graph& graph, const Node& node, const std::vector<std::string>& output_names) {
  if (!node.domain.empty() || node.op != "Attention" || output_names.size() < 4 || output_names[3].empty() || node.inputs.empty() ||
      node.inputs[0] == kNoValue)
    return false;
  const DType dtype = graph.value(node.inputs[0]).dtype;
  return dtype == DType::kFloat32 || dtype == DType::kFloat64;
}

}  // namespace

void Importer::CheckUnsupported() {
  if (!KeepsAll()) return;  // they may be unused; otherwise the error comes with their node
  // Reports all unknown operators at once: in the graph, in nested graphs and in functions.
  const NodesByOperator unknown = UnknownOperators(file_.proto);
  if (unknown.empty()) return;
  std::string message, where = Escaped(file_.path, 1000) + "  ";
  for (const auto& [op, nodes] : unknown) {
    message += (message.empty() ? "unknown operator '" : ", '") + Escaped(op) + "' (" + Counted(std::ssize(nodes), "node") + ")";
    for (size_t i = 0; i < std::min<size_t>(nodes.size(), 3); ++i) where += " '" + Escaped(nodes[i]) + "'";
  }
  throw Error(ErrorCode::kUnsupported, message, where, unknown.size() == 1 ? HelpForUnknown(unknown.begin()->first, file_.proto) : "");
}

std::vector<Binding> Importer::RunBody(const onnx::FunctionProto& function, const Call& call) {
  if (call.inputs.size() > static_cast<size_t>(function.input_size()) ||
      call.output_names.size() > static_cast<size_t>(function.output_size())) {
    throw Error(ErrorCode::kArity,
                "function '" + Escaped(function.name()) + "' has " + std::to_string(function.input_size()) + " inputs and " +
                    std::to_string(function.output_size()) + " outputs, but this call has " + std::to_string(call.inputs.size()) + " and " +
                    std::to_string(call.output_names.size()),
                "node '" + Escaped(call.origin) + "'");
  }
  const OpsetVersions versions = VersionsOf(function);
  Scope body;
  body.depth = frames_.size();
  body.path = call.origin + "/";
  body.opsets = &versions;
  body.attributes = &call.attributes;
  for (int i = 0; i < function.input_size(); ++i) {
    body.names[function.input(i)] = static_cast<size_t>(i) < call.inputs.size() ? call.inputs[static_cast<size_t>(i)] : Binding{};
  }
  for (size_t i = 0; i < call.output_names.size(); ++i) {
    if (!call.output_names[i].empty()) body.renamed.emplace(function.output(static_cast<int>(i)), call.output_names[i]);
  }
  RunNodes(function.node(), body);
  std::vector<Binding> results;
  for (size_t i = 0; i < call.output_names.size(); ++i) {
    const std::string& name = function.output(static_cast<int>(i));
    const Binding* made = Find(name, body);
    if (made == nullptr && !call.output_names[i].empty()) {
      throw Error(ErrorCode::kGraph, "function '" + Escaped(function.name()) + "' does not produce its output '" + Escaped(name) + "'",
                  "node '" + Escaped(call.origin) + "'");
    }
    results.push_back(made == nullptr ? Binding{} : *made);
  }
  return results;
}

void Importer::RunFunction(const onnx::FunctionProto& function, const onnx::NodeProto& proto, Scope& scope) {
  Call call;
  call.origin = Origin(proto, scope);
  for (const auto& attribute : function.attribute_proto()) call.attributes[attribute.name()] = &attribute;
  for (const auto& attribute : proto.attribute()) {
    if (const auto* resolved = Resolve(attribute, scope)) call.attributes[attribute.name()] = resolved;
  }
  for (const std::string& input : proto.input()) {
    call.inputs.push_back(input.empty() ? Binding{} : Lookup(input, proto, scope));
  }
  for (const std::string& output : proto.output()) call.output_names.push_back(output.empty() ? "" : NameOf(output, scope));
  const std::vector<Binding> results = RunBody(function, call);
  for (int i = 0; i < proto.output_size(); ++i) {
    if (!proto.output(i).empty()) scope.names.insert_or_assign(proto.output(i), results[static_cast<size_t>(i)]);
  }
}

void Importer::RestoreTensors(const onnx::GraphProto& graph, onnx::GraphProto& copy) const {
  const auto restore = [&](const onnx::TensorProto& from, onnx::TensorProto* to) {
    const auto found = file_.tensors.find(&from);
    if (found != file_.tensors.end()) SetTensor(found->second.data.view(), to);
  };
  for (int i = 0; i < graph.initializer_size(); ++i) restore(graph.initializer(i), copy.mutable_initializer(i));
  for (int i = 0; i < graph.node_size(); ++i) {
    for (int k = 0; k < graph.node(i).attribute_size(); ++k) {
      const onnx::AttributeProto& attribute = graph.node(i).attribute(k);
      onnx::AttributeProto* to = copy.mutable_node(i)->mutable_attribute(k);
      if (attribute.has_t()) restore(attribute.t(), to->mutable_t());
      if (attribute.has_g()) RestoreTensors(attribute.g(), *to->mutable_g());
    }
  }
}

bool Importer::ExpandBySchema(const Node& node, const onnx::NodeProto& proto, const Scope& scope,
                              const std::vector<std::string>& output_names, std::vector<ValueId>& results) {
  // An operator with both a row and a kernel is not expanded.
  const bool known = FindOp(node.domain, node.op) != nullptr && FindReference(node.domain, node.op) != nullptr;
  const Graph& graph = emitter().graph();
  const bool own = HasOwnBody(graph, node, output_names);
  if (known && !own && !OutputsScores(graph, node, output_names)) return false;
  const onnx::OpSchema* schema = FindSchema(node.domain, node.op);
  if (schema == nullptr || (!own && !schema->HasFunction() && !schema->HasContextDependentFunction())) return false;
  CheckNode(emitter().graph(), node, *schema);
  CheckOperands(emitter().graph(), node);
  std::unordered_map<std::string, onnx::AttributeProto> attributes;
  for (const auto& [name, value] : node.attributes) SetAttribute(name, value, &attributes[name]);
  for (const auto& written : proto.attribute()) {
    const onnx::AttributeProto* attribute = Resolve(written, scope);
    if (attribute == nullptr || !attribute->has_g()) continue;
    onnx::AttributeProto& copy = attributes[written.name()] = *attribute;
    copy.set_name(written.name());
    RestoreTensors(attribute->g(), *copy.mutable_g());
  }
  auto body = std::make_unique<onnx::FunctionProto>();
  const int newest = node.domain.empty() ? kOpset : schema->since_version();
  if (own) {
    try {
      onnx::FunctionBuilder(*body).Add(OwnBody(emitter().graph(), node).c_str()).AddOpset("", kOpset);
    } catch (const Error& error) {
      throw Error(error.code(), error.message(), Describe(node), error.help());
    }
    schema->BuildFunction(*body);
  } else if (const onnx::FunctionProto* fixed = schema->GetFunction(newest)) {
    *body = *fixed;
  } else {
    const BuildContext context(emitter().graph(), node, attributes, output_names);
    try {
      if (!schema->BuildContextDependentFunction(context, *body, newest)) return false;
    } catch (const Error& error) {
      throw Error(error.code(), error.message(), Describe(node), error.help());
    }
  }
  // Bodies of operators of other domains use ONNX's operators, and may omit their opset.
  if (!VersionsOf(*body).contains("")) body->add_opset_import()->set_version(kOpset);
  Call call;
  call.origin = node.origin;
  call.output_names = output_names;
  for (ValueId id : node.inputs) call.inputs.push_back({id, nullptr});
  for (const auto& [name, attribute] : schema->attributes()) {
    if (attribute.default_value.has_name()) call.attributes[name] = &attribute.default_value;
  }
  for (const auto& [name, attribute] : attributes) call.attributes[name] = &attribute;
  results.clear();
  for (const Binding& binding : RunBody(*body, call)) results.push_back(binding.tensor);
  return true;
}

}  // namespace gradloom
