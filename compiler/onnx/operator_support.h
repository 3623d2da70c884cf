// Which of a model's operators are defined by ONNX, by the model's own functions, and supported by Gradloom. Private to compiler/onnx.
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

  // The function that a node calls, or null.
  const onnx::FunctionProto* Find(const onnx::NodeProto& node) const;

 private:
  std::unordered_map<std::string, const onnx::FunctionProto*> functions_;
};

// Calls `f` for every node of the model, including functions and nested graphs, with the operator set versions in force.
void ForEachNodeOf(const onnx::ModelProto& model, const std::function<void(const onnx::NodeProto&, const OpsetVersions&)>& f);

// "Conv", or "com.example.Conv" for a domain other than ONNX's own.
std::string OperatorName(const onnx::NodeProto& node);

// "my.Gelu"; an overload follows after a colon.
std::string FunctionName(const onnx::FunctionProto& function);

// The node's name, or the name of its first output if it has none.
std::string DisplayName(const onnx::NodeProto& node);

// Names of nodes by operator.
using NodesByOperator = std::map<std::string, std::vector<std::string>>;

// Operators that neither the file's version of ONNX nor the model defines.
NodesByOperator UnknownOperators(const onnx::ModelProto& model);

// What the user can do about such an operator: another opset, another spelling; empty if nothing similar exists.
std::string HelpForUnknown(const std::string& op, const onnx::ModelProto& model);

enum class Support { kFull, kNoGradient, kNone };

// How far an operator of ONNX is supported that no function of the model replaces. kNone: there is neither a row for it nor an expansion
// into other operators. kNoGradient: it has a row that needs a gradient rule and has none.
Support SupportOf(const onnx::NodeProto& node);

// Whether no gradient flows through the operator because its outputs are integers or piecewise constant.
bool StopsGradients(const onnx::NodeProto& node);

}  // namespace gradloom
