// Results with a data-dependent number of elements, in tensors with room for the largest possible number. Valid elements come first.
//
//   gradloom.NonZero(x) -> places int64[max(rank, 1), elements of x], count int64[]
//     the positions of elements that are not 0, one row per axis
//   gradloom.Unique(x) {axis, sorted} -> first int64[n], group int64[n], counts int64[n], count int64[], n the extent of the axis
//     of the distinct slices: the first position of each; for each slice of x, the index of its distinct slice; how often each occurs
//   gradloom.NonMaxSuppression(boxes, scores, most, overlap, least) {center_point_box, bound} -> chosen int64[bound, 3], count int64[]
//     ONNX's operator
//   gradloom.SameExtent(a, b) -> a: int64[]; checks that two extents are equal
//   gradloom.Repack(x, from, to) {shape, repeat} -> y of that shape
//     moves the valid elements of x (positions below the extents `from`), in order, to the positions of y below the extents `to`
// Positions past the count repeat the first one (0 if there is none), so that results computed from them are like those of valid elements;
// if `repeat` is 0, Repack has zeros there.
#include <algorithm>

#include "compiler/ops/families.h"
#include "compiler/ops/own_types.h"
#include "compiler/ops/sharding.h"

namespace gradloom {
namespace {

ValueType Vector(int64_t extent) { return {DType::kInt64, Shape{extent}}; }
ValueType Count() { return {DType::kInt64, Shape{}}; }

std::vector<ValueType> InferNonZero(const Graph& graph, const Node& node) {
  ExpectArity(node, 1, 1, 2);
  const Shape shape = InputType(graph, node, 0).shape;
  return OutputTypes(node, {{DType::kInt64, Shape{std::max(shape.rank(), 1), shape.elements()}}, Count()});
}

std::vector<ValueType> InferUnique(const Graph& graph, const Node& node) {
  ExpectArity(node, 1, 1, 4);
  const Shape shape = InputType(graph, node, 0).shape;
  const auto axis = NormalAxis(node.attributes.Int("axis", 0), shape.rank());
  if (!axis) throw Error(ErrorCode::kAttr, "axis is out of range", Describe(node));
  return OutputTypes(node, {Vector(shape[*axis]), Vector(shape[*axis]), Vector(shape[*axis]), Count()});
}

std::vector<ValueType> InferNonMaxSuppression(const Graph& graph, const Node& node) {
  ExpectArity(node, 2, 5, 2);
  const ValueType boxes = InputType(graph, node, 0), scores = InputType(graph, node, 1);
  if (boxes.dtype != DType::kFloat32 || scores.dtype != DType::kFloat32)
    throw Error(ErrorCode::kType, "boxes and scores must be float32", Describe(node));
  const bool fit = boxes.shape.rank() == 3 && scores.shape.rank() == 3 && boxes.shape[2] == 4 && boxes.shape[0] == scores.shape[0] &&
                   boxes.shape[1] == scores.shape[2];
  if (!fit)
    throw Error(ErrorCode::kShape,
                "boxes must be [batches, boxes, 4] and scores [batches, classes, boxes], got " + boxes.shape.ToString() + " and " +
                    scores.shape.ToString(),
                Describe(node));
  for (int i = 2; i < 5; ++i) {
    if (!HasInput(node, i)) continue;
    const ValueType number = InputType(graph, node, i);
    if (number.dtype != (i == 2 ? DType::kInt64 : DType::kFloat32) || number.shape.elements() > 1)
      throw Error(ErrorCode::kType, "operand " + std::to_string(i) + " must be a scalar " + (i == 2 ? "int64" : "float32"), Describe(node));
  }
  const int64_t bound = node.attributes.Int("bound", -1);
  if (bound < 0 || bound > scores.shape.elements())
    throw Error(ErrorCode::kAttr, "attribute 'bound' is out of range for scores " + scores.shape.ToString() + ": " + std::to_string(bound),
                Describe(node));
  return OutputTypes(node, {{DType::kInt64, Shape{bound, 3}}, Count()});
}

std::vector<ValueType> InferSameExtent(const Graph& graph, const Node& node) {
  ExpectArity(node, 2, 2, 1);
  ExpectInput(graph, node, 0, Count());
  ExpectInput(graph, node, 1, Count());
  return OutputTypes(node, {Count()});
}

std::vector<ValueType> InferRepack(const Graph& graph, const Node& node) {
  ExpectArity(node, 3, 3, 1);
  const ValueType x = InputType(graph, node, 0);
  const std::vector<int64_t> dims = node.attributes.Ints("shape");
  if (dims.size() > static_cast<size_t>(kMaxRank) || std::any_of(dims.begin(), dims.end(), [](int64_t extent) { return extent < 0; }) ||
      !Shape(dims).checked_elements())
    throw Error(ErrorCode::kAttr, "attribute 'shape' is not a valid shape", Describe(node));
  ExpectInput(graph, node, 1, Vector(x.shape.rank()));
  ExpectInput(graph, node, 2, Vector(static_cast<int64_t>(dims.size())));
  return OutputTypes(node, {{x.dtype, Shape(dims)}});
}

void Repack(GradientContext& c) {
  if (!c.needs(0)) return;
  c.set(0, c.b.Own("Repack", {c.grad(0), c.in(2), c.in(1)}, {{"shape", c.b.shape(c.in(0)).dims()}, {"repeat", int64_t{0}}}));
}

// The number of elements must be that of all samples.
void ShardCounted(ShardQuery& query) {
  for (int i = 0; i < query.num_inputs(); ++i) {
    if (!query.in(i).whole()) query.Refuse("the size of its result depends on the data of all samples");
  }
}

const Op kOps[] = {
    {.name = "NonZero", .domain = kGradloomDomain, .traits = kNoGradient, .infer = InferNonZero, .shard = ShardCounted},
    {.name = "Unique", .domain = kGradloomDomain, .traits = kNoGradient, .infer = InferUnique, .shard = ShardCounted},
    {.name = "NonMaxSuppression", .domain = kGradloomDomain, .traits = kNoGradient, .infer = InferNonMaxSuppression, .shard = ShardCounted},
    {.name = "SameExtent", .domain = kGradloomDomain, .traits = kNoGradient, .infer = InferSameExtent},
    {.name = "Repack", .domain = kGradloomDomain, .gradient = Repack, .infer = InferRepack, .shard = ShardCounted},
};

}  // namespace

std::span<const Op> ExtentOps() { return kOps; }

}  // namespace gradloom
