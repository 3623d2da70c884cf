// GridSample is linear in X and, between the points where taps change, differentiable in the grid. Its gradient is an operator of ours; the
// attribute "wanted" lists the inputs whose gradients it computes.
#include "compiler/ops/families.h"
#include "compiler/ops/gradients.h"
#include "compiler/ops/own_types.h"
#include "compiler/ops/sharding.h"

namespace gradloom {
namespace {

void GridSampleGradient(GradientContext& context) {
  Attributes attributes = context.attributes();
  std::vector<int64_t> wanted;
  for (int i : {0, 1}) {
    if (context.needs(i)) wanted.push_back(i);
  }
  if (wanted.empty()) return;
  attributes.set("wanted", wanted);
  const std::vector<ValueId> gradients = context.b.Ops("GridSampleGrad", kGradloomDomain, {context.in(0), context.in(1), context.grad(0)},
                                                       static_cast<int>(wanted.size()), std::move(attributes));
  for (size_t i = 0; i < wanted.size(); ++i) context.set(static_cast<int>(wanted[i]), gradients[i]);
}

std::vector<ValueType> GridSampleGradTypes(const Graph& graph, const Node& node) {
  const std::vector<int64_t> wanted = node.attributes.Ints("wanted");
  ExpectArity(node, 3, 3, static_cast<int>(wanted.size()));
  ExpectFloating(graph, node, 0);
  const ValueType x = InputType(graph, node, 0), grid = InputType(graph, node, 1);
  if (x.shape.rank() < 3 || x.shape.rank() > 5 || grid.shape.rank() != x.shape.rank() || grid.shape[0] != x.shape[0] ||
      grid.shape[grid.shape.rank() - 1] != x.shape.rank() - 2) {
    throw Error(ErrorCode::kShape, "X " + x.ToString() + " and grid " + grid.ToString() + " do not match", Describe(node));
  }
  Shape y{x.shape[0], x.shape[1]};
  for (int axis = 1; axis + 1 < grid.shape.rank(); ++axis) y.push_back(grid.shape[axis]);
  ExpectInput(graph, node, 2, {x.dtype, y});
  std::vector<ValueType> types;
  for (int64_t i : wanted) {
    if (i != 0 && i != 1)
      throw Error(ErrorCode::kAttr, "attribute 'wanted' has the invalid input index " + std::to_string(i), Describe(node));
    types.push_back(i == 0 ? x : grid);
  }
  return types;
}

void ShardGridSampleGrad(ShardQuery& query) { ShardWantedGradients(query, "00", "0"); }

// One product and one sum for each tap of each sampled element; the gradient needs that for each operand.
Cost SampleCost(const Graph& graph, const Node& node) {
  const bool backward = node.op == "GridSampleGrad";
  const Shape& y = graph.value(backward ? node.inputs[2] : node.outputs[0]).shape;
  const std::string mode = node.attributes.String("mode", "linear");
  const int along = mode == "nearest" ? 1 : mode == "cubic" ? 4 : 2;
  double taps = 1;
  for (int axis = 2; axis < y.rank(); ++axis) taps *= along;
  const double times = backward ? static_cast<double>(node.attributes.Ints("wanted").size()) : 1;
  return CostWithFlops(graph, node, 2 * times * taps * static_cast<double>(y.elements()));
}

constexpr Op kOps[] = {
    {.name = "GridSample", .since_version = 22, .gradient = GridSampleGradient, .cost = SampleCost, .samples = "00>0"},
    {.name = "GridSampleGrad", .domain = kGradloomDomain, .infer = GridSampleGradTypes, .cost = SampleCost, .shard = ShardGridSampleGrad},
};

}  // namespace

std::span<const Op> GridSampleOps() { return kOps; }

}  // namespace gradloom
