// GroupNormalization, InstanceNormalization, RMSNormalization, LRN, MeanVarianceNormalization, LpNormalization and Hardmax.
//
//   gradloom.GroupNormGrad(dy, x, scale [C]) {num_groups, epsilon} -> (dx, dscale [C], dbias [C])
//   gradloom.RmsNormGrad(dy, x, scale) {axis, epsilon} -> (dx, dscale of the normalized shape)
//   gradloom.LrnGrad(dy, x) {size, alpha, beta, bias} -> dx
#include "compiler/ops/families.h"
#include "compiler/ops/own_types.h"
#include "compiler/ops/sharding.h"

namespace gradloom {
namespace {

void GroupGradient(GradientContext& c, int64_t groups) {
  const std::vector<ValueId> made = c.b.Ops("GroupNormGrad", kGradloomDomain, {c.grad(0), c.in(0), c.in(1)}, 3,
                                            {{"num_groups", groups}, {"epsilon", c.attributes().Float("epsilon", 1e-5)}});
  for (int i = 0; i < 3; ++i) {
    if (c.needs(i)) c.set(i, made[static_cast<size_t>(i)]);
  }
}

void InstanceNormalization(GradientContext& c) { GroupGradient(c, c.b.shape(c.in(0))[1]); }

void GroupNormalization(GradientContext& c) { GroupGradient(c, c.attributes().Int("num_groups", 1)); }

void RmsNormalization(GradientContext& c) {
  const std::vector<ValueId> made = c.b.Ops("RmsNormGrad", kGradloomDomain, {c.grad(0), c.in(0), c.in(1)}, 2,
                                            {{"axis", c.attributes().Int("axis", -1)}, {"epsilon", c.attributes().Float("epsilon", 1e-5)}});
  if (c.needs(0)) c.set(0, made[0]);
  if (c.needs(1)) c.set_reduced(1, made[1]);
}

void LocalResponse(GradientContext& c) {
  if (c.needs(0)) c.set(0, c.b.Own("LrnGrad", {c.grad(0), c.in(0)}, c.attributes()));
}

// y = (x - mean) / (s + e): dx = (dy - mean(dy)) / (s + e) - (x - mean) mean(dy y) / (s (s + e)), which is
// (dy - mean(dy) - y mean(dy y) (s + e) / s) / (s + e). Where s is 0 so is y.
void MeanVariance(GradientContext& c) {
  if (!c.needs(0)) return;
  GraphBuilder& b = c.b;
  const DType dtype = b.dtype(c.in(0));
  const ValueId axes = b.Ints(c.attributes().Ints("axes", {0, 2, 3}));
  const auto mean = [&](ValueId x) { return b.Op("ReduceMean", {x, axes}); };
  const ValueId centred = b.Sub(c.in(0), mean(c.in(0)));
  const ValueId deviation = b.Op("Sqrt", {mean(b.Mul(centred, centred))});
  const ValueId divisor = b.Add(deviation, b.Scalar(1e-9, dtype));
  const ValueId flat = b.Op("Equal", {deviation, b.Scalar(0, dtype)});
  const ValueId ratio = b.Div(divisor, b.Where(flat, divisor, deviation));
  const ValueId across = b.Mul(c.out(0), b.Mul(mean(b.Mul(c.grad(0), c.out(0))), ratio));
  c.set(0, b.Div(b.Sub(b.Sub(c.grad(0), mean(c.grad(0))), across), divisor));
}

// y = x / norm: dx = (dy - d norm / dx * sum(dy y)) / norm, 0 where the norm is; d norm / dx is y or sign(x).
void LpNormalization(GradientContext& c) {
  if (!c.needs(0)) return;
  GraphBuilder& b = c.b;
  const DType dtype = b.dtype(c.in(0));
  const bool absolute = c.attributes().Int("p", 2) == 1;
  const ValueId axes = b.Ints({c.attributes().Int("axis", -1)});
  const ValueId norm = b.Op(absolute ? "ReduceL1" : "ReduceL2", {c.in(0), axes});
  const ValueId zero = b.Op("Equal", {norm, b.Scalar(0, dtype)});
  const ValueId inverse = b.Where(zero, norm, b.Op("Reciprocal", {b.Where(zero, b.Scalar(1, dtype), norm)}));
  const ValueId product = b.Op("ReduceSum", {b.Mul(c.grad(0), c.out(0)), axes});
  const ValueId direction = absolute ? b.Op("Sign", {c.in(0)}) : c.out(0);
  c.set(0, b.Mul(b.Sub(c.grad(0), b.Mul(direction, product)), inverse));
}

std::vector<ValueType> GroupNormGradTypes(const Graph& graph, const Node& node) {
  ExpectArity(node, 3, 3, 3);
  ExpectFloating(graph, node, 1);
  const ValueType x = InputType(graph, node, 1);
  const int64_t groups = node.attributes.Int("num_groups", 1);
  if (x.shape.rank() < 2) throw Error(ErrorCode::kShape, "input 1 must be [N,C,...], got " + x.ToString(), Describe(node));
  if (groups < 1 || x.shape[1] % groups != 0) {
    throw Error(ErrorCode::kAttr, std::to_string(x.shape[1]) + " channels cannot be divided into " + std::to_string(groups) + " groups",
                Describe(node));
  }
  const ValueType scale{x.dtype, Shape{x.shape[1]}};
  ExpectInput(graph, node, 0, x);
  ExpectInput(graph, node, 2, scale);
  return OutputTypes(node, {x, scale, scale});
}

// ONNX has no type inference for these two: the output has the type of the input.
std::vector<ValueType> GroupNormalizationTypes(const Graph& graph, const Node& node) {
  const ValueType x = InputType(graph, node, 0);
  const int64_t groups = node.attributes.Int("num_groups", 0);
  if (x.shape.rank() < 2 || groups < 1 || x.shape[1] % groups != 0) {
    throw Error(ErrorCode::kShape, "the channels of " + x.ToString() + " cannot be divided into " + std::to_string(groups) + " groups",
                Describe(node));
  }
  for (int i : {1, 2}) ExpectInput(graph, node, i, {x.dtype, Shape{x.shape[1]}});
  return {x};
}

std::vector<ValueType> MeanVarianceTypes(const Graph& graph, const Node& node) {
  const ValueType x = InputType(graph, node, 0);
  for (int64_t axis : node.attributes.Ints("axes", {0, 2, 3})) {
    if (!NormalAxis(axis, x.shape.rank())) {
      throw Error(ErrorCode::kAttr, "axis " + std::to_string(axis) + " is out of range for " + x.ToString(), Describe(node));
    }
  }
  return {x};
}

std::vector<ValueType> RmsNormGradTypes(const Graph& graph, const Node& node) {
  ExpectArity(node, 3, 3, 2);
  ExpectFloating(graph, node, 1);
  const ValueType x = InputType(graph, node, 1);
  ExpectInput(graph, node, 0, x);
  const auto axis = NormalAxis(node.attributes.Int("axis", -1), x.shape.rank());
  if (!axis) throw Error(ErrorCode::kAttr, "axis is out of range", Describe(node));
  const Shape normalized(std::vector<int64_t>(x.shape.begin() + *axis, x.shape.end()));
  const ValueType scale = InputType(graph, node, 2);
  if (scale.dtype != x.dtype || Broadcast(scale.shape, normalized) != normalized) {
    throw Error(ErrorCode::kShape, "scale " + scale.ToString() + " does not fit " + normalized.ToString(), Describe(node));
  }
  return OutputTypes(node, {x, {x.dtype, normalized}});
}

std::vector<ValueType> LrnGradTypes(const Graph& graph, const Node& node) {
  ExpectArity(node, 2, 2, 1);
  ExpectFloating(graph, node, 1);
  const ValueType x = InputType(graph, node, 1);
  if (x.shape.rank() < 2) throw Error(ErrorCode::kShape, "input 1 must be [N,C,...], got " + x.ToString(), Describe(node));
  ExpectInput(graph, node, 0, x);
  return {x};
}

void ShardRmsNormalization(ShardQuery& query) { ShardFromAxis(query, 0); }

void ShardRmsNormGrad(ShardQuery& query) { ShardFromAxis(query, 1); }

void ShardMeanVariance(ShardQuery& query) {
  const Shard shard = query.in(0);
  for (int64_t axis : query.attributes().Ints("axes", {0, 2, 3})) {
    if (shard.split() && NormalAxis(axis, query.shape(0).rank()) == shard.axis) query.Refuse("it normalizes over the batch axis");
  }
  query.set(0, shard);
}

const Op kOps[] = {
    {.name = "InstanceNormalization", .domain = "", .since_version = 6, .gradient = InstanceNormalization, .samples = "0..>0"},
    {.name = "GroupNormalization",
     .domain = "",
     .since_version = 21,
     .gradient = GroupNormalization,
     .infer = GroupNormalizationTypes,
     .samples = "0..>0"},
    {.name = "GroupNormGrad", .domain = kGradloomDomain, .infer = GroupNormGradTypes, .samples = "00.>0++"},
    {.name = "RMSNormalization", .domain = "", .since_version = 23, .gradient = RmsNormalization, .shard = ShardRmsNormalization},
    {.name = "RmsNormGrad", .domain = kGradloomDomain, .infer = RmsNormGradTypes, .shard = ShardRmsNormGrad},
    {.name = "LRN", .domain = "", .since_version = 1, .gradient = LocalResponse, .samples = "0>0"},
    {.name = "LrnGrad", .domain = kGradloomDomain, .infer = LrnGradTypes, .samples = "0>0"},
    {.name = "MeanVarianceNormalization",
     .domain = "",
     .since_version = 9,
     .gradient = MeanVariance,
     .infer = MeanVarianceTypes,
     .shard = ShardMeanVariance},
    {.name = "LpNormalization", .domain = "", .since_version = 1, .gradient = LpNormalization, .shard = ShardAlongAxis},
    {.name = "Hardmax", .domain = "", .since_version = 13, .traits = kNoGradient, .shard = ShardAlongAxis},
};

}  // namespace

std::span<const Op> NormalizationMoreOps() { return kOps; }

}  // namespace gradloom
