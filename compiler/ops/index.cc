// Gathers, scatters and other operators with indices.
//
//   gradloom.GatherGrad(indices, g) {axis, shape} -> rows of g, summed into the rows of `shape` that they were gathered from
//   gradloom.GatherNDGrad(indices, g) {batch_dims, shape} -> the same for index tuples
// Both sum in the order of the indices, so that every run gives the same bits.
#include "compiler/ops/families.h"
#include "compiler/ops/gradients.h"
#include "compiler/ops/own_types.h"
#include "compiler/ops/sharding.h"

namespace gradloom {
namespace {

using B = GraphBuilder;

// Returns the inverse of a constant permutation; empty if the indices are not one.
std::vector<int64_t> InversePermutation(const Graph& graph, ValueId id, int64_t extent) {
  const Tensor* data = graph.data(id);
  if (data == nullptr || graph.value(id).role != Role::kConst || data->shape() != Shape{extent}) return {};
  const std::vector<int64_t> places = IntValues(data->view());
  std::vector<int64_t> inverse(places.size(), -1);
  for (size_t i = 0; i < places.size(); ++i) {
    const int64_t place = places[i] < 0 ? places[i] + extent : places[i];
    if (place < 0 || place >= extent || inverse[static_cast<size_t>(place)] >= 0) return {};
    inverse[static_cast<size_t>(place)] = static_cast<int64_t>(i);
  }
  return inverse;
}

void Gather(GradientContext& c) {
  if (!c.needs(0)) return;
  const Shape x = c.b.shape(c.in(0));
  const int64_t axis = c.attributes().Int("axis", 0);
  if (const auto at = NormalAxis(axis, x.rank())) {
    const std::vector<int64_t> inverse = InversePermutation(c.b.graph(), c.in(1), x[*at]);
    if (!inverse.empty()) return c.set(0, c.b.Op("Gather", {c.grad(0), c.b.Ints(inverse)}, {{"axis", axis}}));
  }
  c.set(0, c.b.Own("GatherGrad", {c.in(1), c.grad(0)}, {{"axis", axis}, {"shape", x.dims()}}));
}

void GatherGradGradient(GradientContext& c) {
  if (c.needs(1)) c.set(1, c.b.Op("Gather", {c.grad(0), c.in(0)}, {{"axis", c.attributes().Int("axis", 0)}}));
}

void GatherNd(GradientContext& c) {
  if (!c.needs(0)) return;
  c.set(0, c.b.Own("GatherNDGrad", {c.in(1), c.grad(0)},
                   {{"batch_dims", c.attributes().Int("batch_dims", 0)}, {"shape", c.b.shape(c.in(0)).dims()}}));
}

void GatherNdGradGradient(GradientContext& c) {
  if (c.needs(1)) c.set(1, c.b.Op("GatherND", {c.grad(0), c.in(0)}, {{"batch_dims", c.attributes().Int("batch_dims", 0)}}));
}

void GatherElements(GradientContext& c) {
  if (!c.needs(0)) return;
  const ValueId zeros = c.b.Zeros(c.b.graph().type(c.in(0)));
  c.set(0, c.b.Op("ScatterElements", {zeros, c.in(1), c.grad(0)},
                  {{"axis", c.attributes().Int("axis", 0)}, {"reduction", std::string("add")}}));
}

// The common part of ScatterElements and ScatterND: scattering into a tensor by the node's indices, and gathering.
struct Scattering {
  GradientContext& c;
  B& b = c.b;
  bool nd = c.node().op == "ScatterND";

  ValueId Scatter(ValueId data, ValueId updates, const std::string& reduction) const {
    Attributes attributes{{"reduction", reduction}};
    if (!nd) attributes.set("axis", c.attributes().Int("axis", 0));
    return b.Op(c.node().op, {data, c.in(1), updates}, attributes);
  }
  ValueId GatherAt(ValueId data) const {
    if (nd) return b.Op("GatherND", {data, c.in(1)});
    return b.Op("GatherElements", {data, c.in(1)}, {{"axis", c.attributes().Int("axis", 0)}});
  }
  ValueId ZerosLike(ValueId like) const { return b.Zeros(b.graph().type(like)); }
  ValueId Equal(ValueId x, ValueId y) const { return b.Op("Equal", {x, y}); }
  ValueId IsZero(ValueId x) const { return Equal(x, ScalarLike(b, 0.0, x)); }
  ValueId One() const { return ScalarLike(b, 1.0, c.grad(0)); }
  ValueId Count(ValueId truth) const { return b.Cast(truth, b.dtype(c.grad(0))); }
};

// The gradient of a factor is the product of the other factors of its element. The factor is divided out of the result, unless it is the
// only zero of its element: then the product is recomputed with 1 in its place.
void ScatterMul(const Scattering& s) {
  GradientContext& c = s.c;
  B& b = s.b;
  const ValueId data = c.in(0), updates = c.in(2), g = c.grad(0);
  if (c.needs(0)) {
    const ValueId others = s.Scatter(b.Fill(b.graph().type(data), 1.0), updates, "mul");
    c.set(0, b.Mul(g, others));
  }
  if (!c.needs(2)) return;
  const ValueId zero = s.IsZero(updates);
  const ValueId zeros = s.GatherAt(s.Scatter(s.ZerosLike(g), s.Count(zero), "add"));
  const ValueId only = b.Op("And", {zero, s.Equal(zeros, s.One())});
  const ValueId without = s.Scatter(data, b.Where(only, s.One(), updates), "mul");
  const ValueId divided = b.Div(s.GatherAt(b.Mul(g, c.out(0))), b.Where(zero, s.One(), updates));
  c.set(2, b.Where(only, s.GatherAt(b.Mul(g, without)), divided));
}

// The gradient is shared equally by all values that equal the extreme, including that of the data.
void ScatterExtreme(const Scattering& s) {
  GradientContext& c = s.c;
  B& b = s.b;
  const ValueId data_wins = s.Count(s.Equal(c.in(0), c.out(0)));
  const ValueId update_wins = s.Count(s.Equal(c.in(2), s.GatherAt(c.out(0))));
  const ValueId winners = s.Scatter(data_wins, update_wins, "add");
  const ValueId share = b.Div(c.grad(0), winners);
  if (c.needs(0)) c.set(0, b.Mul(data_wins, share));
  if (c.needs(2)) c.set(2, b.Mul(update_wins, s.GatherAt(share)));
}

void Scatter(GradientContext& c) {
  const Scattering s{c};
  const std::string reduction = c.attributes().String("reduction", "none");
  if (reduction == "mul") return ScatterMul(s);
  if (reduction == "max" || reduction == "min") return ScatterExtreme(s);
  const ValueId g = c.grad(0);
  if (c.needs(0)) c.set(0, reduction == "add" ? g : s.Scatter(g, s.ZerosLike(c.in(2)), "none"));
  if (c.needs(2)) c.set(2, s.GatherAt(g));
}

void TopK(GradientContext& c) {
  if (!c.needs(0)) return;
  B& b = c.b;
  ValueId indices = c.out(1);
  if (indices == kNoValue) indices = b.Ops("TopK", "", c.node().inputs, 2, c.attributes())[1];
  c.set(0, b.Op("ScatterElements", {b.Zeros(b.graph().type(c.in(0))), indices, c.grad(0)}, {{"axis", c.attributes().Int("axis", -1)}}));
}

// The gradient of the two values, off and on: the sums of the gradient over elements that are one or the other.
void OneHot(GradientContext& c) {
  if (!c.needs(2)) return;
  B& b = c.b;
  const DType dtype = b.dtype(c.in(2));
  const auto pair = [&](int64_t off, int64_t on) { return b.Cast(b.Ints({off, on}), dtype); };
  const ValueId hot = b.Op("OneHot", {c.in(0), c.in(1), pair(0, 1)}, {{"axis", c.attributes().Int("axis", -1)}});
  const ValueId all = b.Op("ReduceSum", {c.grad(0)}, {{"keepdims", int64_t{0}}});
  const ValueId on = b.Op("ReduceSum", {b.Mul(c.grad(0), hot)}, {{"keepdims", int64_t{0}}});
  c.set(2, b.Add(b.Mul(all, pair(1, 0)), b.Mul(on, pair(-1, 1))));
}

// The batch may be along an axis of the indices, or along an axis that is not gathered from.
void ShardGather(ShardQuery& query) {
  const int axis = query.AxisAttribute("axis", 0, query.shape(0).rank());
  Shard indices = query.in(1);
  if (query.given(0).partial() && indices.whole()) return query.set(0, Shard::Partial());
  Shard data = query.in(0);
  if (data.split() && indices.split()) query.Refuse("its indices select among samples");
  if (data.split() && data.axis == axis) query.Refuse("it gathers along the batch axis");
  if (data.split() && data.axis > axis) data.axis += query.shape(1).rank() - 1;
  if (indices.split()) indices.axis += axis;
  query.set(0, data.split() ? data : indices);
}

// Operands: indices and g, which has the axes of the indices in place of `axis`.
void ShardGatherGrad(ShardQuery& query) {
  const int rank = static_cast<int>(query.attributes().Ints("shape").size()), axis = query.AxisAttribute("axis", 0, rank);
  const Shard indices = query.in(0);
  if (indices.whole() && query.given(1).partial()) return query.set(0, Shard::Partial());
  Shard g = query.in(1);
  const int indexed = query.shape(0).rank();
  const bool along = g.split() && g.axis >= axis && g.axis < axis + indexed;
  if (indices.split() || along) {
    if (g.split() && (!along || (indices.split() && g.axis - axis != indices.axis))) query.Refuse("its indices select among samples");
    return query.set(0, Shard::Partial());
  }
  if (g.split() && g.axis >= axis + indexed) g.axis -= indexed - 1;
  query.set(0, g);
}

// Index tuples select along `depth` axes of the data, after the `leading` axes, which they share with it; later axes are copied whole.
struct TupleAxes {
  int leading, depth, indices_rank;

  TupleAxes(const ShardQuery& query, const Shape& indices)
      : leading(static_cast<int>(query.attributes().Int("batch_dims", 0))),
        depth(static_cast<int>(indices[indices.rank() - 1])),
        indices_rank(indices.rank()) {}
  bool IsAfterIndexed(int data_axis) const { return data_axis >= leading + depth; }
  // Converts an axis of the data after the selected ones to the result's axis, and back.
  int ToResult(int data_axis) const { return data_axis - leading - depth + indices_rank - 1; }
  int ToData(int result_axis) const { return result_axis - (indices_rank - 1) + leading + depth; }
};

void ShardGatherNd(ShardQuery& query) {
  const TupleAxes axes(query, query.shape(1));
  const Shard indices = query.in(1);
  if (indices.whole() && query.given(0).partial()) return query.set(0, Shard::Partial());
  Shard data = query.in(0);
  if (indices.split() && indices.axis == axes.indices_rank - 1) query.Refuse("the last axis of its indices is the batch axis");
  if (data.split() && axes.IsAfterIndexed(data.axis)) {
    if (indices.split()) query.Refuse("its indices select among samples");
    data.axis = axes.ToResult(data.axis);
  } else if (data.split() && (data.axis >= axes.leading || !indices.split())) {
    query.Refuse("its indices select among samples");
  }
  query.set(0, Joined(query, data, indices));
}

// Operands: indices, g.
void ShardGatherNdGrad(ShardQuery& query) {
  const TupleAxes axes(query, query.shape(0));
  const Shard indices = query.in(0);
  if (indices.whole() && query.given(1).partial()) return query.set(0, Shard::Partial());
  Shard g = query.in(1);
  if (g.split() && g.axis >= axes.indices_rank - 1) {
    if (indices.split()) query.Refuse("its indices select among samples");
    g.axis = axes.ToData(g.axis);
    return query.set(0, g);
  }
  const Shard both = Joined(query, indices, g);
  query.set(0, !both.split() ? both : both.axis < axes.leading ? both : Shard::Partial());
}

// Operands: data, indices, updates. The axes of the written slices follow the axes that are selected along.
void ShardScatterNd(ShardQuery& query) {
  const TupleAxes axes(query, query.shape(1));
  query.ExpectWhole(1);
  const Shard data = query.in(0);
  Shard updates = query.in(2);
  if ((data.split() && !axes.IsAfterIndexed(data.axis)) || (updates.split() && updates.axis < axes.indices_rank - 1)) {
    query.Refuse("its indices select among samples");
  }
  if (updates.split()) updates.axis = axes.ToData(updates.axis);
  query.set(0, Joined(query, data, updates));
}

void ShardOneHot(ShardQuery& query) {
  Shard indices = query.in(0);
  query.ExpectWhole(1);
  query.ExpectWhole(2);
  const int axis = query.AxisAttribute("axis", -1, query.shape(0).rank() + 1);
  if (indices.split() && indices.axis >= axis) ++indices.axis;
  query.set(0, indices);
}

// k is not a tensor that could be divided.
void ShardTopK(ShardQuery& query) {
  const Shard shard = query.in(0);
  if (shard.split() && query.AxisAttribute("axis", -1, query.shape(0).rank()) == shard.axis)
    query.Refuse("it compares samples with each other");
  query.SetAll(shard);
}

// There is one index for each element of the result. Along the selected axis it may refer to any sample, along the others to its own.
void ShardGatherElements(ShardQuery& query) {
  const int axis = query.AxisAttribute("axis", 0, query.shape(0).rank());
  const Shard data = query.in(0), indices = query.in(1);
  if (data.split() ? data.axis == axis : indices.split() && indices.axis != axis) query.Refuse("its indices select among samples");
  query.set(0, data.split() ? Joined(query, data, indices) : indices);
}

// Indices and updates may be shorter than the data along any axis. Those that do not grow with the batch are meant for its first samples,
// which a single device has.
void ShardScatterElements(ShardQuery& query) {
  Shard made;
  bool divided = true;
  for (int i = 0; i < query.num_inputs(); ++i) {
    const Shard shard = query.in(i);
    divided = divided && shard.split();
    made = Joined(query, made, shard);
  }
  if (made.split() && (!divided || query.AxisAttribute("axis", 0, query.shape(0).rank()) == made.axis))
    query.Refuse("its indices select among samples");
  query.set(0, made);
}

// onnx's own inference knows no result of rank 0.
std::vector<ValueType> InferGatherNd(const Graph& graph, const Node& node) {
  const ValueType data = InputType(graph, node, 0), indices = InputType(graph, node, 1);
  const int64_t batch = node.attributes.Int("batch_dims", 0);
  const int rank = data.shape.rank(), last = indices.shape.rank() - 1;
  const int64_t width = last < 0 ? 0 : indices.shape[last];
  if (last < 0 || batch < 0 || batch > last || batch >= rank || width < 1 || batch + width > rank)
    throw Error(ErrorCode::kShape, "indices " + indices.shape.ToString() + " do not fit the data " + data.shape.ToString());
  for (int axis = 0; axis < static_cast<int>(batch); ++axis) {
    if (data.shape[axis] != indices.shape[axis])
      throw Error(ErrorCode::kShape, "indices " + indices.shape.ToString() + " and data " + data.shape.ToString() + " differ along axis " +
                                         std::to_string(axis) + ", which batch_dims joins");
  }
  std::vector<int64_t> extents(indices.shape.begin(), indices.shape.end() - 1);
  extents.insert(extents.end(), data.shape.begin() + batch + width, data.shape.end());
  return {{data.dtype, Shape(extents)}};
}

const Op kOps[] = {
    {.name = "Gather", .domain = "", .since_version = 13, .gradient = Gather, .shard = ShardGather},
    {.name = "GatherElements", .domain = "", .since_version = 13, .gradient = GatherElements, .shard = ShardGatherElements},
    {.name = "GatherGrad",
     .domain = kGradloomDomain,
     .gradient = GatherGradGradient,
     .infer = InferFromShapeAttribute<1>,
     .shard = ShardGatherGrad},
    {.name = "GatherND", .domain = "", .since_version = 13, .gradient = GatherNd, .infer = InferGatherNd, .shard = ShardGatherNd},
    {.name = "GatherNDGrad",
     .domain = kGradloomDomain,
     .gradient = GatherNdGradGradient,
     .infer = InferFromShapeAttribute<1>,
     .shard = ShardGatherNdGrad},
    {.name = "OneHot", .domain = "", .since_version = 28, .gradient = OneHot, .shard = ShardOneHot},
    {.name = "ScatterElements", .domain = "", .since_version = 18, .gradient = Scatter, .shard = ShardScatterElements},
    {.name = "ScatterND", .domain = "", .since_version = 18, .gradient = Scatter, .shard = ShardScatterNd},
    {.name = "TopK", .domain = "", .since_version = 24, .gradient = TopK, .shard = ShardTopK},
};

}  // namespace

std::span<const Op> IndexOps() { return kOps; }

}  // namespace gradloom
