// Emitting nodes and padding.
#include "compiler/onnx/extents/extent_node.h"

#include <algorithm>
#include <limits>
#include <set>

#include "compiler/ops/op.h"

namespace gradloom {

ExtentNode::Rule ExtentNode::RuleOf(const Node& node) {
  using E = ExtentNode;
  static const std::map<std::string, Rule> kRules = {
      {"ArgMax", &E::ArgExtreme},
      {"ArgMin", &E::ArgExtreme},
      {"Attention", &E::Attention},
      {"AveragePool", &E::FirstAxisFree},
      {"BatchNormalization", &E::BatchNormalization},
      {"Compress", &E::Compress},
      {"Concat", &E::Concat},
      {"ConstantOfShape", &E::ConstantOfShape},
      {"Conv", &E::FirstAxisFree},
      {"ConvTranspose", &E::FirstAxisFree},
      {"CumSum", &E::CumSum},
      {"DepthToSpace", &E::FirstAxisFree},
      {"Dropout", &E::Pointwise},
      {"Einsum", &E::Einsum},
      {"Expand", &E::Expand},
      {"Flatten", &E::Flatten},
      {"Gather", &E::Gather},
      {"GatherElements", &E::GatherElements},
      {"GRU", &E::Recurrent},
      {"GatherND", &E::GatherNd},
      {"Gemm", &E::Gemm},
      {"GlobalAveragePool", &E::FirstAxisFree},
      {"GlobalMaxPool", &E::FirstAxisFree},
      {"GroupNormalization", &E::FirstAxisFree},
      {"Hardmax", &E::Softmax},
      {"InstanceNormalization", &E::FirstAxisFree},
      {"LSTM", &E::Recurrent},
      {"LayerNormalization", &E::RowNormalization},
      {"LogSoftmax", &E::Softmax},
      {"MatMul", &E::MatMul},
      {"MaxPool", &E::FirstAxisFree},
      {"MaxRoiPool", &E::RegionsOfInterest},
      {"NegativeLogLikelihoodLoss", &E::ClassLoss},
      {"NonMaxSuppression", &E::NonMaxSuppression},
      {"NonZero", &E::NonZero},
      {"OneHot", &E::OneHot},
      {"Pad", &E::Pad},
      {"RMSNormalization", &E::RowNormalization},
      {"RNN", &E::Recurrent},
      {"Range", &E::Range},
      {"ReduceL1", &E::Reduce},
      {"ReduceL2", &E::Reduce},
      {"ReduceLogSum", &E::Reduce},
      {"ReduceLogSumExp", &E::Reduce},
      {"ReduceMax", &E::Reduce},
      {"ReduceMean", &E::Reduce},
      {"ReduceMin", &E::Reduce},
      {"ReduceProd", &E::Reduce},
      {"ReduceSum", &E::Reduce},
      {"ReduceSumSquare", &E::Reduce},
      {"Reshape", &E::Reshape},
      {"Resize", &E::FirstAxisFree},
      {"RoiAlign", &E::RegionsOfInterest},
      {"ScatterElements", &E::ScatterElements},
      {"ScatterND", &E::ScatterNd},
      {"Shape", &E::ShapeOf},
      {"Size", &E::SizeOf},
      {"Slice", &E::Slice},
      {"Softmax", &E::Softmax},
      {"SoftmaxCrossEntropyLoss", &E::ClassLoss},
      {"SpaceToDepth", &E::FirstAxisFree},
      {"Split", &E::Split},
      {"Squeeze", &E::Squeeze},
      {"Tile", &E::Tile},
      {"TopK", &E::TopK},
      {"Transpose", &E::Transpose},
      {"Trilu", &E::Pointwise},
      {"Unique", &E::Unique},
      {"Unsqueeze", &E::Unsqueeze},
  };
  const auto found = node.domain.empty() ? kRules.find(node.op) : kRules.end();
  if (found != kRules.end()) return found->second;
  const gradloom::Op* row = FindOp(node.domain, node.op);
  return row != nullptr && row->has(kPointwise) ? &E::Pointwise : nullptr;
}

std::vector<ValueId> ExtentNode::Run() {
  if (RunNumbers()) return results_;
  const Rule rule = RuleOf(node_);
  if (rule != nullptr) {
    (this->*rule)();
    return results_;
  }
  // The extents of its operands are all known: data-dependent integers among them are ordinary data.
  for (size_t i = 0; i < num_inputs(); ++i) Only(i);
  Same();
  return results_;
}

int ExtentNode::Axis(int64_t axis, int rank) const {
  const auto normal = NormalAxis(axis, rank);
  if (!normal)
    throw Error(ErrorCode::kAttr, "axis " + std::to_string(axis) + " is out of range for rank " + std::to_string(rank), Describe(node_));
  return *normal;
}

std::vector<int64_t> ExtentNode::KnownInts(size_t i) const {
  const ValueId id = in(i);
  if (id == kNoValue) return {};
  const Tensor* data = emitter_.Constant(id);
  if (data == nullptr || !IsInteger(data->dtype())) {
    throw Error(ErrorCode::kUnsupported,
                "operand " + std::to_string(i) + " of " + node_.op + ", '" + Escaped(emitter_.graph().value(id).name) +
                    "', must be known at compile time if another operand has a data-dependent extent",
                Describe(node_));
  }
  return IntValues(data->view());
}

std::vector<Size> ExtentNode::Sizes(size_t i) const {
  if (auto numbers = Numbers(in(i))) return std::move(*numbers);
  std::vector<Size> sizes;
  for (int64_t value : KnownInts(i)) sizes.push_back({value});
  return sizes;
}

Size ExtentNode::OneSize(size_t i) const {
  const std::vector<Size> sizes = Sizes(i);
  if (sizes.size() == 1) return sizes[0];
  throw Error(ErrorCode::kShape,
              "operand " + std::to_string(i) + " of " + node_.op + " must have 1 element, got " + std::to_string(sizes.size()),
              Describe(node_));
}

void ExtentNode::Refuse(size_t i, int axis, const std::string& why) const {
  const Value& value = emitter_.graph().value(in(i));
  throw Error(ErrorCode::kUnsupported,
              node_.op + " does not support the data-dependent extent of axis " + std::to_string(axis) + " of '" + Escaped(value.name) +
                  "' " + value.shape.ToString() + (why.empty() ? "" : ": " + why),
              Describe(node_),
              "give it a tensor whose shape is known at compile time, or make the operands that decide the shape constants");
}

void ExtentNode::ExpectRank(size_t i, int least, int most) const {
  if (in(i) == kNoValue || (rank(in(i)) >= least && rank(in(i)) <= most)) return;
  const Value& value = emitter_.graph().value(in(i));
  throw Error(ErrorCode::kShape,
              "operand " + std::to_string(i) + " of " + node_.op + ", '" + Escaped(value.name) + "', must have rank " +
                  std::to_string(least) + (least == most ? "" : " to " + std::to_string(most)) + ", got " + value.shape.ToString(),
              Describe(node_));
}

void ExtentNode::Only(size_t i, const std::vector<int>& may) const {
  if (in(i) == kNoValue) return;
  for (const auto& [axis, size] : extents_.Of(in(i))) {
    if (std::find(may.begin(), may.end(), axis) == may.end()) Refuse(i, axis);
  }
}

std::vector<ValueId> ExtentNode::Ops(const std::string& op, std::string_view domain, std::vector<ValueId> inputs, size_t outputs,
                                     Attributes attributes) {
  Node node;
  node.op = op;
  node.domain = domain;
  node.inputs = std::move(inputs);
  node.attributes = std::move(attributes);
  node.origin = node_.origin;
  return emitter_.EmitStatic(std::move(node), std::vector<std::string>(outputs, node_.origin + "/" + op));
}

ValueId ExtentNode::Op(const std::string& op, std::vector<ValueId> inputs, Attributes attributes) {
  return Ops(op, "", std::move(inputs), 1, std::move(attributes))[0];
}

ValueId ExtentNode::Last(const std::string& op, std::vector<ValueId> inputs, Attributes attributes) {
  node_.op = op;
  node_.attributes = std::move(attributes);
  Same(std::move(inputs));
  return results_[0];
}

void ExtentNode::Same(std::vector<ValueId> inputs) {
  Node node = node_;
  node.inputs = std::move(inputs);
  results_ = emitter_.EmitStatic(std::move(node), names_);
}

void ExtentNode::SameWithPadding(std::vector<ValueId> inputs, const Axes& along, double fill) {
  if (along.empty() || names_[0].empty()) return Same(std::move(inputs));
  Node node = node_;
  node.inputs = std::move(inputs);
  std::vector<std::string> names = names_;
  names[0] = node_.origin + "/" + node_.op;
  results_ = emitter_.EmitStatic(std::move(node), names);
  const ValueId made = results_[0];
  const auto& [axis, size] = *along.begin();
  Node where{.op = "Where", .inputs = {Mask(size, shape(made)[axis], axis, rank(made)), made, Scalar(fill, dtype(made))}};
  where.origin = node_.origin;
  results_[0] = emitter_.EmitStatic(std::move(where), {names_[0]})[0];
}

void ExtentNode::SetAxes(size_t output, const Axes& axes) {
  if (output >= results_.size() || results_[output] == kNoValue) return;
  Axes unknown;
  for (const auto& [axis, size] : axes) {
    if (!size.known()) unknown[axis] = size;
  }
  if (!unknown.empty()) extents_.axes_[results_[output]] = std::move(unknown);
}

ValueId ExtentNode::Ints(const std::vector<int64_t>& values) {
  return emitter_.AddConstant(node_.origin + "/ints", Tensor::From(values, Shape{static_cast<int64_t>(values.size())}));
}

ValueId ExtentNode::Int(int64_t value) { return emitter_.AddConstant(node_.origin + "/int", Tensor::Scalar<int64_t>(value)); }

ValueId ExtentNode::Arange(int64_t count, int64_t step, DType dtype) {
  std::vector<int64_t> places(static_cast<size_t>(count));
  for (size_t i = 0; i < places.size(); ++i) places[i] = static_cast<int64_t>(i) * step;
  return emitter_.AddConstant(node_.origin + "/places", Converted(Tensor::From(places, Shape{count}).view(), dtype));
}

ValueId ExtentNode::Scalar(double value, DType dtype) {
  return emitter_.AddConstant(node_.origin + "/scalar", Converted(Tensor::Scalar<double>(value).view(), dtype));
}

// --- padding ------------------------------------------------------------------------------

ValueId ExtentNode::Mask(const Size& size, int64_t bound, int axis, int rank) {
  const ValueId scalar = ScalarOf(size);
  const auto [at, fresh] = extents_.masks_.try_emplace({scalar, bound}, kNoValue);
  if (fresh) at->second = Op("Less", {Arange(bound), scalar});
  if (rank == 1) return at->second;
  std::vector<int64_t> dims(static_cast<size_t>(rank), 1);
  dims[static_cast<size_t>(axis)] = bound;
  return Reshaped(at->second, dims);
}

ValueId ExtentNode::Masked(ValueId id, const Axes& along, double fill) {
  ValueId masked = id;
  for (const auto& [axis, size] : along) {
    masked = Op("Where", {Mask(size, shape(id)[axis], axis, rank(id)), masked, Scalar(fill, dtype(id))});
  }
  return masked;
}

// Pads with copies of the first element; if there is none, with ones, or zeros for possible indices.
ValueId ExtentNode::PaddedTo(ValueId id, const Shape& bounds) {
  if (shape(id) == bounds) return id;
  if (shape(id).elements() == 0) return Op("Expand", {Scalar(IsFloating(dtype(id)) ? 1 : 0, dtype(id)), Ints(bounds.dims())});
  for (int axis = 0; axis < bounds.rank(); ++axis) {
    const int64_t extent = shape(id)[axis];
    if (extent == bounds[axis]) continue;
    std::vector<int64_t> places(static_cast<size_t>(bounds[axis]), 0);
    for (size_t i = 0; i < static_cast<size_t>(extent); ++i) places[i] = static_cast<int64_t>(i);
    id = Op("Gather", {id, Ints(places)}, {{"axis", int64_t{axis}}});
  }
  return id;
}

ValueId ExtentNode::Counts(const Axes& along, const Shape& shape) {
  ValueId counts = kNoValue;
  for (const auto& [axis, size] : along) {
    const ValueId mask = Mask(size, shape[axis], axis, shape.rank());
    counts = counts == kNoValue ? mask : Op("And", {counts, mask});
  }
  return counts;
}

Axes ExtentNode::AxesAmong(ValueId id, const std::vector<int>& wanted) const {
  Axes found = axes(id);
  std::erase_if(found, [&](const auto& axis) { return std::find(wanted.begin(), wanted.end(), axis.first) == wanted.end(); });
  return found;
}

// Lowest and Highest are finite, so that results computed from them, and their gradients, stay finite.
double ExtentNode::Lowest(DType dtype) const {
  switch (dtype) {
    case DType::kFloat64: return std::numeric_limits<double>::lowest();
    case DType::kFloat16: return -65504;
    case DType::kBfloat16: return -3.3895313892515355e38;
    case DType::kInt8: return std::numeric_limits<int8_t>::min();
    case DType::kInt16: return std::numeric_limits<int16_t>::min();
    case DType::kInt32: return std::numeric_limits<int32_t>::min();
    case DType::kInt64: return -0x1p62;
    case DType::kUint8:
    case DType::kUint16:
    case DType::kUint32:
    case DType::kUint64:
    case DType::kBool: return 0;
    default: return std::numeric_limits<float>::lowest();
  }
}

double ExtentNode::BelowAll(DType dtype) const { return IsFloating(dtype) ? -std::numeric_limits<double>::infinity() : Lowest(dtype); }

double ExtentNode::AboveAll(DType dtype) const { return IsFloating(dtype) ? std::numeric_limits<double>::infinity() : Highest(dtype); }

double ExtentNode::Highest(DType dtype) const {
  switch (dtype) {
    case DType::kInt8: return std::numeric_limits<int8_t>::max();
    case DType::kInt16: return std::numeric_limits<int16_t>::max();
    case DType::kInt32: return std::numeric_limits<int32_t>::max();
    case DType::kUint8: return std::numeric_limits<uint8_t>::max();
    case DType::kUint16: return std::numeric_limits<uint16_t>::max();
    case DType::kUint32: return std::numeric_limits<uint32_t>::max();
    case DType::kUint64: return 0x1p63;
    case DType::kBool: return 1;
    default: return -Lowest(dtype);
  }
}

ValueId ExtentNode::ClampedIndices(ValueId indices, const std::vector<int64_t>& extents) {
  const Axes unknown = axes(indices);
  if (unknown.empty()) return indices;
  const DType type = dtype(indices);
  std::vector<int64_t> least, most;
  for (int64_t extent : extents) {
    least.push_back(-extent);
    most.push_back(extent - 1);
  }
  const auto constant = [&](const std::vector<int64_t>& values) {
    const Shape shape = values.size() == 1 ? Shape{} : Shape{static_cast<int64_t>(values.size())};
    return emitter_.AddConstant(node_.origin + "/range", Converted(Tensor::From(values, shape).view(), type));
  };
  ValueId clipped = Op("Max", {Op("Min", {indices, constant(most)}), constant(least)});
  // Valid indices are checked by the kernel.
  return Op("Where", {Counts(unknown, shape(indices)), indices, clipped});
}

ValueId ExtentNode::NonNegativeIndices(ValueId indices, const Size& extent) {
  if (extent.known()) return indices;
  const Tensor* data = emitter_.Constant(indices);
  if (data != nullptr) {
    const std::vector<int64_t> values = IntValues(data->view());
    if (std::all_of(values.begin(), values.end(), [](int64_t value) { return value >= 0; })) return indices;
  }
  ValueId count = ScalarOf(extent);
  if (dtype(indices) != DType::kInt64) count = Op("Cast", {count}, {{"to", static_cast<int64_t>(dtype(indices))}});
  const ValueId from_front = Op("Where", {Op("Less", {indices, Scalar(0, dtype(indices))}), Add(indices, count), indices});
  const Axes unknown = axes(indices);
  if (!unknown.empty()) extents_.axes_[from_front] = unknown;
  return from_front;
}

// Operands that are broadcast along an axis must have the same extent there, or 1.
void ExtentNode::Merge(Axes& into, int axis, const Size& size, int64_t bound, int64_t into_bound) {
  const auto found = into.find(axis);
  if (found == into.end()) {
    into[axis] = into_bound == 1 || into_bound < 0 ? size : Times(size, {bound == 1 ? into_bound : 1});
    return;
  }
  if (found->second == size) return;
  if (bound == 1 || into_bound == 1) {
    found->second = Times(found->second, size);
    return;
  }
  const std::vector<ValueId> same = Ops("SameExtent", kGradloomDomain, {ScalarOf(found->second), ScalarOf(size)}, 1);
  found->second = NewSize(same[0], std::min(Bound(found->second), Bound(size)));
}

ValueId ExtentNode::Cut(ValueId id, int axis, int64_t bound) {
  const Axes unknown = axes(id);
  const ValueId front = Op("Slice", {id, Ints({0}), Ints({bound}), Ints({int64_t{axis}}), Ints({1})});
  if (!unknown.empty()) extents_.axes_[front] = unknown;
  return front;
}

std::vector<ValueId> ExtentNode::WithEqualBounds(std::vector<ValueId> ids, int rank_of_result, int own) {
  for (int axis = 0; axis < rank_of_result; ++axis) {
    // Calls f with each operand that has an extent of several possible elements there, and its axis.
    const auto for_each = [&](const auto& f) {
      for (ValueId& id : ids) {
        const int at = id == kNoValue ? -1 : axis - (rank_of_result - (rank(id) - own));
        if (at >= 0 && shape(id)[at] > 1 && !ExtentOf(id, at).known()) f(id, at);
      }
    };
    int64_t least = std::numeric_limits<int64_t>::max();
    for_each([&](ValueId id, int at) { least = std::min(least, shape(id)[at]); });
    for_each([&](ValueId& id, int at) { id = shape(id)[at] > least ? Cut(id, at, least) : id; });
  }
  return ids;
}

Axes ExtentNode::Broadcast(const std::vector<ValueId>& ids, int rank_of_result) {
  Axes merged;
  for (int axis = 0; axis < rank_of_result; ++axis) {
    // The largest bound so far, and whether it is a fixed extent.
    int64_t so_far = -1;
    bool certain = false;
    for (size_t i = 0; i < ids.size(); ++i) {
      const ValueId id = ids[i];
      if (id == kNoValue) continue;
      const int own = axis - (rank_of_result - rank(id));
      if (own < 0) continue;
      const int64_t bound = shape(id)[own];
      const Size extent = ExtentOf(id, own);
      if (extent.known()) {
        if (bound != 1 && merged.contains(axis)) {
          if (so_far != 1) Refuse(i, own, "another operand has the fixed extent " + std::to_string(bound) + " there");
          merged[axis] = Times(merged[axis], {bound});
        }
        certain = certain || bound != 1;
      } else {
        if (certain && bound != 1) Refuse(i, own, "another operand has the fixed extent " + std::to_string(so_far) + " there");
        Merge(merged, axis, extent, bound, so_far);
      }
      so_far = std::max(so_far, bound);
    }
  }
  return merged;
}

}  // namespace gradloom
