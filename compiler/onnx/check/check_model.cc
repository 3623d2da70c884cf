#include "compiler/onnx/check/check_model.h"

#include <limits>
#include <map>
#include <set>

#include "compiler/graph/graph.h"
#include "compiler/onnx/check/check_functions.h"
#include "compiler/onnx/check/check_graph.h"
#include "compiler/onnx/operator_support.h"
#include "runtime/base/error.h"

namespace gradloom {
namespace {

// ir_version of the newest supported ONNX.
constexpr int64_t kNewestIrVersion = onnx::IR_VERSION;
constexpr int64_t kOldestOpset = 7;

class Checker {
 public:
  Checker(const onnx::ModelProto& model, const std::string& where, const ModelLimits& limits, std::vector<std::string>& warnings)
      : model_(model), where_(where), limits_(limits), warnings_(warnings) {}

  void Run() {
    if (!model_.has_graph()) Fail(ErrorCode::kSchema, "the model has no graph");
    if (model_.ir_version() <= 0) Fail(ErrorCode::kSchema, "the model has no ir_version");
    if (model_.ir_version() > kNewestIrVersion) {
      Fail(ErrorCode::kVersion,
           "the model has ir_version " + std::to_string(model_.ir_version()) + "; the newest supported is " +
               std::to_string(kNewestIrVersion),
           "export the model for an older ONNX");
    }
    if (model_.opset_import().empty()) Fail(ErrorCode::kSchema, "the model imports no operator set");
    CheckOpsets(model_.opset_import(), "the model");
    for (const auto& function : model_.functions())
      CheckOpsets(function.opset_import(), "function '" + Escaped(FunctionName(function)) + "'");
    CheckMetadata();
    CheckGraphs(model_, where_, limits_);
    CheckFunctions(model_, where_, limits_);
    if (model_.graph().name().empty()) warnings_.push_back("the graph has no name");
  }

 private:
  [[noreturn]] void Fail(ErrorCode code, const std::string& message, const std::string& help = "") {
    throw Error(code, message, where_, help);
  }

  void CheckOpsets(const google::protobuf::RepeatedPtrField<onnx::OperatorSetIdProto>& imports, const std::string& who) {
    std::map<std::string, int64_t> seen;
    for (const auto& opset : imports) {
      const std::string domain = opset.domain() == "ai.onnx" ? "" : opset.domain();
      const auto [first, fresh] = seen.emplace(domain, opset.version());
      // skl2onnx repeats the import of a domain.
      if (!fresh && first->second != opset.version()) {
        Fail(ErrorCode::kSchema, who + " imports the domain '" + Escaped(domain) + "' twice, at versions " + std::to_string(first->second) +
                                     " and " + std::to_string(opset.version()));
      }
      if (domain.empty() && (opset.version() < kOldestOpset || opset.version() > kOpset)) {
        Fail(ErrorCode::kVersion,
             who + " uses opset " + std::to_string(opset.version()) + "; supported are " + std::to_string(kOldestOpset) + " to " +
                 std::to_string(kOpset),
             opset.version() > kOpset ? "export it for opset " + std::to_string(kOpset) + " or older" : "export it for a newer opset");
      }
      if (opset.version() < 0 || opset.version() > std::numeric_limits<int>::max()) {
        Fail(ErrorCode::kVersion, who + " imports the domain '" + Escaped(domain) + "' at version " + std::to_string(opset.version()));
      }
    }
  }

  void CheckMetadata() {
    std::set<std::string> keys;
    for (const auto& entry : model_.metadata_props()) {
      if (!keys.insert(entry.key()).second)
        Fail(ErrorCode::kSchema, "the metadata_props have the key '" + Escaped(entry.key()) + "' twice");
    }
  }

  const onnx::ModelProto& model_;
  const std::string& where_;
  const ModelLimits& limits_;
  std::vector<std::string>& warnings_;
};

}  // namespace

void CheckModel(const onnx::ModelProto& model, const std::string& where, const ModelLimits& limits, std::vector<std::string>& warnings) {
  Checker(model, where, limits, warnings).Run();
}

}  // namespace gradloom
