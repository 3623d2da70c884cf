#include "compiler/onnx/translate/upgrade.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gradloom {
namespace {

// A node that is being upgraded.
class Upgrade {
 public:
  Upgrade(Emitter& emitter, Node& node, int since, size_t listed, size_t& num_outputs)
      : emitter_(emitter), node(node), since(since), listed(listed), num_outputs(num_outputs) {}

  ValueId in(size_t i) const { return i < node.inputs.size() ? node.inputs[i] : kNoValue; }
  const Shape& shape(size_t i) const { return emitter_.graph().value(node.inputs[i]).shape; }
  DType dtype(size_t i) const { return emitter_.graph().value(node.inputs[i]).dtype; }

  ValueId Ints(const std::string& name, const std::vector<int64_t>& values) {
    return emitter_.AddConstant(node.origin + "/" + name, Tensor::From<int64_t>(values, Shape{static_cast<int64_t>(values.size())}));
  }
  ValueId Numbers(const std::string& name, const std::vector<float>& values) {
    return emitter_.AddConstant(node.origin + "/" + name, Tensor::From<float>(values, Shape{static_cast<int64_t>(values.size())}));
  }
  ValueId Number(const std::string& name, double value, DType dtype) {
    return emitter_.AddConstant(node.origin + "/" + name, Converted(Tensor::Scalar<double>(value).view(), dtype));
  }
  ValueId Op(const std::string& op, std::vector<ValueId> inputs, Attributes attributes = {}) {
    Node made;
    made.op = op;
    made.inputs = std::move(inputs);
    made.attributes = std::move(attributes);
    made.origin = node.origin;
    return emitter_.Emit(std::move(made), {node.origin + "/" + op})[0];
  }

  // Sets an input after the existing ones.
  void SetInput(size_t i, ValueId id) {
    if (node.inputs.size() <= i) node.inputs.resize(i + 1, kNoValue);
    node.inputs[i] = id;
  }

  // Turns an attribute into input `i`, unless it is absent.
  void IntsToInput(const std::string& name, size_t i) {
    if (!node.attributes.has(name)) return;
    SetInput(i, Ints(name, node.attributes.Ints(name)));
    node.attributes.erase(name);
  }
  void NumberToInput(const std::string& name, size_t i, DType dtype) {
    if (!node.attributes.has(name)) return;
    SetInput(i, Number(name, node.attributes.Float(name, 0), dtype));
    node.attributes.erase(name);
  }

  const Tensor* Constant(ValueId id) { return emitter_.Constant(emitter_.Computed(id)); }

  [[noreturn]] void Unsupported(const std::string& why) {
    throw Error(ErrorCode::kUnsupported, "operator '" + node.op + "' of version " + std::to_string(since) + ": " + why, Describe(node),
                "export the model for opset 17 or newer");
  }

 private:
  Emitter& emitter_;

 public:
  Node& node;
  const int since;
  const size_t listed;
  size_t& num_outputs;
};

using Rule = void (*)(Upgrade& u);

void AxesToInput(Upgrade& u) {
  // An empty list meant all axes, like an absent one.
  if (u.node.attributes.has("axes") && u.node.attributes.Ints("axes").empty()) u.node.attributes.erase("axes");
  u.IntsToInput("axes", 1);
}

void Clip(Upgrade& u) {
  const DType dtype = u.dtype(0);
  u.NumberToInput("min", 1, dtype);
  u.NumberToInput("max", 2, dtype);
}

// Up to opset 12 the axis split the shape in two, and the operator worked on the rows of that matrix.
void FlatSoftmax(Upgrade& u) {
  const Shape shape = u.shape(0);
  const auto axis = NormalAxis(u.node.attributes.Int("axis", 1), shape.rank());
  if (!axis)
    throw Error(ErrorCode::kAttr,
                "axis " + std::to_string(u.node.attributes.Int("axis", 1)) + " is out of range for shape " + shape.ToString(),
                Describe(u.node));
  int64_t behind = 1;
  for (int i = *axis + 1; i < shape.rank(); ++i) behind *= shape[i];
  if (behind == 1) {
    u.node.attributes.set("axis", int64_t{*axis});
    return;
  }
  const ValueId flat = u.Op("Flatten", {u.in(0)}, {{"axis", int64_t{*axis}}});
  const ValueId rows = u.Op(u.node.op, {flat}, {{"axis", int64_t{1}}});
  u.node.op = "Reshape";
  u.node.inputs = {rows, u.Ints("shape", shape.dims())};
  u.node.attributes = {{"allowzero", int64_t{1}}};
}

void Dropout(Upgrade& u) {
  const double ratio = u.node.attributes.Float("ratio", 0.5);
  u.node.attributes.erase("ratio");
  u.SetInput(1, u.Number("ratio", ratio, DType::kFloat32));
}

void BatchNormalization(Upgrade& u) {
  if (u.node.attributes.Int("spatial", 1) != 1) u.Unsupported("spatial=0 has no equivalent in newer opsets");
  u.node.attributes.erase("spatial");
  // More than one output marked a node in training mode; the last two outputs were internal.
  if (u.num_outputs > 1) {
    u.node.attributes.set("training_mode", int64_t{1});
    u.num_outputs = std::min<size_t>(u.num_outputs, 3);
  }
}

void Pad(Upgrade& u) {
  const DType dtype = u.dtype(0);
  u.IntsToInput("pads", 1);
  u.NumberToInput("value", 2, dtype);
}

// Negative pads remove elements before the rest is repeated, in onnxruntime and in PyTorch's circular padding; ONNX's own text leaves this
// open. Along an axis with a negative and a positive pad, kernels would repeat removed elements.
void CropBeforeWrap(Upgrade& u) {
  if (u.node.attributes.String("mode", "constant") != "wrap") return;
  const auto known = [&](size_t i) {
    const Tensor* data = u.in(i) == kNoValue ? nullptr : u.Constant(u.in(i));
    return data == nullptr ? std::vector<int64_t>() : IntValues(data->view());
  };
  std::vector<int64_t> pads = known(1), axes = known(3), begins, ends;
  const Shape shape = u.shape(0);
  const size_t count = pads.size() / 2;
  if (axes.empty()) {
    axes.resize(count);
    std::iota(axes.begin(), axes.end(), int64_t{0});
  }
  if (axes.size() != count) return;
  bool mixed = false;
  for (size_t i = 0; i < count; ++i) {
    const auto axis = NormalAxis(axes[i], shape.rank());
    if (!axis) return;
    int64_t &before = pads[i], &after = pads[count + i];
    const int64_t extent = shape[*axis];
    begins.push_back(-std::clamp<int64_t>(before, -extent, 0));
    ends.push_back(extent + std::clamp<int64_t>(after, -extent, 0));
    if (std::max(before, after) > 0 && std::min(before, after) < 0) {
      mixed = true;
      if (begins.back() >= ends.back())
        throw Error(ErrorCode::kShape, "its pads remove all " + std::to_string(extent) + " elements of axis " + std::to_string(*axis),
                    Describe(u.node));
    }
    before = std::max<int64_t>(before, 0);
    after = std::max<int64_t>(after, 0);
  }
  if (!mixed) return;
  u.node.inputs[0] = u.Op("Slice", {u.in(0), u.Ints("starts", begins), u.Ints("ends", ends), u.Ints("axes", axes)});
  u.node.inputs[1] = u.Ints("pads", pads);
}

void Slice(Upgrade& u) {
  u.IntsToInput("starts", 1);
  u.IntsToInput("ends", 2);
  u.IntsToInput("axes", 3);
}

void SplitToInput(Upgrade& u) { u.IntsToInput("split", 1); }

// Parts without a name are parts too.
void SplitCount(Upgrade& u) {
  if (u.in(1) == kNoValue) u.node.attributes.set("num_outputs", static_cast<int64_t>(u.listed));
}

void TopK(Upgrade& u) {
  const int64_t k = u.node.attributes.Int("k", 0);
  u.node.attributes.erase("k");
  u.SetInput(1, u.Ints("k", {k}));
}

// Both old operators sampled at input = output / scale and took the nearest pixel at or below it; along an axis that shrinks, the one
// above.
void OldResize(Upgrade& u) {
  const Tensor* scales = u.Constant(u.in(1));
  if (scales == nullptr) u.Unsupported("its scales must be constant");
  std::string mode = u.node.attributes.String("mode", "nearest");
  if (mode == "bilinear") mode = "linear";
  u.node.op = "Resize";
  u.node.attributes = {{"mode", mode}, {"coordinate_transformation_mode", std::string("asymmetric")}};
  const ValueId given = u.in(1);
  u.node.inputs = {u.in(0), kNoValue, given};
  if (mode != "nearest") return;
  std::vector<float> less, more;
  for (int64_t i = 0; i < scales->elements(); ++i) {
    const auto scale = static_cast<float>(ElementAsDouble(scales->view(), i));
    less.push_back(std::min(scale, 1.0f));
    more.push_back(std::max(scale, 1.0f));
  }
  const auto is_one = [](float scale) { return scale == 1; };
  const bool shrinks = !std::all_of(less.begin(), less.end(), is_one), grows = !std::all_of(more.begin(), more.end(), is_one);
  Attributes below = u.node.attributes, above = u.node.attributes;
  below.set("nearest_mode", std::string("floor"));
  above.set("nearest_mode", std::string("ceil"));
  if (shrinks && grows)
    u.node.inputs = {u.Op("Resize", {u.in(0), kNoValue, u.Numbers("shrinking", less)}, above), kNoValue, u.Numbers("growing", more)};
  u.node.attributes = shrinks && !grows ? above : below;
}

void Upsample7(Upgrade& u) {
  const std::vector<double> scales = u.node.attributes.Floats("scales");
  u.SetInput(1, u.Numbers("scales", std::vector<float>(scales.begin(), scales.end())));
  OldResize(u);
}

// TensorFlow's nearest pixel with half-pixel centers, which opset 13 removed: floor((x + 0.5) / scale). This is the half_pixel coordinate
// of x, rounded up at halves.
void NearestOfTensorFlow(Upgrade& u) {
  if (u.node.attributes.String("coordinate_transformation_mode", "half_pixel") != "tf_half_pixel_for_nn") return;
  const std::string nearest = u.node.attributes.String("nearest_mode", "round_prefer_floor");
  if (u.node.attributes.String("mode", "nearest") != "nearest" || (nearest != "floor" && nearest != "round_prefer_floor"))
    u.Unsupported("coordinate_transformation_mode tf_half_pixel_for_nn is only supported with nearest_mode floor or round_prefer_floor");
  u.node.attributes.set("coordinate_transformation_mode", std::string("half_pixel"));
  u.node.attributes.set("nearest_mode", std::string(nearest == "floor" ? "round_prefer_ceil" : "ceil"));
}

// Empty tensors stood for operands that are omitted today.
void DropEmptyOperands(Upgrade& u) {
  for (size_t i = 1; i < u.node.inputs.size(); ++i) {
    if (u.in(i) != kNoValue && u.shape(i).elements() == 0) u.node.inputs[i] = kNoValue;
  }
}

void GridSample(Upgrade& u) {
  const std::string mode = u.node.attributes.String("mode", "bilinear");
  u.node.attributes.set("mode", mode == "bilinear" ? std::string("linear") : mode == "bicubic" ? std::string("cubic") : mode);
}

// Scale and bias were per group; now they are per channel.
void GroupNormalization(Upgrade& u) {
  const int64_t groups = u.node.attributes.Int("num_groups", 0);
  const int64_t channels = u.shape(0).rank() > 1 ? u.shape(0)[1] : 0;
  if (groups <= 0 || channels % groups != 0) {
    throw Error(ErrorCode::kAttr, std::to_string(channels) + " channels cannot be divided into " + std::to_string(groups) + " groups",
                Describe(u.node));
  }
  for (size_t i = 1; i < u.node.inputs.size(); ++i) {
    const ValueId column = u.Op("Reshape", {u.in(i), u.Ints("column", {groups, 1})});
    const ValueId wide = u.Op("Expand", {column, u.Ints("channels", {groups, channels / groups})});
    u.node.inputs[i] = u.Op("Reshape", {wide, u.Ints("all", {channels})});
  }
}

void RoiAlign(Upgrade& u) { u.node.attributes.set("coordinate_transformation_mode", std::string("output_half_pixel")); }

void Scatter(Upgrade& u) { u.node.op = "ScatterElements"; }

void Dft(Upgrade& u) {
  u.SetInput(2, u.Number("axis", static_cast<double>(u.node.attributes.Int("axis", 1)), DType::kInt64));
  u.node.attributes.erase("axis");
}

// Of integers, which are computed in float64. The result is rounded towards zero, as by NumPy.
void OfIntegers(Upgrade& u) {
  const DType dtype = u.dtype(0);
  if (IsFloating(dtype)) return;
  std::vector<ValueId> inputs = u.node.inputs;
  inputs[0] = u.Op("Cast", {u.in(0)}, {{"to", static_cast<int64_t>(DType::kFloat64)}});
  u.node.inputs = {u.Op(u.node.op, std::move(inputs), u.node.attributes)};
  u.node.op = "Cast";
  u.node.attributes = {{"to", static_cast<int64_t>(dtype)}};
}

// Replaces an operand by a cast of it, unless it has the type.
void CastInput(Upgrade& u, size_t i, DType dtype) {
  if (u.in(i) != kNoValue && u.dtype(i) != dtype) u.node.inputs[i] = u.Op("Cast", {u.in(i)}, {{"to", static_cast<int64_t>(dtype)}});
}

// ONNX's body joins it with an int64 shape.
void CenterCropPad(Upgrade& u) { CastInput(u, 1, DType::kInt64); }

// ONNX's type inference reads int64 only.
void PadAxes(Upgrade& u) { CastInput(u, 3, DType::kInt64); }

// ONNX's type inference reads int32 and int64 only.
void OneHot(Upgrade& u) { CastInput(u, 1, DType::kInt64); }

void QuantizeLinear(Upgrade& u) {
  for (size_t i : {0, 1}) {
    if (u.dtype(i) == DType::kInt32) CastInput(u, i, DType::kFloat32);
  }
}

struct Row {
  std::string_view op;
  int last;  // applies to versions of the operator up to this one
  Rule rule;
};

// Every operator of the default domain whose meaning or form changed between opset 7 and kOpset, and those that ONNX permits for types
// or numbers that kernels do not take. If versions only differ in types, in attributes whose default is the old behavior, or in optional
// outputs and inputs, there is nothing to do: Add, Attention, AveragePool, Cast, CastLike, Concat, Conv, DepthToSpace, DequantizeLinear,
// Gather, GatherND, Gemm, GRU, If, LSTM, Loop, LpPool, Max, MaxPool, Mean, Min, Pow, PRelu, Range, Reshape, RNN, ScatterElements,
// ScatterND, Shape, SpaceToDepth, Sum and others. Rows of one operator are applied in this order.
constexpr Row kRows[] = {
    {"BatchNormalization", 9, BatchNormalization},
    {"CenterCropPad", kOpset, CenterCropPad},
    {"Clip", 6, Clip},
    {"DFT", 17, Dft},
    {"Dropout", 10, Dropout},
    {"Erf", 12, OfIntegers},
    {"GridSample", 16, GridSample},
    {"GridSample", kOpset, OfIntegers},
    {"GroupNormalization", 18, GroupNormalization},
    {"Hardmax", 11, FlatSoftmax},
    {"LogSoftmax", 11, FlatSoftmax},
    {"OneHot", kOpset, OneHot},
    {"Pad", 2, Pad},
    {"Pad", kOpset, PadAxes},
    {"Pad", kOpset, CropBeforeWrap},
    {"QuantizeLinear", kOpset, QuantizeLinear},
    {"ReduceL1", 13, AxesToInput},
    {"ReduceL2", 13, AxesToInput},
    {"ReduceLogSum", 13, AxesToInput},
    {"ReduceLogSum", 27, OfIntegers},
    {"ReduceLogSumExp", 13, AxesToInput},
    {"ReduceLogSumExp", 27, OfIntegers},
    {"ReduceMax", 13, AxesToInput},
    {"ReduceMean", 13, AxesToInput},
    {"ReduceMin", 13, AxesToInput},
    {"ReduceProd", 13, AxesToInput},
    {"ReduceSum", 11, AxesToInput},
    {"ReduceSumSquare", 13, AxesToInput},
    {"Resize", 10, OldResize},
    // Gone by the book from opset 13 on, where tf2onnx writes it all the same.
    {"Resize", 19, NearestOfTensorFlow},
    {"Resize", 19, DropEmptyOperands},
    {"RoiAlign", 10, RoiAlign},
    {"Scatter", 11, Scatter},
    {"Slice", 1, Slice},
    {"Softmax", 11, FlatSoftmax},
    {"Split", 11, SplitToInput},
    {"Split", 13, SplitCount},
    {"Squeeze", 11, AxesToInput},
    {"TopK", 1, TopK},
    {"Unsqueeze", 11, AxesToInput},
    {"Upsample", 7, Upsample7},
    // Also for opset 10 and later, which removed it, because files still contain it.
    {"Upsample", 10, OldResize},
};

}  // namespace

void UpgradeNode(Emitter& emitter, Node& node, int since, size_t listed, size_t& num_outputs) {
  if (!node.domain.empty()) return;
  const std::string op = node.op;
  Upgrade upgrade(emitter, node, since, listed, num_outputs);
  for (const Row& row : kRows) {
    if (row.op == op && since <= row.last && node.op == op) row.rule(upgrade);
  }
}

bool IsUpgraded(const Graph& graph, const Node& node, int since) {
  if (!node.domain.empty()) return false;
  const auto changes = [&](const Row& row) {
    if (row.op != node.op || since > row.last) return false;
    // Nodes that rules of kOpset leave have the same form in older versions; kOpset has no node of integers of the other operators.
    if (row.last == kOpset || row.rule == OfIntegers) return false;
    // Without the moved attribute both forms are equal.
    if (row.rule == AxesToInput && node.op.starts_with("Reduce")) return node.inputs.size() > 1;
    return row.rule != FlatSoftmax || graph.value(node.inputs[0]).shape.rank() != 2 || node.attributes.Int("axis", -1) != 1;
  };
  return std::any_of(std::begin(kRows), std::end(kRows), changes);
}

}  // namespace gradloom
