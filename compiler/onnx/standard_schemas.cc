#include "compiler/onnx/standard_schemas.h"

#include <algorithm>
#include <iterator>
#include <mutex>
#include <tuple>

#include "onnx/defs/operator_sets.h"
#include "onnx/defs/operator_sets_ml.h"

namespace gradloom {
namespace {

struct StandardVersion {
  std::string_view domain, op;
  int opset = 0;  // the first one that has it
  onnx::OpSchema (*make)() = nullptr;
  const onnx::OpSchema* made = nullptr;
};

// By the names that ONNX's macros have for them.
constexpr std::string_view kDomainOfOnnx = "";
constexpr std::string_view kDomainOfOnnxML = "ai.onnx.ml";

// All versions, sorted. Neither this nor the schemas are destroyed when the process ends, since that takes time, too.
std::vector<StandardVersion>& StandardVersions() {
  static auto& versions = *[] {
    auto* all = new std::vector<StandardVersion>{
#define GRADLOOM_STANDARD_SCHEMA(set, opset, op) \
  {kDomainOf##set, #op, opset, &onnx::GetOpSchema<onnx::ONNX_OPERATOR_SET_SCHEMA_CLASS_NAME(set, opset, op)>},
#include "compiler/onnx/standard_schemas.inc"
#undef GRADLOOM_STANDARD_SCHEMA
    };
    std::sort(all->begin(), all->end(), [](const StandardVersion& a, const StandardVersion& b) {
      return std::tie(a.domain, a.op, a.opset) < std::tie(b.domain, b.op, b.opset);
    });
    return all;
  }();
  return versions;
}

}  // namespace

const onnx::OpSchema* StandardSchema(std::string_view domain, std::string_view op, int opset) {
  // The few operators of the preview domains have no such list.
  if (domain.starts_with("ai.onnx.preview")) return onnx::OpSchemaRegistry::Schema(std::string(op), opset, std::string(domain));
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  std::vector<StandardVersion>& all = StandardVersions();
  const auto newer =
      std::upper_bound(all.begin(), all.end(), std::tie(domain, op, opset),
                       [](const auto& wanted, const StandardVersion& v) { return wanted < std::tie(v.domain, v.op, v.opset); });
  if (newer == all.begin()) return nullptr;
  StandardVersion& version = *std::prev(newer);
  if (version.domain != domain || version.op != op) return nullptr;
  if (version.made == nullptr) {
    auto* const schema = new onnx::OpSchema(version.make());
    // What the registry does with it: parses the types of operands, and builds the body of a function.
    schema->Finalize();
    version.made = schema;
  }
  return version.made;
}

bool SchemaIsDeterministic(const onnx::OpSchema& schema) {
  const auto is_deterministic = [](const onnx::NodeProto& node, const onnx::FunctionProto& function) {
    int opset = 0;
    for (const auto& import : function.opset_import()) {
      if (import.domain() == node.domain()) opset = static_cast<int>(import.version());
    }
    const onnx::OpSchema* const inner = StandardSchema(node.domain(), node.op_type(), opset);
    return inner == nullptr || SchemaIsDeterministic(*inner);
  };
  if (schema.HasFunction() && !schema.HasContextDependentFunction()) {
    const onnx::FunctionProto& function = *schema.GetFunction();
    const auto each = [&](const onnx::NodeProto& node) { return is_deterministic(node, function); };
    if (std::all_of(function.node().begin(), function.node().end(), each)) return true;
  }
  // Without such a body, or with one that does not show it, the schema itself says so.
  return schema.GetNodeDeterminism() != onnx::OpSchema::NodeDeterminism::NonDeterministic;
}

const std::vector<std::string>& StandardOperators() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> sorted;
    for (const StandardVersion& version : StandardVersions()) {
      if (version.domain.empty() && (sorted.empty() || sorted.back() != version.op)) sorted.emplace_back(version.op);
    }
    return sorted;
  }();
  return names;
}

}  // namespace gradloom
