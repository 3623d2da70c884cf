// Operators with windows other than a plain convolution's.
//
//   gradloom.Im2Col(image) {shape: of the columns, block, dilations, pads, strides}: the adjoint of Col2Im
//   gradloom.DeformConvGrad(X, W, offset, B, mask, dY) {wanted, and DeformConv's} -> gradients of the inputs listed in wanted
//   gradloom.RoiAlignGrad(X, rois, images, dY) {RoiAlign's} -> dX
//   gradloom.MaxRoiPoolGrad(X, rois, dY) {MaxRoiPool's} -> dX
#include <algorithm>
#include <functional>
#include <limits>
#include <optional>

#include "compiler/ops/families.h"
#include "compiler/ops/gradients.h"
#include "compiler/ops/own_types.h"
#include "compiler/ops/sharding.h"
#include "runtime/base/checked.h"

namespace gradloom {
namespace {

void Col2ImGradient(GradientContext& c) {
  if (!c.needs(0)) return;
  Attributes attributes = c.attributes();
  attributes.set("block", ConstantInts(c, 2));
  attributes.set("shape", c.b.shape(c.in(0)).dims());
  c.set(0, c.b.Own("Im2Col", {c.grad(0)}, attributes));
}

void Im2ColGradient(GradientContext& c) {
  if (!c.needs(0)) return;
  GraphBuilder& b = c.b;
  const Shape image = b.shape(c.in(0));
  Attributes attributes = c.attributes();
  const std::vector<int64_t> block = attributes.Ints("block");
  attributes.erase("block");
  attributes.erase("shape");
  c.set(0, b.Op("Col2Im", {c.grad(0), b.Ints({image.begin() + 2, image.end()}), b.Ints(block)}, attributes));
}

constexpr int kDeformOperands = 5;

void DeformConvGradient(GradientContext& c) {
  std::vector<int64_t> wanted;
  std::vector<ValueId> inputs;
  for (int i = 0; i < kDeformOperands; ++i) {
    inputs.push_back(c.in(i));
    if (c.needs(i)) wanted.push_back(i);
  }
  if (wanted.empty()) return;
  inputs.push_back(c.grad(0));
  Attributes attributes = c.attributes();
  attributes.set("wanted", wanted);
  const std::vector<ValueId> made =
      c.b.Ops("DeformConvGrad", kGradloomDomain, inputs, static_cast<int>(wanted.size()), std::move(attributes));
  for (size_t i = 0; i < wanted.size(); ++i) c.set(static_cast<int>(wanted[i]), made[i]);
}

std::vector<ValueType> InferDeformConvGrad(const Graph& graph, const Node& node) {
  ExpectArity(node, kDeformOperands + 1, kDeformOperands + 1, kDeformOperands);
  ExpectRank(graph, node, 0, 4);
  ExpectRank(graph, node, 1, 4);
  ExpectRank(graph, node, kDeformOperands, 4);
  std::vector<ValueType> types;
  for (int64_t i : node.attributes.Ints("wanted")) {
    if (i < 0 || i >= kDeformOperands)
      throw Error(ErrorCode::kAttr, "attribute 'wanted' has the invalid input index " + std::to_string(i), Describe(node));
    types.push_back(InputType(graph, node, static_cast<int>(i)));
  }
  return types;
}

// Filters are the same for all samples; their gradients are summed over samples.
void ShardDeformConvGrad(ShardQuery& query) { ShardWantedGradients(query, "0.0.0", "0"); }

// Only the images have a gradient; boxes are data.
void RoiAlignGradient(GradientContext& c) {
  if (c.needs(0)) c.set(0, c.b.Own("RoiAlignGrad", {c.in(0), c.in(1), c.in(2), c.grad(0)}, c.attributes()));
}

void MaxRoiPoolGradient(GradientContext& c) {
  if (c.needs(0)) c.set(0, c.b.Own("MaxRoiPoolGrad", {c.in(0), c.in(1), c.grad(0)}, c.attributes()));
}

// The gradient of the result for the regions is the last operand.
template <int kOperands>
std::vector<ValueType> InferLikeImages(const Graph& graph, const Node& node) {
  ExpectArity(node, kOperands, kOperands, 1);
  ExpectRank(graph, node, 0, 4);
  ExpectRank(graph, node, kOperands - 1, 4);
  return {InputType(graph, node, 0)};
}

// Returns the shape that follows from the attributes and the operand. Kernels rely on these checks.
Shape PlainUnpooled(const Graph& graph, const Node& node) {
  Shape shape = InputType(graph, node, 0).shape;
  const auto are = [](const std::vector<int64_t>& values, size_t count, int64_t least) {
    const auto fits = [&](int64_t value) { return value >= least && value <= std::numeric_limits<int32_t>::max(); };
    return values.size() == count && std::all_of(values.begin(), values.end(), fits);
  };
  const std::vector<int64_t> kernel = node.attributes.Ints("kernel_shape");
  const size_t rank = kernel.size();
  const std::vector<int64_t> strides = node.attributes.Ints("strides", std::vector<int64_t>(rank, 1)),
                             pads = node.attributes.Ints("pads", std::vector<int64_t>(2 * rank, 0));
  if (static_cast<size_t>(shape.rank()) != rank + 2 || !are(kernel, rank, 1) || !are(strides, rank, 1) || !are(pads, 2 * rank, 0))
    throw Error(ErrorCode::kAttr, "kernel_shape, strides and pads do not match the input " + shape.ToString(), Describe(node));
  for (size_t d = 0; d < rank; ++d) {
    int64_t& extent = shape[static_cast<int>(d) + 2];
    const auto reach = CheckedMul(extent - 1, strides[d]);
    const auto unpooled = reach ? CheckedAdd(*reach, kernel[d] - pads[d] - pads[rank + d]) : std::nullopt;
    if (!unpooled || *unpooled < 0) throw Error(ErrorCode::kShape, "no output follows from kernel_shape, strides and pads", Describe(node));
    extent = *unpooled;
  }
  return shape;
}

std::vector<ValueType> InferMaxUnpool(const Graph& graph, const Node& node) {
  const DType dtype = InputType(graph, node, 0).dtype;
  if (InputType(graph, node, 1).shape != InputType(graph, node, 0).shape)
    throw Error(ErrorCode::kShape, "the indices of MaxUnpool must have the shape of its input", Describe(node));
  const Shape plain = PlainUnpooled(graph, node);
  if (!HasInput(node, 2)) return {{dtype, plain}};
  const Tensor* given = graph.data(node.inputs[2]);
  if (given == nullptr) throw Error(ErrorCode::kUnsupported, "output_shape of MaxUnpool must be constant", Describe(node));
  const std::vector<int64_t> wanted = IntValues(given->view());
  if (!std::equal(plain.begin(), plain.end(), wanted.begin(), wanted.end(), std::less_equal<>()))
    throw Error(ErrorCode::kShape, "output_shape of MaxUnpool cannot hold " + plain.ToString(), Describe(node));
  return {{dtype, Shape(wanted)}};
}

void MaxUnpoolGradient(GradientContext& c) {
  if (!c.needs(0)) return;
  GraphBuilder& b = c.b;
  const Shape plain = PlainUnpooled(b.graph(), c.node()), x = b.shape(c.in(0));
  const std::vector<int64_t> begin(static_cast<size_t>(plain.rank()), 0);
  const ValueId within = plain == b.shape(c.grad(0)) ? c.grad(0) : b.Op("Slice", {c.grad(0), b.Ints(begin), b.Ints(plain.dims())});
  const ValueId flat = b.Reshape(within, Shape{plain.elements()}), places = b.Reshape(c.in(1), Shape{x.elements()});
  c.set(0, b.Reshape(b.Op("GatherElements", {flat, places}, {{"axis", int64_t{0}}}), x));
}

const Op kOps[] = {
    {.name = "Col2Im", .domain = "", .since_version = 18, .gradient = Col2ImGradient, .samples = "0..>0"},
    {.name = "Im2Col", .domain = kGradloomDomain, .gradient = Im2ColGradient, .infer = InferFromShapeAttribute<0>, .samples = "0>0"},
    {.name = "DeformConv", .domain = "", .since_version = 22, .gradient = DeformConvGradient, .samples = "0.0.0>0"},
    {.name = "DeformConvGrad", .domain = kGradloomDomain, .infer = InferDeformConvGrad, .shard = ShardDeformConvGrad},
    // Boxes contain the index of their image: a batch can be divided if these indices count samples (sample_numbers.cc).
    {.name = "RoiAlign", .domain = "", .since_version = 22, .gradient = RoiAlignGradient},
    {.name = "RoiAlignGrad", .domain = kGradloomDomain, .infer = InferLikeImages<4>},
    {.name = "MaxRoiPool", .domain = "", .since_version = 22, .gradient = MaxRoiPoolGradient},
    {.name = "MaxRoiPoolGrad", .domain = kGradloomDomain, .infer = InferLikeImages<3>},
    // Its indices count samples too.
    {.name = "MaxUnpool", .domain = "", .since_version = 22, .gradient = MaxUnpoolGradient, .infer = InferMaxUnpool},
};

}  // namespace

std::span<const Op> RegionOfInterestOps() { return kOps; }

}  // namespace gradloom
