// Reductions over axes, ArgMax and ArgMin, and cumulative operators.
//
//   gradloom.CumProdGrad(x, g, axis) {exclusive, reverse} -> the gradient of CumProd, exact where x has zeros
#include <algorithm>
#include <numeric>

#include "compiler/ops/families.h"
#include "compiler/ops/gradients.h"
#include "compiler/ops/own_types.h"
#include "compiler/ops/sharding.h"

namespace gradloom {
namespace {

using B = GraphBuilder;

// What the gradients of reductions need: the axes, and operands reshaped to broadcast to the input.
struct Reduction {
  GradientContext& c;
  Shape shape, kept;          // of the input; with extent 1 along the reduced axes
  std::vector<int64_t> axes;  // sorted, non-negative
  int64_t count = 1;          // elements that are reduced to one

  explicit Reduction(GradientContext& context) : c(context), shape(c.b.shape(c.in(0))), kept(shape) {
    axes = ConstantInts(c, 1);
    if (axes.empty() && c.attributes().Int("noop_with_empty_axes", 0) == 0) {
      axes.resize(static_cast<size_t>(shape.rank()));
      std::iota(axes.begin(), axes.end(), 0);
    }
    for (int64_t& axis : axes) axis = NormalAxis(axis, shape.rank()).value();
    std::sort(axes.begin(), axes.end());
    for (int64_t axis : axes) {
      count *= shape[static_cast<int>(axis)];
      kept[static_cast<int>(axis)] = 1;
    }
  }

  ValueId x() const { return c.in(0); }
  ValueId y() const { return c.b.Reshape(c.out(0), kept); }
  ValueId g() const { return c.b.Reshape(c.grad(0), kept); }
  ValueId Sum(ValueId value) const { return axes.empty() ? value : c.b.ReduceSum(value, axes, /*keepdims=*/true); }
  void Set(ValueId gradient) const { c.set(0, c.b.Expand(gradient, shape)); }
};

void ReduceSum(GradientContext& c) {
  if (!c.needs(0)) return;
  const Reduction r(c);
  r.Set(r.g());
}

void ReduceMean(GradientContext& c) {
  if (!c.needs(0)) return;
  const Reduction r(c);
  r.Set(DividedByCount(c.b, r.g(), static_cast<double>(std::max<int64_t>(r.count, 1))));
}

// The gradient is shared equally by all elements that equal the extreme.
void ReduceExtreme(GradientContext& c) {
  if (!c.needs(0)) return;
  const Reduction r(c);
  const ValueId equal = c.b.Cast(c.b.Op("Equal", {r.x(), r.y()}), c.b.dtype(r.x()));
  r.Set(c.b.Mul(equal, c.b.Div(r.g(), r.Sum(equal))));
}

// The gradient is the product of all other elements: the product of those before times that of those after, without a division.
void ReduceProd(GradientContext& c) {
  if (!c.needs(0)) return;
  B& b = c.b;
  const Reduction r(c);
  std::vector<int64_t> perm;
  for (int64_t axis = 0; axis < r.shape.rank(); ++axis) {
    if (r.kept[static_cast<int>(axis)] == r.shape[static_cast<int>(axis)]) perm.push_back(axis);
  }
  const int64_t rows =
      std::accumulate(perm.begin(), perm.end(), int64_t{1}, [&](int64_t n, int64_t axis) { return n * r.shape[static_cast<int>(axis)]; });
  Shape moved;
  for (int64_t axis = 0; axis < r.shape.rank(); ++axis) {
    if (r.kept[static_cast<int>(axis)] != r.shape[static_cast<int>(axis)]) perm.push_back(axis);
  }
  std::vector<int64_t> inverse(perm.size());
  for (size_t i = 0; i < perm.size(); ++i) {
    moved.push_back(r.shape[static_cast<int>(perm[i])]);
    inverse[static_cast<size_t>(perm[i])] = static_cast<int64_t>(i);
  }
  const ValueId x = b.Reshape(b.Transpose(r.x(), perm), {rows, r.count}), axis = b.Constant(Tensor::Scalar<int64_t>(1));
  const ValueId before = b.Op("CumProd", {x, axis}, {{"exclusive", int64_t{1}}});
  const ValueId after = b.Op("CumProd", {x, axis}, {{"exclusive", int64_t{1}}, {"reverse", int64_t{1}}});
  const ValueId gradient = b.Mul(b.Mul(before, after), b.Reshape(c.grad(0), {rows, 1}));
  c.set(0, b.Transpose(b.Reshape(gradient, moved), inverse));
}

void ReduceL1(GradientContext& c) {
  if (!c.needs(0)) return;
  const Reduction r(c);
  r.Set(c.b.Mul(r.g(), c.b.Op("Sign", {r.x()})));
}

// x / |x|, or 0 where the norm is 0.
void ReduceL2(GradientContext& c) {
  if (!c.needs(0)) return;
  B& b = c.b;
  const Reduction r(c);
  const ValueId y = r.y(), zero = ScalarLike(b, 0.0, y), is_zero = b.Op("Equal", {y, zero});
  const ValueId factor = b.Where(is_zero, zero, b.Div(r.g(), b.Where(is_zero, ScalarLike(b, 1.0, y), y)));
  r.Set(b.Mul(r.x(), factor));
}

void ReduceLogSum(GradientContext& c) {
  if (!c.needs(0)) return;
  const Reduction r(c);
  r.Set(c.b.Div(r.g(), r.Sum(r.x())));
}

// The gradient is exp(x - y), a softmax. If all of x is -inf, so is y, and the gradient of each element is 0.
void ReduceLogSumExp(GradientContext& c) {
  if (!c.needs(0)) return;
  B& b = c.b;
  const Reduction r(c);
  const ValueId y = r.y(), empty = b.Op("IsInf", {y}, {{"detect_positive", int64_t{0}}});
  const ValueId shift = b.Where(empty, ScalarLike(b, 0.0, y), y);
  r.Set(b.Mul(r.g(), b.Op("Exp", {b.Sub(r.x(), shift)})));
}

void ReduceSumSquare(GradientContext& c) {
  if (!c.needs(0)) return;
  const Reduction r(c);
  r.Set(c.b.Mul(c.b.Scale(r.g(), 2.0), r.x()));
}

Attributes Running(const GradientContext& c, bool turned) {
  const int64_t exclusive = c.attributes().Int("exclusive", 0), reverse = c.attributes().Int("reverse", 0);
  return {{"exclusive", exclusive}, {"reverse", turned ? 1 - reverse : reverse}};
}

// The gradient is the same sum from the other end.
void CumSum(GradientContext& c) {
  if (c.needs(0)) c.set(0, c.b.Op("CumSum", {c.grad(0), c.in(1)}, Running(c, /*turned=*/true)));
}

void CumProd(GradientContext& c) {
  if (c.needs(0)) c.set(0, c.b.Own("CumProdGrad", {c.in(0), c.grad(0), c.in(1)}, Running(c, /*turned=*/false)));
}

// Returns the axes of a reduction, non-negative.
std::vector<int64_t> AxesOf(const ShardQuery& query) {
  const int rank = query.shape(0).rank();
  std::vector<int64_t> axes = query.Ints(1);
  if (axes.empty() && query.attributes().Int("noop_with_empty_axes", 0) == 0) {
    axes.resize(static_cast<size_t>(rank));
    std::iota(axes.begin(), axes.end(), 0);
  }
  for (int64_t& axis : axes) axis = NormalAxis(axis, rank).value();
  return axes;
}

// Returns the sharding after the reduction of `axes`; `kept`: they are kept with extent 1.
Shard ShardAfterReduction(Shard shard, const std::vector<int64_t>& axes, bool kept) {
  if (kept) return shard;
  shard.axis -= static_cast<int>(std::count_if(axes.begin(), axes.end(), [&](int64_t axis) { return axis < shard.axis; }));
  return shard;
}

// Sums of elements, or of a function of each element, become partial sums; a mean is a partial sum divided by the whole count. For an
// extreme, a product or a norm, each device computes its own, and the devices combine these in the same way.
enum class Over : uint8_t { kSum, kSumOfFunction, kMean, kCombination, kElse };

template <Over kOver>
void ShardReduction(ShardQuery& query) {
  // A mean of integers is rounded: the sum of the devices' means may be less than that of the sum.
  const bool adds = kOver == Over::kSum || (kOver == Over::kMean && IsFloating(query.out_dtype()));
  if (adds && query.given(0).partial()) return query.set(0, Shard::Partial());
  const Shard shard = query.in(0);
  if (!shard.split()) return query.set(0, shard);
  const std::vector<int64_t> axes = AxesOf(query);
  if (std::find(axes.begin(), axes.end(), shard.axis) == axes.end()) {
    return query.set(0, ShardAfterReduction(shard, axes, query.attributes().Int("keepdims", 1) != 0));
  }
  if (kOver == Over::kElse || (kOver == Over::kCombination && query.out_dtype() == DType::kUint64))
    query.Refuse("it reduces over samples in a way that devices cannot combine");
  if (kOver == Over::kCombination) {
    query.MakeCombination();
    return query.set(0, Shard::Whole());
  }
  if (kOver == Over::kMean && !IsFloating(query.out_dtype())) query.Refuse("it rounds a mean over samples to an integer");
  if (kOver == Over::kMean) query.MakeMeanOverSamples();
  query.set(0, Shard::Partial());
}

void ShardArgExtreme(ShardQuery& query) {
  const Shard shard = query.in(0);
  const int axis = query.AxisAttribute("axis", 0, query.shape(0).rank());
  if (shard.split() && shard.axis == axis) query.Refuse("it compares samples with each other");
  query.set(0, shard.split() ? ShardAfterReduction(shard, {axis}, query.attributes().Int("keepdims", 1) != 0) : shard);
}

// Cumulative operators: the axis is the constant last operand.
void ShardRunning(ShardQuery& query) {
  const int last = query.num_inputs() - 1;
  Shard made;
  for (int i = 0; i < last; ++i) made = Joined(query, made, query.in(i));
  if (made.split() && NormalAxis(query.Ints(last).at(0), query.shape(0).rank()) == made.axis)
    query.Refuse("it accumulates along the batch axis");
  query.set(0, made);
}

// One flop per input element.
Cost ReduceCost(const Graph& graph, const Node& node) {
  return CostWithFlops(graph, node, static_cast<double>(graph.value(node.inputs[0]).shape.elements()));
}

template <Over kOver = Over::kElse>
constexpr Op Reduce(std::string_view name, int version, void (*gradient)(GradientContext&)) {
  return {.name = name, .domain = "", .since_version = version, .gradient = gradient, .cost = ReduceCost, .shard = ShardReduction<kOver>};
}

const Op kOps[] = {
    {.name = "ArgMax", .domain = "", .since_version = 13, .traits = kNoGradient, .cost = ReduceCost, .shard = ShardArgExtreme},
    {.name = "ArgMin", .domain = "", .since_version = 13, .traits = kNoGradient, .cost = ReduceCost, .shard = ShardArgExtreme},
    {.name = "CumProd", .domain = "", .since_version = 26, .gradient = CumProd, .shard = ShardRunning},
    {.name = "CumProdGrad", .domain = kGradloomDomain, .infer = InferLikeFirst, .shard = ShardRunning},
    {.name = "CumSum", .domain = "", .since_version = 14, .gradient = CumSum, .shard = ShardRunning},
    Reduce<Over::kSumOfFunction>("ReduceL1", 18, ReduceL1),
    Reduce<Over::kCombination>("ReduceL2", 18, ReduceL2),
    Reduce("ReduceLogSum", 28, ReduceLogSum),
    Reduce<Over::kCombination>("ReduceLogSumExp", 28, ReduceLogSumExp),
    Reduce<Over::kCombination>("ReduceMax", 20, ReduceExtreme),
    Reduce<Over::kMean>("ReduceMean", 18, ReduceMean),
    Reduce<Over::kCombination>("ReduceMin", 20, ReduceExtreme),
    Reduce<Over::kCombination>("ReduceProd", 18, ReduceProd),
    Reduce<Over::kSum>("ReduceSum", 13, ReduceSum),
    Reduce<Over::kSumOfFunction>("ReduceSumSquare", 18, ReduceSumSquare),
};

}  // namespace

std::span<const Op> ReduceOps() { return kOps; }

}  // namespace gradloom
