#include "compiler/passes/known_values.h"

#include <vector>

#include "compiler/ops/op.h"
#include "compiler/passes/schedule/choose_kernels.h"
#include "kernels/reference/reference.h"

namespace gradloom {

// Limits on the elements and operators of a value that is evaluated at compile time.
constexpr int64_t kMaxElements = int64_t{1} << 22;
constexpr int kMaxDepth = 32;

const Tensor* KnownValues::Of(ValueId id, int depth) const {
  if (id == kNoValue || graph_.value(id).shape.elements() > kMaxElements) return nullptr;
  if (graph_.value(id).role == Role::kConst) return graph_.data(id);
  if (match_.Producer(id) < 0 || depth == kMaxDepth) return nullptr;
  if (const auto found = known_.find(id); found != known_.end()) return found->second.defined() ? &found->second : nullptr;
  Tensor& known = known_[id];
  const Node& node = graph_.nodes[static_cast<size_t>(match_.Producer(id))];
  const Op* op = FindOp(node.domain, node.op);
  if (op == nullptr || op->has(kRandom) || !node.regions.empty() || node.outputs.size() != 1) return nullptr;
  if (FindReference(node.domain, node.op) == nullptr) return nullptr;
  std::vector<Tensor> inputs;
  for (ValueId input : node.inputs) {
    const Tensor* data = input == kNoValue ? nullptr : Of(input, depth + 1);
    if (input != kNoValue && data == nullptr) return nullptr;
    inputs.push_back(data == nullptr ? Tensor() : *data);
  }
  known = RunReference(CallOf(graph_, node, {}), inputs)[0];
  return &known;
}

std::optional<double> KnownValues::Uniform(ValueId id) const {
  const Tensor* const data = Of(id);
  if (data == nullptr || data->elements() == 0) return std::nullopt;
  const TensorView view = data->view();
  const double first = ElementAsDouble(view, 0);
  for (int64_t i = 1; i < data->elements(); ++i) {
    if (ElementAsDouble(view, i) != first) return std::nullopt;
  }
  return first;
}

}  // namespace gradloom
