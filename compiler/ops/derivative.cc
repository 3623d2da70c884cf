//   gradloom.Derivative(y, named..., at...) {wanted} -> (dy...): stands for ONNX's Gradient until passes/expand_derivatives replaces it.
//     There are as many `at` as `named`. y, as a function of the named values, which are taken as independent of each other, is
//     differentiated with respect to the first `wanted` of them, at the values `at`. The results are the gradients of the sum of y, with
//     the types of these values.
//   gradloom.StopGradient(x) -> y: x without a gradient; becomes an Identity after differentiation (passes/gradient/differentiate).
//   gradloom.MaskGradient(x, where) -> y: x, whose gradient is 0 where the bool is true; becomes an Identity of x at the same time.
//   gradloom.StageBoundary(x) -> y: x on another stage, while layers are fused (passes/devices/place_devices).
#include "compiler/ops/families.h"
#include "compiler/ops/gradients.h"
#include "compiler/ops/own_types.h"

namespace gradloom {
namespace {

std::vector<ValueType> InferDerivative(const Graph& graph, const Node& node) {
  const auto operands = static_cast<int>(node.inputs.size() - 1) / 2;
  const auto wanted = static_cast<int>(node.attributes.Int("wanted", 0));
  ExpectFloating(graph, node, 0);
  std::vector<ValueType> types;
  for (int i = 0; i < operands; ++i) {
    const ValueType type = InputType(graph, node, 1 + i);
    ExpectInput(graph, node, 1 + operands + i, type);
    if (i >= wanted) continue;
    ExpectFloating(graph, node, 1 + i);
    types.push_back(type);
  }
  return OutputTypes(node, std::move(types));
}

std::vector<ValueType> InferMaskGradient(const Graph& graph, const Node& node) {
  ExpectArity(node, 2, 2, 1);
  const ValueType type = InputType(graph, node, 0), where = InputType(graph, node, 1);
  if (where.dtype != DType::kBool || Broadcast(where.shape, type.shape) != type.shape)
    throw Error(ErrorCode::kShape, "input 1 of MaskGradient must be a bool that fits " + type.ToString() + ", got " + where.ToString(),
                Describe(node));
  return {type};
}

void MaskGradientGradient(GradientContext& c) {
  if (c.needs(0)) c.set(0, c.b.Where(c.in(1), c.b.Scalar(0, c.b.dtype(c.grad(0))), c.grad(0)));
}

const Op kOps[] = {
    {.name = "Derivative", .domain = kGradloomDomain, .infer = InferDerivative},
    {.name = "MaskGradient", .domain = kGradloomDomain, .traits = kPointwise, .gradient = MaskGradientGradient, .infer = InferMaskGradient},
    {.name = "StageBoundary", .domain = kGradloomDomain, .traits = kPointwise | kNoGradient, .infer = InferCopy},
    {.name = "StopGradient", .domain = kGradloomDomain, .traits = kPointwise | kNoGradient, .infer = InferCopy},
};

}  // namespace

std::span<const Op> DerivativeOps() { return kOps; }

}  // namespace gradloom
