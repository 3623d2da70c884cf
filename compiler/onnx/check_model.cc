#include "compiler/onnx/check_model.h"

#include <map>

#include "compiler/graph/graph.h"
#include "runtime/base/error.h"

namespace gradloom {
namespace {

// ir_version of the newest ONNX that this was written against.
constexpr int64_t kNewestIrVersion = onnx::IR_VERSION;
constexpr int64_t kOldestOpset = 7;

class Checker {
 public:
  Checker(onnx::ModelProto& model, const std::string& where, const ModelLimits& limits, std::vector<std::string>& warnings)
      : model_(model), where_(where), limits_(limits), warnings_(warnings) {}

  void Run() {
    if (!model_.has_graph()) Fail(ErrorCode::kSchema, "the model has no graph");
    if (model_.ir_version() <= 0) Fail(ErrorCode::kSchema, "the model has no ir_version");
    if (model_.ir_version() > kNewestIrVersion) {
      Fail(ErrorCode::kVersion,
           "the model has ir_version " + std::to_string(model_.ir_version()) + ", the newest known is " + std::to_string(kNewestIrVersion),
           "export the model for an older ONNX");
    }
    CheckOpsets();
  }

 private:
  [[noreturn]] void Fail(ErrorCode code, const std::string& message, const std::string& help = "") {
    throw Error(code, message, where_, help);
  }

  void CheckOpsets() {
    if (model_.opset_import().empty()) Fail(ErrorCode::kSchema, "the model imports no operator set");
    std::map<std::string, int64_t> seen;
    for (const auto& opset : model_.opset_import()) {
      const std::string domain = opset.domain() == "ai.onnx" ? "" : opset.domain();
      if (!seen.emplace(domain, opset.version()).second) {
        Fail(ErrorCode::kSchema, "the model imports the domain '" + Escaped(domain) + "' twice");
      }
      if (domain.empty() && (opset.version() < kOldestOpset || opset.version() > kOpset)) {
        Fail(ErrorCode::kVersion,
             "the model uses opset " + std::to_string(opset.version()) + "; supported are " + std::to_string(kOldestOpset) + " to " +
                 std::to_string(kOpset),
             opset.version() > kOpset ? "export it for opset " + std::to_string(kOpset) + " or older" : "export it for a newer opset");
      }
    }
  }

  onnx::ModelProto& model_;
  const std::string& where_;
  const ModelLimits& limits_;
  std::vector<std::string>& warnings_;
};

}  // namespace

void CheckModel(onnx::ModelProto& model, const std::string& where, const ModelLimits& limits, std::vector<std::string>& warnings) {
  Checker(model, where, limits, warnings).Run();
}

}  // namespace gradloom
