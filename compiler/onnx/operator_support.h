// Which of a model's operators are known: to ONNX, to the model's own functions, to us. Private to this directory.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "onnx/onnx_pb.h"

namespace gradloom {

using OpsetVersions = std::unordered_map<std::string, int>;  // by domain; "ai.onnx" is ""

OpsetVersions VersionsOf(const onnx::ModelProto& model);
OpsetVersions VersionsOf(const onnx::FunctionProto& function);

// The functions of a model, which must outlive it.
class FunctionIndex {
 public:
  explicit FunctionIndex(const onnx::ModelProto& model);

  // The one that a node calls, or null.
  const onnx::FunctionProto* Find(const onnx::NodeProto& node) const;

 private:
  std::unordered_map<std::string, const onnx::FunctionProto*> functions_;
};

// Calls `f` on every node of the model, those of functions and nested graphs included, with the versions in force.
void ForEachNodeOf(const onnx::ModelProto& model, const std::function<void(const onnx::NodeProto&, const OpsetVersions&)>& f);

// "Conv", or with a domain that is not ONNX's own "com.example.Conv".
std::string OperatorName(const onnx::NodeProto& node);

// "my.Gelu", with its overload behind a colon.
std::string FunctionName(const onnx::FunctionProto& function);

// The node's name; where it has none, that of its first output.
std::string DisplayName(const onnx::NodeProto& node);

// Names of nodes by operator.
using NodesByOperator = std::map<std::string, std::vector<std::string>>;

// Operators that neither the file's version of ONNX nor the model itself defines.
NodesByOperator UnknownOperators(const onnx::ModelProto& model);

// What to do about one of them: another opset, another spelling; empty where nothing is near.
std::string HelpForUnknown(const std::string& op, const onnx::ModelProto& model);

enum class Support { kFull, kNoGradient, kNone };

// What we have of an operator that ONNX defines and no function of the model replaces. kNone: neither a row nor other
// operators to write it with. kNoGradient: a row that would need a gradient and has none.
Support SupportOf(const onnx::NodeProto& node);

// Whether nothing flows back through the operator, because its outputs are integers or piecewise constant.
bool StopsGradients(const onnx::NodeProto& node);

}  // namespace gradloom
