// Groups of pointwise operators as a single operator: created by fuse_pointwise, after differentiation.
//
//   gradloom.Fused(inputs...) {functions, operands, constants, results, dtypes} -> (results...)
//     kernels/catalog/pointwise.h describes the program. Every result has the broadcast shape of all inputs, and the type given by `dtypes`
//     (ONNX's numbers).
#include "compiler/ops/families.h"
#include "compiler/ops/own_types.h"
#include "runtime/base/error.h"

namespace gradloom {
namespace {

std::vector<ValueType> InferFused(const Graph& graph, const Node& node) {
  Shape shape;
  for (int i = 0; i < static_cast<int>(node.inputs.size()); ++i) {
    const auto wider = Broadcast(shape, InputType(graph, node, i).shape);
    if (!wider) throw Error(ErrorCode::kShape, "the fused operands do not broadcast", Describe(node));
    shape = *wider;
  }
  const std::vector<int64_t> dtypes = node.attributes.Ints("dtypes");
  if (dtypes.size() != node.outputs.size()) throw Error(ErrorCode::kArity, "each result must have a type", Describe(node));
  std::vector<ValueType> types;
  for (int64_t dtype : dtypes) types.push_back({static_cast<DType>(dtype), shape});
  return types;
}

// One flop per element and function.
Cost FusedCost(const Graph& graph, const Node& node) {
  Cost cost;
  const auto add_bytes = [&](ValueId id) {
    cost.bytes += static_cast<double>(graph.value(id).shape.elements()) * static_cast<double>(DTypeBytes(graph.value(id).dtype));
  };
  ForEachUse(node, add_bytes);
  for (ValueId id : node.outputs) add_bytes(id);
  cost.flops =
      static_cast<double>(node.attributes.Strings("functions").size()) * static_cast<double>(graph.value(node.outputs[0]).shape.elements());
  return cost;
}

const Op kOps[] = {{.name = "Fused", .domain = kGradloomDomain, .infer = InferFused, .cost = FusedCost}};

}  // namespace

std::span<const Op> FusedOps() { return kOps; }

}  // namespace gradloom
