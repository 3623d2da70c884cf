// Conv and ConvTranspose, and the two gradients of a convolution as operators of our own:
//
//   gradloom.ConvGradInput(dy, w) {kernel_shape, strides, dilations, pads, group, shape} -> dx of `shape`
//   gradloom.ConvGradWeight(x, dy) {the same} -> dw of `shape`
//
// A transposed convolution is ConvGradInput with a bias, so each of the two operators is used in the gradient of the other.
#include <algorithm>

#include "compiler/ops/families.h"
#include "compiler/ops/gradients.h"
#include "compiler/ops/own_types.h"
#include "compiler/ops/sharding.h"
#include "runtime/base/windows.h"

namespace gradloom {
namespace {

std::vector<int64_t> KernelExtents(const Shape& weights) { return {weights.begin() + 2, weights.end()}; }

Attributes GeometryOf(const Windows& windows, int64_t groups) {
  Attributes attributes = windows.ToAttributes();
  attributes.set("group", groups);
  return attributes;
}

ValueId GradInput(GraphBuilder& b, ValueId dy, ValueId w, Attributes geometry, const Shape& shape) {
  geometry.set("shape", shape.dims());
  return b.Own("ConvGradInput", {dy, w}, std::move(geometry));
}

ValueId GradWeight(GraphBuilder& b, ValueId x, ValueId dy, Attributes geometry, const Shape& shape) {
  geometry.set("shape", shape.dims());
  return b.Own("ConvGradWeight", {x, dy}, std::move(geometry));
}

// Returns the sum over samples and spatial axes, per channel.
ValueId GradBias(GraphBuilder& b, ValueId dy) {
  std::vector<int64_t> axes{0};
  for (int axis = 2; axis < b.shape(dy).rank(); ++axis) axes.push_back(axis);
  return b.ReduceSum(dy, axes, /*keepdims=*/false);
}

void ConvGradient(GradientContext& c) {
  const Shape x = c.b.shape(c.in(0)), w = c.b.shape(c.in(1));
  const Attributes geometry = GeometryOf(WindowsOf(c.attributes(), x, KernelExtents(w)), c.attributes().Int("group", 1));
  if (c.needs(0)) c.set(0, GradInput(c.b, c.grad(0), c.in(1), geometry, x));
  if (c.needs(1)) c.set(1, GradWeight(c.b, c.in(0), c.grad(0), geometry, w));
  if (c.needs(2)) c.set(2, GradBias(c.b, c.grad(0)));
}

// The gradient of y = ConvGradInput(x, w), which is linear in both.
void TransposedGradient(GradientContext& c, const Attributes& geometry) {
  if (c.needs(0)) c.set(0, c.b.Op("Conv", {c.grad(0), c.in(1)}, geometry));
  if (c.needs(1)) c.set(1, GradWeight(c.b, c.grad(0), c.in(0), geometry, c.b.shape(c.in(1))));
}

void ConvTransposeGradient(GradientContext& c) {
  const Shape x = c.b.shape(c.in(0)), w = c.b.shape(c.in(1)), y = c.b.shape(c.out(0));
  const Windows windows = TransposedWindowsOf(c.attributes(), x, y, KernelExtents(w));
  TransposedGradient(c, GeometryOf(windows, c.attributes().Int("group", 1)));
  if (c.needs(2)) c.set(2, GradBias(c.b, c.grad(0)));
}

Attributes WithoutShape(Attributes attributes) {
  attributes.erase("shape");
  return attributes;
}

void ConvGradInputGradient(GradientContext& c) { TransposedGradient(c, WithoutShape(c.attributes())); }

// The gradient of dw = ConvGradWeight(x, dy), which is linear in both.
void ConvGradWeightGradient(GradientContext& c) {
  const Attributes geometry = WithoutShape(c.attributes());
  if (c.needs(0)) c.set(0, GradInput(c.b, c.in(1), c.grad(0), geometry, c.b.shape(c.in(0))));
  if (c.needs(1)) c.set(1, c.b.Op("Conv", {c.in(0), c.grad(0)}, geometry));
}

// Two flops for each tap of each output of the convolution, in all three directions.
double ConvFlops(const Shape& weights, const Shape& y) {
  const double taps = static_cast<double>(weights.elements()) / static_cast<double>(std::max<int64_t>(weights[0], 1));
  return 2 * taps * static_cast<double>(y.elements());
}

Cost ConvCost(const Graph& graph, const Node& node) {
  return CostWithFlops(graph, node, ConvFlops(graph.value(node.inputs[1]).shape, graph.value(node.outputs[0]).shape));
}

// ConvTranspose and ConvGradInput: the first input takes the role of the convolution's output.
Cost TransposedCost(const Graph& graph, const Node& node) {
  return CostWithFlops(graph, node, ConvFlops(graph.value(node.inputs[1]).shape, graph.value(node.inputs[0]).shape));
}

Cost GradWeightCost(const Graph& graph, const Node& node) {
  return CostWithFlops(graph, node, ConvFlops(graph.value(node.outputs[0]).shape, graph.value(node.inputs[1]).shape));
}

// Filters per sample for one image that all samples share, in one group: the samples lie along the filters and along the channels of the
// result, of which the image's gradient is a sum. Returns whether the node is such a convolution.
template <int second, int out>
bool ShardSharedImage(ShardQuery& query) {
  const auto of_each = [&](int i, int axis) {  // the positions of each sample along the axis; 0 if it is not divided there
    const Shard given = query.given(i);
    return given.split() && given.axis == axis ? given.InnerOf(query.shape(i)[axis], query.batch()) : 0;
  };
  const std::string& op = query.node().op;
  const int64_t filters = of_each(1, second);
  if (filters == 0) return false;
  if (op == "ConvGradInput" && of_each(0, 1) == filters) {
    query.set(0, Shard::Partial());
    return true;
  }
  if ((op != "Conv" && op != "ConvGradWeight") || !query.given(0).whole() || (query.has(2) && of_each(2, 0) != filters)) return false;
  query.set(0, Shard::Split(out, filters));
  return true;
}

// Filters per sample: the batch is along the channels of one image, as groups, along axis `second` of operand 1, and along axis `out` of
// the result. Otherwise uses the samples of the operator's row.
template <int second, int out>
void ShardGroups(ShardQuery& query) {
  const auto lies = [&](int i, int axis) { return query.given(i).split() && query.given(i).axis == axis; };
  if (query.attributes().Int("group", 1) == 1 && ShardSharedImage<second, out>(query)) return;
  if (!lies(0, 1) || !lies(1, second) || (query.has(2) && !lies(2, 0))) {
    return ShardSamples(query, FindOp(query.node().domain, query.node().op)->samples);
  }
  const int64_t batch = query.batch(), groups = query.attributes().Int("group", 1);
  bool samples = groups % batch == 0;  // whether each sample is contiguous
  for (int i = 0; i < query.num_inputs(); ++i) {
    if (!query.has(i)) continue;
    const int64_t extent = query.shape(i)[query.given(i).axis];
    samples = samples && query.given(i).InnerOf(extent, batch) * batch == extent;
  }
  if (!samples) query.Refuse("its channel groups do not match the samples");
  query.set(0, Shard::Split(out, query.out_shape(0)[out] / batch));
}

// onnx's own inference adds output_padding to extents that auto_pad fixes, and gives up where output_shape is smaller than the input.
std::vector<ValueType> InferConvTranspose(const Graph& graph, const Node& node) {
  const ValueType x = InputType(graph, node, 0), w = InputType(graph, node, 1);
  const int64_t groups = node.attributes.Int("group", 1);
  if (w.shape.rank() != x.shape.rank() || x.shape.rank() < 3 || groups < 1 || x.shape[1] != w.shape[0])
    throw Error(ErrorCode::kShape, "filters " + w.shape.ToString() + " do not fit the input " + x.shape.ToString());
  std::vector<int64_t> extents{x.shape[0], w.shape[1] * groups};
  const std::vector<int64_t> kernel(w.shape.begin() + 2, w.shape.end());
  for (const int64_t extent : TransposedExtents(node.attributes, x.shape, kernel)) extents.push_back(extent);
  return {{x.dtype, Shape(extents)}};
}

const Op kOps[] = {
    {.name = "Conv",
     .domain = "",
     .traits = kProduct,
     .gradient = ConvGradient,
     .cost = ConvCost,
     .samples = "0..>0",
     .shard = ShardGroups<0, 1>},
    {.name = "ConvTranspose",
     .domain = "",
     .traits = kProduct,
     .gradient = ConvTransposeGradient,
     .infer = InferConvTranspose,
     .cost = TransposedCost,
     .samples = "0..>0",
     .shard = ShardGroups<0, 1>},
    {.name = "ConvGradInput",
     .domain = kGradloomDomain,
     .traits = kProduct,
     .gradient = ConvGradInputGradient,
     .infer = InferFromShapeAttribute<0>,
     .cost = TransposedCost,
     .samples = "0.>0",
     .shard = ShardGroups<0, 1>},
    {.name = "ConvGradWeight",
     .domain = kGradloomDomain,
     .traits = kProduct,
     .gradient = ConvGradWeightGradient,
     .infer = InferFromShapeAttribute<0>,
     .cost = GradWeightCost,
     .samples = "00>+",
     .shard = ShardGroups<1, 0>},
};

}  // namespace

std::span<const Op> ConvolutionOps() { return kOps; }

}  // namespace gradloom
