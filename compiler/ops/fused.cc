// Groups of pointwise operators as a single operator: created by fuse_pointwise, after differentiation.
//
//   gradloom.Fused(inputs...) {functions, operands, constants, results, dtypes} -> (results...)
//     kernels/catalog/pointwise.h describes the program. Every result has the broadcast shape of all inputs, and the type given by `dtypes`
//     (ONNX's numbers).
//
//   gradloom.FusedTensors(inputs...) {Fused's, tensors} -> (results...)
//     The program for each of several groups of tensors, whose operands follow each other. In a group, every input has the shape of the
//     results or a single element. Created by join_pointwise for one launch of a GPU.
#include "compiler/ops/families.h"
#include "compiler/ops/gradients.h"
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

std::vector<ValueType> InferFusedTensors(const Graph& graph, const Node& node) {
  const int64_t tensors = node.attributes.Int("tensors", 0);
  const auto inputs = static_cast<int64_t>(node.inputs.size()), outputs = static_cast<int64_t>(node.outputs.size());
  const std::vector<int64_t> dtypes = node.attributes.Ints("dtypes");
  if (tensors < 1 || inputs % tensors != 0 || outputs != tensors * static_cast<int64_t>(dtypes.size()))
    throw Error(ErrorCode::kArity, "the operands are not groups for 'tensors' = " + std::to_string(tensors), Describe(node));
  std::vector<ValueType> types;
  for (int64_t tensor = 0; tensor < tensors; ++tensor) {
    Shape shape;
    for (int64_t i = tensor * (inputs / tensors); i < (tensor + 1) * (inputs / tensors); ++i) {
      const Shape of = InputType(graph, node, static_cast<int>(i)).shape;
      const auto wider = Broadcast(shape, of);
      if (!wider || (*wider != of && of.elements() != 1) || (*wider != shape && shape.elements() != 1))
        throw Error(ErrorCode::kShape, "the fused operands of a group differ in shape", Describe(node));
      shape = *wider;
    }
    for (int64_t dtype : dtypes) types.push_back({static_cast<DType>(dtype), shape});
  }
  return types;
}

// One flop per element and function.
Cost FusedCost(const Graph& graph, const Node& node) {
  double flops = 0;
  const int64_t tensors = node.attributes.Int("tensors", 1);
  for (size_t k = 0; k < node.outputs.size(); k += node.outputs.size() / static_cast<size_t>(tensors)) {
    flops += static_cast<double>(node.attributes.Strings("functions").size()) *
             static_cast<double>(graph.value(node.outputs[k]).shape.elements());
  }
  return CostWithFlops(graph, node, flops);
}

const Op kOps[] = {
    {.name = "Fused", .domain = kGradloomDomain, .infer = InferFused, .cost = FusedCost},
    {.name = "FusedTensors", .domain = kGradloomDomain, .infer = InferFusedTensors, .cost = FusedCost},
};

}  // namespace

std::span<const Op> FusedOps() { return kOps; }

}  // namespace gradloom
