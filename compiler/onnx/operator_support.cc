#include "compiler/onnx/operator_support.h"

#include <set>

#include "compiler/onnx/schema.h"
#include "compiler/onnx/standard_schemas.h"
#include "compiler/onnx/translate/contrib_operators.h"
#include "compiler/onnx/translate/own_bodies.h"
#include "compiler/ops/op.h"
#include "runtime/base/suggestion.h"

namespace gradloom {
namespace {

using NodeVisitor = std::function<void(const onnx::NodeProto&)>;

std::string ShortDomain(const std::string& domain) { return domain == "ai.onnx" ? "" : domain; }

std::string KeyOf(const std::string& domain, const std::string& name, const std::string& overload) {
  return ShortDomain(domain) + "\n" + name + "\n" + overload;
}

template <typename Proto>
OpsetVersions Versions(const Proto& proto) {
  OpsetVersions versions;
  for (const auto& opset : proto.opset_import()) versions[ShortDomain(opset.domain())] = static_cast<int>(opset.version());
  return versions;
}

// Nesting was bounded when the file was read.
void ForEachNode(const google::protobuf::RepeatedPtrField<onnx::NodeProto>& nodes, const NodeVisitor& f) {
  for (const auto& node : nodes) {
    f(node);
    for (const auto& attribute : node.attribute()) {
      if (attribute.has_g()) ForEachNode(attribute.g().node(), f);
      for (const auto& graph : attribute.graphs()) ForEachNode(graph.node(), f);
    }
  }
}

// Operators without a row that never need a kernel: the importer expands them, they are upgraded to a newer operator, or the training view
// replaces them.
bool IsReplaced(const std::string& op) {
  static const std::set<std::string> kReplaced = {"Concat",
                                                  "ConcatFromSequence",
                                                  "Constant",
                                                  "Dropout",
                                                  "If",
                                                  "Identity",
                                                  "Loop",
                                                  "NonMaxSuppression",
                                                  "Optional",
                                                  "OptionalGetElement",
                                                  "Scan",
                                                  "SequenceAt",
                                                  "OptionalHasElement",
                                                  "SequenceConstruct",
                                                  "SequenceEmpty",
                                                  "SequenceErase",
                                                  "Scatter",
                                                  "SequenceInsert",
                                                  "SequenceLength",
                                                  "SequenceMap",
                                                  "SplitToSequence",
                                                  "Unique",
                                                  "Upsample"};
  return kReplaced.contains(op);
}

}  // namespace

OpsetVersions VersionsOf(const onnx::ModelProto& model) { return Versions(model); }

OpsetVersions VersionsOf(const onnx::FunctionProto& function) { return Versions(function); }

FunctionIndex::FunctionIndex(const onnx::ModelProto& model) {
  for (const auto& function : model.functions()) functions_[KeyOf(function.domain(), function.name(), function.overload())] = &function;
}

const onnx::FunctionProto* FunctionIndex::Find(const onnx::NodeProto& node) const {
  if (functions_.empty()) return nullptr;
  const auto found = functions_.find(KeyOf(node.domain(), node.op_type(), node.overload()));
  return found == functions_.end() ? nullptr : found->second;
}

void ForEachNodeOf(const onnx::ModelProto& model, const std::function<void(const onnx::NodeProto&, const OpsetVersions&)>& f) {
  const OpsetVersions versions = VersionsOf(model);
  ForEachNode(model.graph().node(), [&](const onnx::NodeProto& node) { f(node, versions); });
  for (const auto& function : model.functions()) {
    const OpsetVersions own = VersionsOf(function);
    ForEachNode(function.node(), [&](const onnx::NodeProto& node) { f(node, own); });
  }
}

std::string OperatorName(const onnx::NodeProto& node) {
  const std::string domain = ShortDomain(node.domain());
  return domain.empty() ? node.op_type() : domain + "." + node.op_type();
}

std::string FunctionName(const onnx::FunctionProto& function) {
  return function.domain() + "." + function.name() + (function.overload().empty() ? "" : ":" + function.overload());
}

std::string DisplayName(const onnx::NodeProto& node) {
  return node.name().empty() && node.output_size() > 0 ? node.output(0) : node.name();
}

NodesByOperator UnknownOperators(const onnx::ModelProto& model) {
  const FunctionIndex functions(model);
  NodesByOperator unknown;
  ForEachNodeOf(model, [&](const onnx::NodeProto& node, const OpsetVersions& versions) {
    if (functions.Find(node) != nullptr) return;
    const auto version = versions.find(ShortDomain(node.domain()));
    if (version != versions.end() && FindSchema(version->first, node.op_type(), version->second) != nullptr) return;
    unknown[OperatorName(node)].push_back(DisplayName(node));
  });
  return unknown;
}

std::string HelpForUnknown(const std::string& op, const onnx::ModelProto& model) {
  const OpsetVersions versions = VersionsOf(model);
  const auto found = versions.find("");
  const int declared = found == versions.end() ? kOpset : found->second;
  for (int opset = declared + 1; opset <= kOpset; ++opset) {
    if (FindSchema("", op, opset) == nullptr) continue;
    const std::string since = std::to_string(opset);
    return "ONNX has it since opset " + since + ", but the file declares opset " + std::to_string(declared) +
           ": export with opset_version=" + since;
  }
  const size_t dot = op.rfind('.');
  if (dot != std::string::npos) return HelpOfContrib(std::string_view(op).substr(0, dot));
  if (op.ends_with("PartitionedCall"))
    return "tf2onnx could not convert this call, which TensorFlow makes of a convolution in groups: convert the model by way of TensorFlow "
           "Lite (tf2onnx --tflite)";
  return Suggestion(op, StandardOperators());
}

Support SupportOf(const onnx::NodeProto& node) {
  const std::string domain = ShortDomain(node.domain());
  if (domain.empty() && IsReplaced(node.op_type())) return Support::kFull;
  if (domain == "ai.onnx.preview.training" && node.op_type() == "Gradient") return Support::kFull;
  if (const Op* op = FindOp(domain, node.op_type())) {
    return op->gradient != nullptr || op->has(kNoGradient) ? Support::kFull : Support::kNoGradient;
  }
  if (MayHaveOwnBody(domain, node.op_type())) return Support::kFull;
  const onnx::OpSchema* schema = FindSchema(domain, node.op_type());
  return schema != nullptr && (schema->HasFunction() || schema->HasContextDependentFunction()) ? Support::kFull : Support::kNone;
}

bool StopsGradients(const onnx::NodeProto& node) {
  const Op* op = FindOp(ShortDomain(node.domain()), node.op_type());
  return op != nullptr && op->has(kNoGradient);
}

}  // namespace gradloom
