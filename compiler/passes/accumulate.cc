#include "compiler/passes/accumulate.h"

namespace gradloom {
namespace {

ValueId SumState(GraphBuilder& b, ValueId parameter) {
  const Value& value = b.graph().value(parameter);
  return b.graph().AddValue(value.name + "/grad_sum", value.dtype, value.shape, Role::kState);
}

}  // namespace

void AddAccumulation(GraphBuilder& b, const std::map<ValueId, ValueId>& gradients, int64_t batches) {
  for (const auto& [parameter, gradient] : gradients) {
    const ValueId sum = SumState(b, parameter);
    const ValueId next = b.Add(sum, b.Scale(gradient, 1.0 / static_cast<double>(batches)));
    b.graph().value(next).next_of = sum;
  }
}

std::map<ValueId, ValueId> TakeAccumulated(GraphBuilder& b, std::span<const ValueId> parameters) {
  std::map<ValueId, ValueId> gradients;
  for (ValueId parameter : parameters) {
    const ValueId sum = SumState(b, parameter);
    gradients.emplace(parameter, sum);
    const ValueType type = b.graph().type(sum);
    // Never an alias of a scalar constant: Expand of equal shapes would be no node at all.
    const ValueId zero = b.Op("Mul", {b.Zeros({type.dtype, Shape{}}), b.Zeros(type)});
    b.graph().value(zero).next_of = sum;
  }
  return gradients;
}

}  // namespace gradloom
