#include "compiler/ops/gradients.h"

namespace gradloom {

ValueId InAtLeast32Bits(GraphBuilder& b, ValueId value) { return Is16BitFloat(b.dtype(value)) ? b.Cast(value, DType::kFloat32) : value; }

ValueId TimesDerivative(GraphBuilder& b, ValueId gradient, ValueId derivative) {
  return b.Cast(b.Mul(InAtLeast32Bits(b, gradient), derivative), b.dtype(gradient));
}

ValueId DividedByCount(GraphBuilder& b, ValueId gradient, double count) {
  const DType dtype = b.dtype(gradient);
  return b.Cast(b.Scale(InAtLeast32Bits(b, gradient), 1.0 / count), dtype);
}

std::vector<int64_t> ConstantInts(const GradientContext& c, int i, const std::vector<int64_t>& absent) {
  if (c.in(i) == kNoValue) return absent;
  const Tensor* data = c.b.graph().data(c.in(i));
  if (data == nullptr || c.b.graph().value(c.in(i)).role != Role::kConst) {
    throw Error(ErrorCode::kUnsupported,
                "operand " + std::to_string(i) + " of '" + Escaped(c.node().op) + "' is not known at compile time");
  }
  return IntValues(data->view());
}

void ReshapeGradient(GradientContext& c) {
  if (c.needs(0)) c.set(0, c.b.Reshape(c.grad(0), Shape(c.b.shape(c.in(0)))));
}

void IdentityGradient(GradientContext& c) {
  if (c.needs(0)) c.set(0, c.grad(0));
}

Cost CostWithFlops(const Graph& graph, const Node& node, double flops) {
  Cost cost{.flops = flops};
  const auto add = [&](ValueId id) {
    if (id != kNoValue) cost.bytes += static_cast<double>(graph.value(id).bytes());
  };
  for (ValueId id : node.inputs) add(id);
  for (ValueId id : node.outputs) add(id);
  return cost;
}

}  // namespace gradloom
