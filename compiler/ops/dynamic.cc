// Operators whose shapes depend on data: supported if that data is known at compile time.
#include <algorithm>
#include <cmath>

#include "compiler/ops/families.h"
#include "compiler/ops/own_types.h"

namespace gradloom {
namespace {

// Returns the data of operand i, or throws an error that says why the shape is unknown.
const Tensor& KnownData(const Graph& graph, const Node& node, size_t i) {
  if (i >= node.inputs.size() || node.inputs[i] == kNoValue) {
    throw Error(ErrorCode::kArity, "input " + std::to_string(i) + " of " + Escaped(node.op) + " is missing", Describe(node));
  }
  const ValueId id = node.inputs[i];
  const Tensor* data = graph.data(id);
  if (data == nullptr || graph.value(id).role != Role::kConst) {
    throw Error(ErrorCode::kUnsupported,
                "the shape of output 0 of " + Escaped(node.op) + " is not known at compile time; it depends on the data of '" +
                    Escaped(graph.value(id).name) + "'",
                Describe(node), "shapes are fixed when a model is compiled: make this operand a constant");
  }
  return *data;
}

// The number of elements is max(ceil((limit - start) / delta), 0).
std::vector<ValueType> InferRange(const Graph& graph, const Node& node) {
  for (size_t i = 0; i < 3; ++i) {
    const Tensor& data = KnownData(graph, node, i);
    if (data.elements() != 1) throw Error(ErrorCode::kShape, "operand " + std::to_string(i) + " of Range must be a scalar", Describe(node));
  }
  const DType dtype = InputType(graph, node, 0).dtype;
  const auto count = [&](auto start, auto limit, auto delta) -> double {
    if (delta == 0) throw Error(ErrorCode::kValue, "the delta of Range must not be 0", Describe(node));
    return std::ceil((static_cast<double>(limit) - static_cast<double>(start)) / static_cast<double>(delta));
  };
  const auto view = [&](size_t i) { return graph.data(node.inputs[i])->view(); };
  const double n = IsInteger(dtype) ? count(ElementAsInt(view(0), 0), ElementAsInt(view(1), 0), ElementAsInt(view(2), 0))
                                    : count(ElementAsDouble(view(0), 0), ElementAsDouble(view(1), 0), ElementAsDouble(view(2), 0));
  // Also refuses NaN.
  if (!(n < 0x1p59)) throw Error(ErrorCode::kLimit, "Range makes more elements than memory can hold", Describe(node));
  return {{dtype, Shape{n > 0 ? static_cast<int64_t>(n) : 0}}};
}

std::vector<ValueType> InferNonZero(const Graph& graph, const Node& node) {
  const Tensor& data = KnownData(graph, node, 0);
  int64_t count = 0;
  for (int64_t i = 0; i < data.elements(); ++i) count += ElementAsDouble(data.view(), i) != 0.0 ? 1 : 0;
  return {{DType::kInt64, Shape{std::max(data.shape().rank(), 1), count}}};
}

// Returns the positions along the axis (of the flattened input if there is none) that a Compress selects.
std::vector<int64_t> SelectedPositions(const Graph& graph, const Node& node) {
  const Tensor& condition = KnownData(graph, node, 1);
  if (condition.dtype() != DType::kBool || condition.shape().rank() != 1) {
    throw Error(ErrorCode::kShape, "the condition of Compress must be a bool tensor of rank 1", Describe(node));
  }
  std::vector<int64_t> places;
  for (int64_t i = 0; i < condition.elements(); ++i) {
    if (condition.as<bool>()[static_cast<size_t>(i)]) places.push_back(i);
  }
  return places;
}

std::vector<ValueType> InferCompress(const Graph& graph, const Node& node) {
  const std::vector<int64_t> places = SelectedPositions(graph, node);
  ValueType type = InputType(graph, node, 0);
  int64_t extent = type.shape.elements();
  int axis = 0;
  if (node.attributes.has("axis")) {
    const auto normal = NormalAxis(node.attributes.Int("axis", 0), type.shape.rank());
    if (!normal) throw Error(ErrorCode::kAttr, "axis is out of range", Describe(node));
    axis = *normal;
    extent = type.shape[axis];
  } else {
    type.shape = Shape{extent};
  }
  if (!places.empty() && places.back() >= extent) {
    throw Error(ErrorCode::kValue,
                "Compress selects element " + std::to_string(places.back()) + " of an axis of extent " + std::to_string(extent),
                Describe(node));
  }
  type.shape[axis] = static_cast<int64_t>(places.size());
  return {type};
}

void Compress(GradientContext& c) {
  if (!c.needs(0)) return;
  GraphBuilder& b = c.b;
  const Shape shape = b.shape(c.in(0));
  const bool flat = !c.attributes().has("axis");
  const ValueId places = b.Ints(SelectedPositions(b.graph(), c.node()));
  const Shape target = flat ? Shape{shape.elements()} : shape;
  const int64_t axis = flat ? 0 : c.attributes().Int("axis", 0);
  c.set(0, b.Reshape(b.Own("GatherGrad", {places, c.grad(0)}, {{"axis", axis}, {"shape", target.dims()}}), shape));
}

const Op kOps[] = {
    {.name = "Compress", .domain = "", .since_version = 28, .gradient = Compress, .infer = InferCompress},
    {.name = "NonZero", .domain = "", .since_version = 13, .traits = kNoGradient, .infer = InferNonZero},
    {.name = "Range", .domain = "", .since_version = 27, .traits = kNoGradient, .infer = InferRange},
};

}  // namespace

std::span<const Op> DynamicOps() { return kOps; }

}  // namespace gradloom
