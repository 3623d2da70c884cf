// Matrix products: MatMul, Gemm and its forms with an epilogue, MatMulInteger, Det.
//
//   gradloom.DetGrad(x, g) -> g times the cofactor matrix of x, also if x is singular
#include "compiler/ops/families.h"
#include "compiler/ops/gradients.h"
#include "compiler/ops/own_types.h"
#include "compiler/ops/sharding.h"

namespace gradloom {
namespace {

using B = GraphBuilder;

ValueId Gemm(B& b, ValueId x, bool trans_x, ValueId y, bool trans_y, double alpha = 1.0) {
  Attributes attributes;
  if (trans_x) attributes.set("transA", int64_t{1});
  if (trans_y) attributes.set("transB", int64_t{1});
  if (alpha != 1.0) attributes.set("alpha", alpha);
  return b.Op("Gemm", {x, y}, attributes);
}

ValueId SwapLast(B& b, ValueId x) {
  std::vector<int64_t> perm;
  const int rank = b.shape(x).rank();
  for (int axis = 0; axis < rank; ++axis) perm.push_back(axis);
  std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
  return b.Transpose(x, perm);
}

// Merges all axes except the last.
ValueId Rows(B& b, ValueId x) {
  const Shape shape = b.shape(x);
  const int64_t last = shape[shape.rank() - 1];
  int64_t rows = 1;
  for (int axis = 0; axis + 1 < shape.rank(); ++axis) rows *= shape[axis];
  return b.Reshape(x, {rows, last});
}

// Vectors first become matrices: a row on the left, a column on the right.
void MatMulGradient(GradientContext& c) {
  B& b = c.b;
  const Shape a_shape = b.shape(c.in(0)), w_shape = b.shape(c.in(1)), y_shape = b.shape(c.out(0));
  const bool row = a_shape.rank() == 1, column = w_shape.rank() == 1;
  const ValueId a = row ? b.Reshape(c.in(0), {1, a_shape[0]}) : c.in(0);
  const ValueId w = column ? b.Reshape(c.in(1), {w_shape[0], 1}) : c.in(1);
  Shape matrix(std::vector<int64_t>(y_shape.begin(), y_shape.end() - (row ? 0 : 1) - (column ? 0 : 1)));
  matrix.push_back(row ? 1 : a_shape[a_shape.rank() - 2]);
  matrix.push_back(column ? 1 : w_shape[w_shape.rank() - 1]);
  const ValueId g = b.Reshape(c.grad(0), matrix);
  const Shape a2 = b.shape(a), w2 = b.shape(w);
  if (w2.rank() == 2) {
    // If all rows are multiplied by one matrix, two plain products suffice for any number of leading axes.
    if (c.needs(0)) c.set(0, b.Reshape(Gemm(b, Rows(b, g), false, w, true), a_shape));
    if (c.needs(1)) c.set(1, b.Reshape(Gemm(b, Rows(b, a), true, Rows(b, g), false), w_shape));
    return;
  }
  if (c.needs(0)) c.set(0, b.Reshape(b.ReduceTo(b.MatMul(g, SwapLast(b, w)), a2), a_shape));
  if (c.needs(1)) c.set(1, b.Reshape(b.ReduceTo(b.MatMul(SwapLast(b, a), g), w2), w_shape));
}

void GemmGradient(GradientContext& c) {
  B& b = c.b;
  const bool ta = c.attributes().Int("transA", 0) != 0, tb = c.attributes().Int("transB", 0) != 0;
  const double alpha = c.attributes().Float("alpha", 1.0), beta = c.attributes().Float("beta", 1.0);
  const ValueId g = c.grad(0);
  if (c.needs(0)) c.set(0, ta ? Gemm(b, c.in(1), tb, g, true, alpha) : Gemm(b, g, false, c.in(1), !tb, alpha));
  if (c.needs(1)) c.set(1, tb ? Gemm(b, g, true, c.in(0), ta, alpha) : Gemm(b, c.in(0), !ta, g, false, alpha));
  if (c.needs(2)) {
    const ValueId sum = b.ReduceTo(g, Shape(b.shape(c.in(2))));
    c.set(2, beta == 1.0 ? sum : b.Scale(sum, beta));
  }
}

void DetGradient(GradientContext& c) {
  if (c.needs(0)) c.set(0, c.b.Own("DetGrad", {c.in(0), c.grad(0)}));
}

// Two flops for each element of the result and each term of its sum.
Cost ProductCost(const Graph& graph, const Node& node) {
  const Shape& a = graph.value(node.inputs[0]).shape;
  const bool transposed = node.op.starts_with("Gemm") && node.attributes.Int("transA", 0) != 0;
  const int64_t k = a.rank() == 0 ? 1 : a[transposed ? 0 : a.rank() - 1];
  return CostWithFlops(graph, node, 2.0 * static_cast<double>(k) * static_cast<double>(graph.value(node.outputs[0]).shape.elements()));
}

// The type of the product of the first two inputs, transposed according to transA and transB.
ValueType GemmType(const Graph& graph, const Node& node) {
  ExpectFloating(graph, node, 0);
  for (int i : {0, 1}) ExpectRank(graph, node, i, 2);
  const bool ta = node.attributes.Int("transA", 0) != 0, tb = node.attributes.Int("transB", 0) != 0;
  const ValueType a = InputType(graph, node, 0), b = InputType(graph, node, 1);
  const int64_t k = a.shape[ta ? 0 : 1], n = b.shape[tb ? 0 : 1];
  ExpectInput(graph, node, 1, {a.dtype, tb ? Shape{n, k} : Shape{k, n}});
  return {a.dtype, {a.shape[ta ? 1 : 0], n}};
}

// Operands: a, b, bias?. Outputs: y, and for GemmGelu also the operand of the GELU.
std::vector<ValueType> GemmActivationTypes(const Graph& graph, const Node& node) {
  ExpectArity(node, 2, 3, node.op == "GemmGelu" ? 2 : 1);
  const ValueType product = GemmType(graph, node);
  if (HasInput(node, 2)) ExpectInput(graph, node, 2, {product.dtype, {product.shape[1]}});
  return OutputTypes(node, {product, product});
}

// Operands: a, b, x. Outputs: the product times GELU's derivative at x, and the sums of its columns.
std::vector<ValueType> GemmGeluGradTypes(const Graph& graph, const Node& node) {
  ExpectArity(node, 3, 3, 2);
  const ValueType product = GemmType(graph, node);
  ExpectInput(graph, node, 2, product);
  return OutputTypes(node, {product, {product.dtype, {product.shape[1]}}});
}

// Operands: a, b. Outputs: the product, and operand number `summed`, summed along the contracted axis.
std::vector<ValueType> GemmBiasGradTypes(const Graph& graph, const Node& node) {
  ExpectArity(node, 2, 2, 2);
  const ValueType product = GemmType(graph, node);
  const int64_t summed = node.attributes.Int("summed", 0);
  if (summed != 0 && summed != 1) throw Error(ErrorCode::kAttr, "attribute 'summed' must be 0 or 1", Describe(node));
  return OutputTypes(node, {product, {product.dtype, {product.shape[summed == 0 ? 0 : 1]}}});
}

// The kind of an axis of a product's operand.
enum class Axis : uint8_t { kLeading, kRow, kSummed, kColumn };

// The result is a partial sum if both operands have the batch along the summed axis; otherwise the batch axis is kept. `axis` returns the
// kind of an operand's axis, `place` its axis in the result.
template <typename AxisOf, typename PlaceOf>
Shard ShardOfProduct(ShardQuery& query, AxisOf axis, PlaceOf place) {
  Shard a = query.given(0), b = query.given(1);
  // A partial sum times a whole operand is a partial sum of the product.
  if (a.partial() && query.in(1).whole()) return Shard::Partial();
  if (b.partial() && query.in(0).whole()) return Shard::Partial();
  a = query.in(0);
  b = query.in(1);
  const bool summed_a = a.split() && axis(0, a.axis) == Axis::kSummed, summed_b = b.split() && axis(1, b.axis) == Axis::kSummed;
  if (summed_a != summed_b) query.Refuse("only one operand has the batch along the summed axis");
  if (summed_a) {
    if (a.inner != 0 && b.inner != 0 && a.inner != b.inner) query.Refuse("its operands have their samples in different orders");
    return Shard::Partial();
  }
  if (a.split()) a.axis = place(0, a.axis);
  if (b.split()) b.axis = place(1, b.axis);
  return Joined(query, a, b);
}

void ShardMatMul(ShardQuery& query) {
  const auto axis = [&](int i, int at) {
    const int from_end = query.shape(i).rank() - at;
    if (query.shape(i).rank() == 1) return Axis::kSummed;
    if (from_end > 2) return Axis::kLeading;
    return (from_end == 1) == (i == 0) ? Axis::kSummed : i == 0 ? Axis::kRow : Axis::kColumn;
  };
  const int rank = query.out_shape(0).rank(), columns = query.shape(1).rank() > 1 ? 1 : 0, rows = query.shape(0).rank() > 1 ? 1 : 0;
  const auto place = [&](int i, int at) {
    switch (axis(i, at)) {
      case Axis::kRow: return rank - 1 - columns;
      case Axis::kColumn: return rank - 1;
      default: return rank - rows - columns - (query.shape(i).rank() - 2 - at);
    }
  };
  query.SetAll(ShardOfProduct(query, axis, place));
}

void ShardGemm(ShardQuery& query) {
  const auto axis = [&](int i, int at) {
    const bool turned = query.attributes().Int(i == 0 ? "transA" : "transB", 0) != 0;
    return (at == 1) == (turned == (i == 1)) ? Axis::kSummed : i == 0 ? Axis::kRow : Axis::kColumn;
  };
  const Shard made = ShardOfProduct(query, axis, [](int i, int) { return i; });
  if (!query.has(2)) return query.SetAll(made);
  if (made.partial()) query.Refuse("each device would add the bias to its partial sum");
  Shard bias = query.in(2);
  if (bias.split()) bias.axis += 2 - query.shape(2).rank();
  query.SetAll(Joined(query, made, bias));
}

// Operators on matrices along the last two axes.
void ShardMatrices(ShardQuery& query) {
  Shard made;
  for (int i = 0; i < query.num_inputs(); ++i) made = Joined(query, made, query.in(i));
  if (made.split() && made.axis + 2 >= query.shape(0).rank()) query.Refuse("it operates along the batch axis");
  query.SetAll(made);
}

const Op kOps[] = {
    {.name = "Det", .domain = "", .since_version = 22, .gradient = DetGradient, .shard = ShardMatrices},
    {.name = "DetGrad", .domain = kGradloomDomain, .infer = InferLikeFirst, .shard = ShardMatrices},
    {.name = "Gemm",
     .domain = "",
     .since_version = 13,
     .traits = kProduct,
     .gradient = GemmGradient,
     .cost = ProductCost,
     .shard = ShardGemm},
    // Created by fuse_epilogues, after differentiation.
    {.name = "GemmBiasGrad", .domain = kGradloomDomain, .traits = kProduct, .infer = GemmBiasGradTypes, .cost = ProductCost},
    {.name = "GemmGelu", .domain = kGradloomDomain, .traits = kProduct, .infer = GemmActivationTypes, .cost = ProductCost},
    {.name = "GemmGeluGrad", .domain = kGradloomDomain, .traits = kProduct, .infer = GemmGeluGradTypes, .cost = ProductCost},
    {.name = "GemmRelu", .domain = kGradloomDomain, .traits = kProduct, .infer = GemmActivationTypes, .cost = ProductCost},
    {.name = "MatMul",
     .domain = "",
     .since_version = 13,
     .traits = kProduct,
     .gradient = MatMulGradient,
     .cost = ProductCost,
     .shard = ShardMatMul},
    {.name = "MatMulInteger", .domain = "", .since_version = 10, .traits = kNoGradient, .cost = ProductCost},
};

}  // namespace

std::span<const Op> MatMulOps() { return kOps; }

}  // namespace gradloom
