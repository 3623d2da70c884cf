// BatchNormalization and LayerNormalization.
//
//   gradloom.BatchNormalization(x [N,C,...], scale, bias, mean, var, counts, count) {epsilon, momentum, training_mode} -> (y, mean, var)
//     ONNX's operator if not all elements are valid: counts is a bool mask that broadcasts to x and is the same for all channels; count
//     int64[] is the number of valid elements of a channel. The training view (compiler/passes/training_view) expands it.
//   gradloom.BatchNormTrain(x [N,C,...], scale [C], bias [C]) {epsilon} -> (y, mean [C], inv_std [C], var [C])
//     normalizes with the statistics of the batch; var is the biased variance
//   gradloom.BatchNormTrainGrad(dy, x, scale, mean, inv_std) -> (dx, dscale, dbias)
//   gradloom.MaskedBatchNormGrad(dy, more, y, x, scale, mean, inv_std, factor, offset) {low, high} -> (dx, dscale, dbias, g)
//     BatchNormTrainGrad of g, which is dy + more where low < y < high, and 0 elsewhere; x has float32 or 16 bits, and an attribute that is
//     absent is no bound. `more` is optional. Either y is given, and g is returned, or factor and offset are, of BatchNormLine, and nothing
//     else: then y is (x - mean) factor + offset, rounded to the type of x.
//   The same in two steps, for a batch whose samples are on several devices; `count`: elements per channel over the whole batch:
//   gradloom.BatchNormSums(x) -> float64 [2,C], sums of x and of its squares
//   gradloom.BatchNormStatistics(sums, scale) {epsilon, count} -> (mean, inv_std, var), of the type of scale
//   gradloom.BatchNormApply(x, scale, bias, sums) {epsilon, count} -> y
//   gradloom.BatchNormGradSums(dy, x, mean) -> float64 [2,C], sums of dy and of dy (x - mean)
//   gradloom.BatchNormGradApply(dy, x, scale, mean, inv_std, sums) {count} -> dx
//   gradloom.BatchNormGradParameters(sums, inv_std) -> (dscale, dbias)
//   gradloom.LayerNormGrad(dy, x, scale) {axis, epsilon} -> (dx, dscale, dbias)
//     recomputes mean and deviation, so nothing is kept from the forward pass; dy has the type of x, or a 16-bit type if that is float32
//   gradloom.LayerNormCast(x float32, scale, bias) {axis, epsilon, to} -> (y, y in the 16-bit type `to`)
//     LayerNormalization whose scale and bias are whole rows, and a cast of its result
//   gradloom.SumLayerNorm(a float32, b, scale, bias, inner_scale, inner_bias) {axis, epsilon, to, inner_epsilon}
//       -> (a + b, y, y in the 16-bit type `to`)
//     LayerNormCast of a sum; b has float32 or 16 bits. With inner_scale, LayerNormalization(a, inner_scale, inner_bias) takes the place
//     of a
//   gradloom.SumLayerNormGrad(dy, more, x, scale, addend) {axis, epsilon, to} -> (dx + addend, dscale, dbias, dx + addend in type `to`)
//     LayerNormGrad of float32 with the incoming gradient dy + more; dy has float32 or 16 bits, more and addend are float32 and optional
#include <algorithm>
#include <string>

#include "compiler/ops/families.h"
#include "compiler/ops/own_types.h"
#include "compiler/ops/sharding.h"

namespace gradloom {
namespace {

// Reshapes [C] to [1,C,1,...] for a tensor of this rank.
ValueId PerChannel(GraphBuilder& b, ValueId vector, int rank) {
  Shape shape(std::vector<int64_t>(static_cast<size_t>(rank), 1));
  shape[1] = b.shape(vector)[0];
  return b.Reshape(vector, shape);
}

ValueId SumPerChannel(GraphBuilder& b, ValueId x) {
  std::vector<int64_t> axes{0};
  for (int axis = 2; axis < b.shape(x).rank(); ++axis) axes.push_back(axis);
  return b.ReduceSum(x, axes, /*keepdims=*/false);
}

// The gradient of the inference form: y = (x - mean) * scale / sqrt(var + epsilon) + bias.
void BatchNormalizationGradient(GradientContext& c) {
  if (c.attributes().Int("training_mode", 0) == 1) {
    throw Error(ErrorCode::kInternal, "BatchNormalization in training mode is differentiated as gradloom.BatchNormTrain");
  }
  GraphBuilder& b = c.b;
  const int rank = b.shape(c.in(0)).rank();
  const DType dtype = b.dtype(c.in(4));
  const ValueId variance = b.Add(c.in(4), b.Scalar(c.attributes().Float("epsilon", 1e-5), dtype));
  const ValueId inv_std = b.Op("Reciprocal", {b.Op("Sqrt", {variance})});
  const ValueId slope = b.Mul(c.in(1), inv_std);
  // x may have a 16-bit type while the statistics are float32.
  const ValueId dy = b.Cast(c.grad(0), dtype);
  if (c.needs(0)) c.set(0, b.Cast(b.Mul(dy, PerChannel(b, slope, rank)), b.dtype(c.in(0))));
  const ValueId sum = c.needs(2) || c.needs(3) ? SumPerChannel(b, dy) : kNoValue;
  if (c.needs(2)) c.set(2, sum);
  if (c.needs(3)) c.set(3, b.Neg(b.Mul(sum, slope)));
  if (!c.needs(1) && !c.needs(4)) return;
  const ValueId centred = b.Sub(b.Cast(c.in(0), dtype), PerChannel(b, c.in(3), rank));
  const ValueId product = SumPerChannel(b, b.Mul(dy, centred));
  if (c.needs(1)) c.set(1, b.Mul(product, inv_std));
  // d inv_std / d var = -inv_std^3 / 2
  if (c.needs(4)) c.set(4, b.Scale(b.Mul(b.Mul(product, slope), b.Mul(inv_std, inv_std)), -0.5));
}

ValueId AddTo(GraphBuilder& b, ValueId sum, ValueId term) { return sum == kNoValue ? term : b.Add(sum, term); }

// The gradient of x through its mean and, with inv_std = (var + epsilon)^-1/2, through inv_std and var. Gradients of statistics broadcast
// to x; each statistic is computed over `count` elements.
struct ThroughStatistics {
  ValueId mean, inv_std;
  double count;

  ValueId Add(GraphBuilder& b, ValueId sum, ValueId x, ValueId dmean, ValueId dinv_std, ValueId dvar) const {
    if (dmean != kNoValue) sum = AddTo(b, sum, b.Expand(b.Scale(dmean, 1 / count), Shape(b.shape(x))));
    if (dinv_std != kNoValue) {
      const ValueId cubed = b.Mul(inv_std, b.Mul(inv_std, inv_std));
      dvar = AddTo(b, dvar, b.Scale(b.Mul(dinv_std, cubed), -0.5));
    }
    if (dvar != kNoValue) sum = AddTo(b, sum, b.Mul(b.Sub(x, mean), b.Scale(dvar, 2 / count)));
    return sum;
  }
};

void BatchNormTrainGradient(GradientContext& c) {
  GraphBuilder& b = c.b;
  ValueId dx = kNoValue;
  if (c.grad(0) != kNoValue) {
    const auto made = b.Ops("BatchNormTrainGrad", kGradloomDomain, {c.grad(0), c.in(0), c.in(1), c.out(1), c.out(2)}, 3);
    dx = made[0];
    if (c.needs(1)) c.set(1, made[1]);
    if (c.needs(2)) c.set(2, made[2]);
  }
  if (!c.needs(0)) return;
  const Shape shape = b.shape(c.in(0));
  const auto per_channel = [&](ValueId id) { return id == kNoValue ? kNoValue : PerChannel(b, id, shape.rank()); };
  const ThroughStatistics through{per_channel(c.out(1)), per_channel(c.out(2)),
                                  static_cast<double>(shape.elements() / std::max<int64_t>(1, shape[1]))};
  // x may have a 16-bit type while the statistics are float32.
  const DType dtype = b.dtype(c.out(1));
  const bool any = c.grad(1) != kNoValue || c.grad(2) != kNoValue || c.grad(3) != kNoValue;
  if (any) {
    dx = through.Add(b, dx == kNoValue ? dx : b.Cast(dx, dtype), b.Cast(c.in(0), dtype), per_channel(c.grad(1)), per_channel(c.grad(2)),
                     per_channel(c.grad(3)));
  }
  if (dx != kNoValue) c.set(0, b.Cast(dx, b.dtype(c.in(0))));
}

void LayerNormalizationGradient(GradientContext& c) {
  GraphBuilder& b = c.b;
  const Attributes attributes{{"axis", c.attributes().Int("axis", -1)}, {"epsilon", c.attributes().Float("epsilon", 1e-5)}};
  ValueId dx = kNoValue;
  if (c.grad(0) != kNoValue) {
    const auto made = b.Ops("LayerNormGrad", kGradloomDomain, {c.grad(0), c.in(0), c.in(1)}, 3, attributes);
    dx = made[0];
    // Scale and bias may have leading axes of extent 1, or be scalars that are broadcast.
    if (c.needs(1)) c.set_reduced(1, made[1]);
    if (c.needs(2)) c.set_reduced(2, made[2]);
  }
  if (!c.needs(0)) return;
  if (c.grad(1) != kNoValue || c.grad(2) != kNoValue) {
    const DType dtype = b.dtype(c.in(0));
    const auto cast = [&](ValueId id) { return id == kNoValue ? kNoValue : b.Cast(id, dtype); };
    const auto made = b.Ops("LayerNormalization", "", {c.in(0), c.in(1)}, 3, attributes);
    const int64_t count = b.shape(c.in(0)).elements() / std::max<int64_t>(1, b.shape(made[1]).elements());
    const ThroughStatistics through{cast(made[1]), cast(made[2]), static_cast<double>(count)};
    dx = through.Add(b, dx, c.in(0), cast(c.grad(1)), cast(c.grad(2)), kNoValue);
  }
  if (dx != kNoValue) c.set(0, dx);
}

std::vector<ValueType> Cut(std::vector<ValueType> types, const Node& node) {
  types.resize(node.outputs.size());
  return types;
}

// Expects operand i in float32 or in 16 bits.
void ExpectFloatOrHalf(const Graph& graph, const Node& node, int i, const Shape& shape) {
  const DType dtype = InputType(graph, node, i).dtype;
  ExpectInput(graph, node, i, {Is16BitFloat(dtype) ? dtype : DType::kFloat32, shape});
}

std::vector<ValueType> InferBatchNormTrain(const Graph& graph, const Node& node) {
  const ValueType x = InputType(graph, node, 0), scale = InputType(graph, node, 1);
  if (x.shape.rank() < 2 || scale.shape != Shape{x.shape[1]} || InputType(graph, node, 2).shape != scale.shape) {
    throw Error(ErrorCode::kShape, "scale " + scale.shape.ToString() + " does not fit the channels of " + x.shape.ToString(),
                Describe(node));
  }
  return Cut({x, scale, scale, scale}, node);
}

// The shape of numbers per channel that broadcast to x.
Shape BesideChannels(const Shape& x) {
  Shape shape{x[1]};
  for (int axis = 2; axis < x.rank(); ++axis) shape.push_back(1);
  return shape;
}

// Mean, 1 / standard deviation and variance of the channels; then the centre, factor and offset of y = (x - centre) factor + offset, which
// broadcast to x.
std::vector<ValueType> InferBatchNormLine(const Graph& graph, const Node& node) {
  const ValueType scale = InferBatchNormTrain(graph, node)[1];
  const ValueType line{scale.dtype, BesideChannels(InputType(graph, node, 0).shape)};
  return Cut({scale, scale, scale, line, line, line}, node);
}

std::vector<ValueType> InferCountedBatchNormalization(const Graph& graph, const Node& node) {
  ExpectArity(node, 7, 7, 3);
  const ValueType x = InputType(graph, node, 0), mean = InputType(graph, node, 3);
  for (int i = 1; i < 5; ++i) {
    if (x.shape.rank() < 2 || InputType(graph, node, i).shape != Shape{x.shape[1]})
      throw Error(ErrorCode::kShape, "operand " + std::to_string(i) + " does not fit the channels of " + x.shape.ToString(),
                  Describe(node));
  }
  const ValueType counts = InputType(graph, node, 5);
  bool fits = counts.dtype == DType::kBool && counts.shape.rank() == x.shape.rank() && counts.shape[1] == 1;
  for (int axis = 0; fits && axis < x.shape.rank(); ++axis) fits = counts.shape[axis] == 1 || counts.shape[axis] == x.shape[axis];
  if (!fits) throw Error(ErrorCode::kShape, "the mask " + counts.ToString() + " does not match " + x.shape.ToString(), Describe(node));
  ExpectInput(graph, node, 6, {DType::kInt64, {}});
  return Cut({x, mean, mean}, node);
}

std::vector<ValueType> InferBatchNormTrainGrad(const Graph& graph, const Node& node) {
  const ValueType scale = InputType(graph, node, 2);
  return Cut({InputType(graph, node, 1), scale, scale}, node);
}

std::vector<ValueType> InferMaskedBatchNormGrad(const Graph& graph, const Node& node) {
  ExpectArity(node, 7, 9, 4);
  const ValueType x = InputType(graph, node, 3);
  ExpectFloatOrHalf(graph, node, 3, x.shape);
  if (x.shape.rank() < 2) throw Error(ErrorCode::kShape, "x must be [N,C,...], got " + x.shape.ToString(), Describe(node));
  const ValueType channels{DType::kFloat32, {x.shape[1]}};
  for (int i : {0, 1, 2}) {
    if (i == 0 || HasInput(node, i)) ExpectInput(graph, node, i, x);
  }
  for (int i : {4, 5, 6}) ExpectInput(graph, node, i, channels);
  const bool kept = HasInput(node, 2), returned = node.outputs.size() > 3 && node.outputs[3] != kNoValue;
  if (kept != returned || kept == HasInput(node, 7) || kept == HasInput(node, 8) || (!kept && HasInput(node, 1)))
    throw Error(ErrorCode::kArity, "needs either y and a fourth result, or factor and offset", Describe(node));
  for (int i : {7, 8}) {
    if (!kept) ExpectInput(graph, node, i, {DType::kFloat32, BesideChannels(x.shape)});
  }
  return Cut({x, channels, channels, x}, node);
}

// The type of the part of x that is normalized together.
ValueType NormalizedRow(const Node& node, const ValueType& x) {
  const auto axis = NormalAxis(node.attributes.Int("axis", -1), x.shape.rank());
  if (!axis) throw Error(ErrorCode::kAttr, "axis is out of range", Describe(node));
  return {x.dtype, Shape(std::vector<int64_t>(x.shape.begin() + *axis, x.shape.end()))};
}

std::vector<ValueType> InferLayerNormGrad(const Graph& graph, const Node& node) {
  const ValueType x = InputType(graph, node, 1), dy = InputType(graph, node, 0);
  const bool narrow = x.dtype == DType::kFloat32 && IsFloating(dy.dtype) && DTypeBytes(dy.dtype) == 2;
  ExpectInput(graph, node, 0, {narrow ? dy.dtype : x.dtype, x.shape});
  const ValueType normalized = NormalizedRow(node, x);
  return Cut({x, normalized, normalized}, node);
}

DType RoundedType(const Node& node) {
  const auto to = static_cast<DType>(node.attributes.Int("to", 0));
  if (!Is16BitFloat(to)) throw Error(ErrorCode::kAttr, "attribute 'to' must be a 16-bit floating-point type", Describe(node));
  return to;
}

// Expects whole rows of float32, as scale and bias of x.
void ExpectRows(const Graph& graph, const Node& node, const ValueType& x, int first, int count) {
  for (int i = first; i < first + count; ++i) {
    if (HasInput(node, i)) ExpectInput(graph, node, i, NormalizedRow(node, x));
  }
}

std::vector<ValueType> InferLayerNormCast(const Graph& graph, const Node& node) {
  ExpectArity(node, 2, 3, 2);
  const ValueType x = InputType(graph, node, 0);
  ExpectInput(graph, node, 0, {DType::kFloat32, x.shape});
  ExpectRows(graph, node, x, 1, 2);
  return Cut({x, {RoundedType(node), x.shape}}, node);
}

std::vector<ValueType> InferSumLayerNorm(const Graph& graph, const Node& node) {
  ExpectArity(node, 3, 6, 3);
  const ValueType a = InputType(graph, node, 0);
  ExpectInput(graph, node, 0, {DType::kFloat32, a.shape});
  ExpectFloatOrHalf(graph, node, 1, a.shape);
  ExpectRows(graph, node, a, 2, 4);
  return Cut({a, a, {RoundedType(node), a.shape}}, node);
}

std::vector<ValueType> InferSumLayerNormGrad(const Graph& graph, const Node& node) {
  ExpectArity(node, 4, 5, 4);
  const ValueType x = InputType(graph, node, 2);
  ExpectFloatOrHalf(graph, node, 0, x.shape);
  for (int i : {1, 2, 4}) {
    if (i == 2 || HasInput(node, i)) ExpectInput(graph, node, i, {DType::kFloat32, x.shape});
  }
  ExpectRows(graph, node, x, 3, 1);
  const ValueType row = NormalizedRow(node, x);
  return Cut({x, row, row, {RoundedType(node), x.shape}}, node);
}

template <int kX>
std::vector<ValueType> InferChannelSums(const Graph& graph, const Node& node) {
  const Shape x = InputType(graph, node, kX).shape;
  if (x.rank() < 2) throw Error(ErrorCode::kShape, "x must be [N,C,...], got " + x.ToString(), Describe(node));
  return {{DType::kFloat64, Shape{2, x[1]}}};
}

std::vector<ValueType> InferBatchNormStatistics(const Graph& graph, const Node& node) {
  const ValueType like = InputType(graph, node, 1);
  ExpectRank(graph, node, 1, 1);
  ExpectInput(graph, node, 0, {DType::kFloat64, Shape{2, like.shape[0]}});
  return Cut({like, like, like}, node);
}

void ShardLayerNormalization(ShardQuery& query) { ShardFromAxis(query, 0); }

void ShardLayerNormGrad(ShardQuery& query) { ShardFromAxis(query, 1); }

const Op kOps[] = {
    {.name = "BatchNormalization", .domain = "", .since_version = 15, .gradient = BatchNormalizationGradient, .samples = "0....>0"},
    {.name = "BatchNormalization", .domain = kGradloomDomain, .infer = InferCountedBatchNormalization},
    {.name = "BatchNormTrain",
     .domain = kGradloomDomain,
     .gradient = BatchNormTrainGradient,
     .infer = InferBatchNormTrain,
     .samples = "0..>0lll"},
    {.name = "BatchNormLine", .domain = kGradloomDomain, .infer = InferBatchNormLine},
    {.name = "BatchNormTrainGrad", .domain = kGradloomDomain, .infer = InferBatchNormTrainGrad, .samples = "00.ll>0++"},
    {.name = "MaskedBatchNormGrad", .domain = kGradloomDomain, .infer = InferMaskedBatchNormGrad},
    {.name = "BatchNormSums", .domain = kGradloomDomain, .infer = InferChannelSums<0>, .samples = "0>+"},
    {.name = "BatchNormApply", .domain = kGradloomDomain, .infer = InferBatchNormTrain, .samples = "0...>0"},
    {.name = "BatchNormStatistics", .domain = kGradloomDomain, .infer = InferBatchNormStatistics},
    {.name = "BatchNormGradParameters", .domain = kGradloomDomain, .infer = InferBatchNormStatistics},
    {.name = "BatchNormGradSums", .domain = kGradloomDomain, .infer = InferChannelSums<1>, .samples = "00.>+"},
    {.name = "BatchNormGradApply", .domain = kGradloomDomain, .infer = InferBatchNormTrainGrad, .samples = "00....>0"},
    {.name = "LayerNormalization",
     .domain = "",
     .since_version = 17,
     .gradient = LayerNormalizationGradient,
     .shard = ShardLayerNormalization},
    {.name = "LayerNormGrad", .domain = kGradloomDomain, .infer = InferLayerNormGrad, .shard = ShardLayerNormGrad},
    {.name = "LayerNormCast", .domain = kGradloomDomain, .infer = InferLayerNormCast},
    {.name = "SumLayerNorm", .domain = kGradloomDomain, .infer = InferSumLayerNorm},
    {.name = "SumLayerNormGrad", .domain = kGradloomDomain, .infer = InferSumLayerNormGrad},
};

}  // namespace

std::span<const Op> NormalizationOps() { return kOps; }

}  // namespace gradloom
