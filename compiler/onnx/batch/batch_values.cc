#include "compiler/onnx/batch/batch_values.h"

#include <algorithm>
#include <string>

namespace gradloom {
namespace {

constexpr int64_t kMaxNumbers = 64;
constexpr const char* kExportedFor = "the file was exported for a batch size of ";

}  // namespace

bool IsDraw(const Node& node) {
  return IsOneOf(node, {"RandomUniform", "RandomUniformLike", "RandomNormal", "RandomNormalLike", "Bernoulli"});
}

std::vector<int64_t> NumbersOf(Emitter& emitter, ValueId id) {
  if (id == kNoValue) return {};
  const Value& value = emitter.graph().value(id);
  if (value.dtype != DType::kInt64 || value.shape.rank() != 1 || value.shape.elements() > kMaxNumbers) return {};
  const Tensor* data = emitter.Constant(emitter.Computed(id));
  if (data == nullptr) return {};
  const auto values = data->as<int64_t>();
  return {values.begin(), values.end()};
}

bool IsOneOf(const Node& node, std::initializer_list<const char*> ops) {
  return node.domain.empty() && std::any_of(ops.begin(), ops.end(), [&](const char* op) { return node.op == op; });
}

Error BatchRefusal(int64_t declared_batch, const std::string& where, const std::string& why) {
  const std::string declared = std::to_string(declared_batch);
  return {ErrorCode::kShape, kExportedFor + declared + " and depends on it here: " + why, where,
          "export the model with a dynamic batch (torch.onnx.export: dynamic_shapes or dynamic_axes for axis 0 of its inputs), or use "
          "--batch " +
              declared + " with a number of samples that is a multiple of it"};
}

bool IsBatchRefusal(const Error& error) { return error.message().starts_with(kExportedFor); }

}  // namespace gradloom
