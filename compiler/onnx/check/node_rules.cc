#include "compiler/onnx/check/node_rules.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <unordered_map>

#include "compiler/onnx/check/attribute_rules.h"
#include "runtime/base/counted.h"
#include "runtime/base/error.h"
#include "runtime/base/number_text.h"

namespace gradloom {
namespace {

// The libraries' kernels have int32 window extents.
constexpr int64_t kMaxWindow = std::numeric_limits<int32_t>::max();

class Rules {
 public:
  Rules(const Graph& graph, const Node& node) : graph_(graph), node_(node) {}

  bool has(size_t i) const { return i < node_.inputs.size() && node_.inputs[i] != kNoValue; }
  const Shape& shape(size_t i) const { return graph_.value(node_.inputs[i]).shape; }
  DType type(size_t i) const { return graph_.value(node_.inputs[i]).dtype; }
  std::string operand(size_t i) const {
    const Value& value = graph_.value(node_.inputs[i]);
    return "'" + Escaped(value.name) + "' " + graph_.type(value.id).ToString();
  }
  // The data of a constant input, or null.
  const Tensor* constant(size_t i) const {
    return has(i) && graph_.value(node_.inputs[i]).role == Role::kConst ? graph_.data(node_.inputs[i]) : nullptr;
  }
  std::vector<int64_t> ints(const char* name) const { return node_.attributes.Ints(name); }

  [[noreturn]] void Fail(ErrorCode code, const std::string& message) const {
    std::string operands;
    for (size_t i = 0; i < std::min<size_t>(node_.inputs.size(), 8); ++i) {
      if (has(i)) operands += (operands.empty() ? "  inputs " : ", ") + operand(i);
    }
    throw Error(code, message, Describe(node_) + operands);
  }

  // Checks that strides, dilations and kernels are lists of positive numbers.
  void Window() const {
    for (const char* name : {"kernel_shape", "strides", "dilations"}) {
      for (int64_t extent : ints(name)) {
        if (extent >= 1 && extent <= kMaxWindow) continue;
        Fail(ErrorCode::kAttr,
             std::string("attribute '") + name + "' is " + List(ints(name)) + "; each must be from 1 to " + std::to_string(kMaxWindow));
      }
    }
    for (int64_t pad : ints("pads")) {
      if (pad < -kMaxWindow || pad > kMaxWindow) {
        Fail(ErrorCode::kAttr, "attribute 'pads' is " + List(ints("pads")) + "; none may exceed " + std::to_string(kMaxWindow));
      }
    }
  }

  // `weight`: the index of the weight among the inputs.
  void Convolution(size_t weight, bool transposed) const {
    Window();
    if (!has(0) || !has(weight) || shape(0).rank() < 3 || shape(weight).rank() != shape(0).rank()) return;
    const Shape &x = shape(0), &w = shape(weight);
    const int64_t group = node_.attributes.Int("group", 1);
    if (group < 1) Fail(ErrorCode::kAttr, "attribute 'group' must be at least 1, got " + std::to_string(group));
    const std::string groups = Counted(group, "group");
    if (transposed) {
      if (w[0] != x[1]) Fail(ErrorCode::kShape, "a weight of " + w.ToString() + " does not fit " + std::to_string(x[1]) + " channels");
      if (x[1] % group != 0) Fail(ErrorCode::kAttr, std::to_string(x[1]) + " channels cannot be divided into " + groups);
    } else {
      // Compares quotients, because the product may overflow.
      if (x[1] % group != 0 || w[1] != x[1] / group)
        Fail(ErrorCode::kShape, "a weight of " + w.ToString() + " does not fit " + std::to_string(x[1]) + " channels in " + groups);
      if (w[0] % group != 0) Fail(ErrorCode::kAttr, std::to_string(w[0]) + " output channels cannot be divided into " + groups);
    }
    const std::vector<int64_t> kernel = ints("kernel_shape"), dilations = ints("dilations");
    if (!kernel.empty() && kernel != std::vector<int64_t>(w.begin() + 2, w.end()))
      Fail(ErrorCode::kAttr, "attribute 'kernel_shape' is " + List(kernel) + ", but the weight is " + w.ToString());
    for (size_t i = 0; i < dilations.size() && static_cast<int>(i) + 2 < w.rank(); ++i) {
      if (w[static_cast<int>(i) + 2] > 0 && dilations[i] > kMaxWindow / w[static_cast<int>(i) + 2])
        Fail(ErrorCode::kAttr, "attribute 'dilations' is " + List(dilations) + ": a kernel of " + w.ToString() + " would span more than " +
                                   std::to_string(kMaxWindow));
    }
    if (transposed) Reach(w);
    const size_t bias = weight == 1 ? 2 : 8;
    const int64_t outputs = transposed ? w[1] * group : w[0];
    const bool has_bias = node_.op == "Conv" || node_.op == "ConvTranspose" || node_.op == "QLinearConv";
    if (has_bias && has(bias) && shape(bias) != Shape{outputs})
      Fail(ErrorCode::kShape, "a bias of " + shape(bias).ToString() + " does not fit " + std::to_string(outputs) + " output channels");
  }

  // The attribute `output_shape` of a transposed convolution may exceed the computed extent by less than one stride (or dilation).
  void Reach(const Shape& w) const {
    const auto at = [](const std::vector<int64_t>& numbers, size_t i, int64_t otherwise) {
      return i < numbers.size() ? numbers[i] : otherwise;
    };
    const std::vector<int64_t> asked = ints("output_shape"), strides = ints("strides"), dilations = ints("dilations");
    for (size_t i = 0; i < asked.size() && static_cast<int>(i) + 2 < w.rank(); ++i) {
      const int axis = static_cast<int>(i) + 2;
      const double stride = static_cast<double>(at(strides, i, 1)), dilation = static_cast<double>(at(dilations, i, 1));
      const double reach = stride * static_cast<double>(shape(0)[axis] - 1) + static_cast<double>(at(ints("output_padding"), i, 0)) +
                           dilation * static_cast<double>(w[axis] - 1) + 1;
      if (static_cast<double>(asked[i]) >= reach + std::max(stride, dilation))
        Fail(ErrorCode::kAttr, "attribute 'output_shape' is " + List(asked) + ", but along axis " + std::to_string(axis) + " an input of " +
                                   shape(0).ToString() + " gives at most " + NumberText(reach + std::max(stride, dilation) - 1));
    }
  }

  // Onnx's type inference copies the shape, whatever it is.
  void HasChannels() const {
    if (shape(0).rank() < 2) Fail(ErrorCode::kShape, "an input of " + shape(0).ToString() + " has no axis of channels, which is axis 1");
  }

  // Checks that scale and bias have one element per channel (axis 1).
  void Channels() const {
    HasChannels();
    for (const size_t i : {1, 2}) {
      if (has(i) && shape(i) != Shape{shape(0)[1]})
        Fail(ErrorCode::kShape, std::string(i == 1 ? "a scale of " : "a bias of ") + shape(i).ToString() + " does not fit " +
                                    std::to_string(shape(0)[1]) + " channels");
    }
  }

  // Returns the extents of the normalized axes, from attribute `axis` on.
  Shape normalized() const {
    const auto axis = NormalAxis(node_.attributes.Int("axis", -1), shape(0).rank());
    if (!axis)
      Fail(ErrorCode::kAttr, "attribute 'axis' is " + std::to_string(node_.attributes.Int("axis", -1)) + ", which is out of range for " +
                                 shape(0).ToString());
    return Shape(std::vector<int64_t>(shape(0).begin() + *axis, shape(0).end()));
  }

  static bool Repeats(const Shape& from, const Shape& to) {
    bool fits = from.rank() <= to.rank();
    for (int i = 0; fits && i < from.rank(); ++i) fits = from[i] == 1 || from[i] == to[i + to.rank() - from.rank()];
    return fits;
  }

  // Checks that an operand broadcasts to a shape without enlarging it.
  void Repeated(size_t input, const char* what, const Shape& to) const {
    if (has(input) && !Repeats(shape(input), to))
      Fail(ErrorCode::kShape, std::string(what) + " of " + shape(input).ToString() + " does not fit " + to.ToString());
  }

  // ONNX allows the operand another type than the input, but kernels write their results in the input's. The import converts it.
  void SameType(size_t input, const char* what) const {
    if (!has(input) || type(input) == type(0)) return;
    Fail(ErrorCode::kType, std::string(what) + " of " + std::string(DTypeName(type(input))) + " is applied to " +
                               std::string(DTypeName(type(0))) + " numbers: convert it first");
  }

  // Scale and bias must broadcast to the normalized shape; leading axes of extent 1 are allowed.
  void EachNormalized() const {
    const Shape to = normalized();
    for (const size_t i : {1, 2}) {
      if (!has(i)) continue;
      auto first = shape(i).begin();
      while (shape(i).end() - first > to.rank() && *first == 1) ++first;
      if (!Repeats(Shape(std::vector<int64_t>(first, shape(i).end())), to))
        Fail(ErrorCode::kShape, std::string(i == 1 ? "a scale of " : "a bias of ") + shape(i).ToString() +
                                    " does not fit the normalized shape " + to.ToString());
    }
  }

  void Loss() const {
    const std::string reduction = node_.attributes.String("reduction", "mean");
    if (reduction != "none" && reduction != "sum" && reduction != "mean")
      Fail(ErrorCode::kAttr, "attribute 'reduction' must be none, sum or mean, got \"" + Escaped(reduction) + "\"");
    const Shape &scores = shape(0), &labels = shape(1);
    Shape wanted;
    for (int i = 0; i < scores.rank(); ++i) {
      if (i != 1) wanted.push_back(scores[i]);
    }
    if (scores.rank() < 2 || labels != wanted)
      Fail(ErrorCode::kShape, "labels of " + labels.ToString() + " do not fit scores of " + scores.ToString() +
                                  ": labels must have the shape of scores without axis 1");
    if (has(2) && shape(2) != Shape{scores[1]})
      Fail(ErrorCode::kShape, "weights of " + shape(2).ToString() + " do not fit " + std::to_string(scores[1]) + " classes");
  }

  // Onnx's type inference takes a list that is too short for the whole order.
  void Order() const {
    const std::vector<int64_t> perm = ints("perm");
    if (!perm.empty() && std::ssize(perm) != shape(0).rank())
      Fail(ErrorCode::kAttr,
           "attribute 'perm' is " + List(perm) + ", but " + shape(0).ToString() + " has " + Counted(shape(0).rank(), "axis", "axes"));
  }

  // Checks constant indices into one axis. Data-dependent indices are checked at run time.
  void Indices(const char* axis_name) const {
    const Tensor* indices = constant(1);
    const auto axis = NormalAxis(node_.attributes.Int(axis_name, 0), shape(0).rank());
    if (indices == nullptr || !axis) return;
    const int64_t extent = shape(0)[*axis];
    for (int64_t i = 0; i < indices->elements(); ++i) {
      const int64_t index = indices->dtype() == DType::kInt64 ? indices->as<int64_t>()[static_cast<size_t>(i)]
                                                              : indices->as<int32_t>()[static_cast<size_t>(i)];
      if (index >= -extent && index < extent) continue;
      Fail(ErrorCode::kValue, "index " + std::to_string(index) + " is out of range for an axis of extent " + std::to_string(extent));
    }
  }

  // Checks operands with one index for each element: indices must have the data's rank, and must not exceed the data along the other axes.
  void Elements() const {
    const Shape &data = shape(0), &indices = shape(1);
    const auto axis = NormalAxis(node_.attributes.Int("axis", 0), data.rank());
    if (!axis)
      Fail(ErrorCode::kAttr, "attribute 'axis' is " + std::to_string(node_.attributes.Int("axis", 0)) +
                                 ", which is out of range for data of " + data.ToString());
    bool fits = indices.rank() == data.rank();
    for (int i = 0; fits && i < data.rank(); ++i) fits = i == *axis || indices[i] <= data[i];
    if (!fits) Fail(ErrorCode::kShape, "indices of " + indices.ToString() + " do not fit data of " + data.ToString());
    if (has(2) && shape(2) != indices)
      Fail(ErrorCode::kShape, "updates of " + shape(2).ToString() + " do not fit indices of " + indices.ToString());
    Indices("axis");
  }

  // Checks constant index tuples into the axes after the first `batch_dims`.
  void TupleIndices() const {
    const Tensor* indices = constant(1);
    if (indices == nullptr || shape(1).rank() == 0) return;
    const Shape& data = shape(0);
    const int64_t depth = shape(1)[shape(1).rank() - 1], first = node_.attributes.Int("batch_dims", 0);
    if (first < 0 || depth < 1 || first + depth > data.rank()) return;
    for (int64_t i = 0; i < indices->elements(); ++i) {
      const int64_t index = ElementAsInt(indices->view(), i), extent = data[static_cast<int>(first + i % depth)];
      if (index < -extent || index >= extent)
        Fail(ErrorCode::kValue, "index " + std::to_string(index) + " is out of range for an axis of extent " + std::to_string(extent));
    }
  }

  // Checks that updates have a slice for each index tuple.
  void Tuples() const {
    const Shape &data = shape(0), &indices = shape(1);
    if (indices.rank() == 0) return;
    const int64_t depth = indices[indices.rank() - 1];
    if (depth > data.rank())
      Fail(ErrorCode::kShape, "indices of " + indices.ToString() + " have more components than data of " + data.ToString() + " has axes");
    Shape slices(std::vector<int64_t>(indices.begin(), indices.end() - 1));
    for (int i = static_cast<int>(depth); i < data.rank(); ++i) slices.push_back(data[i]);
    if (shape(2) != slices)
      Fail(ErrorCode::kShape, "updates of " + shape(2).ToString() + " do not fit indices of " + indices.ToString() + " into data of " +
                                  data.ToString() + ": expected updates of " + slices.ToString());
    TupleIndices();
  }

  void Depth() const {
    const Tensor* depth = constant(1);
    if (depth == nullptr || depth->elements() != 1) return;
    const double value = ElementAsDouble(depth->view(), 0);
    if (!(value >= 0)) Fail(ErrorCode::kValue, "the depth must not be negative, got " + NumberText(value));
  }

  void Ratio() const {
    const Tensor* ratio = constant(1);
    if (ratio == nullptr || ratio->elements() != 1) return;
    const double value = ElementAsDouble(ratio->view(), 0);
    if (!(value >= 0 && value <= 1)) Fail(ErrorCode::kValue, "the ratio must be from 0 to 1, got " + NumberText(value));
  }

  // Checks known steps of a Slice.
  void Slices() const {
    if (shape(0).rank() == 0) Fail(ErrorCode::kShape, "the operand must have at least one axis");
    EachElement(
        4, "step", [](double step) { return step != 0; }, "must not be 0");
  }

  // Checks each element of a constant operand.
  template <typename Fits>
  void EachElement(size_t input, const std::string& what, Fits fits, const std::string& rule) const {
    const Tensor* values = constant(input);
    for (int64_t i = 0; values != nullptr && i < values->elements(); ++i) {
      const double value = ElementAsDouble(values->view(), i);
      if (!fits(value)) Fail(ErrorCode::kValue, "a " + what + " " + rule + ", got " + NumberText(value));
    }
  }

  void Scales() const {
    EachElement(
        2, "scale", [](double scale) { return scale > 0 && std::isfinite(scale); }, "must be positive and finite");
    EachElement(
        3, "size", [](double size) { return size >= 0; }, "must not be negative");
  }

  // Checks an axis that is given as an operand.
  void AxisOperand() const {
    const int rank = shape(0).rank();
    EachElement(
        1, "axis", [&](double axis) { return axis >= -rank && axis < rank; },
        "must be from " + std::to_string(-rank) + " to " + std::to_string(rank - 1));
  }

  void Blocks() const {
    const int64_t block = node_.attributes.Int("blocksize", 1);
    const Shape& x = shape(0);
    if (x.rank() == 4 && (x[2] % block != 0 || x[3] % block != 0))
      Fail(ErrorCode::kShape,
           "attribute 'blocksize' is " + std::to_string(block) + ", which does not divide the spatial axes of " + x.ToString());
  }

  void Bounds() const {
    for (const size_t i : {1, 2}) {
      if (has(i) && (shape(i).rank() > 1 || shape(i).elements() != 1))
        Fail(ErrorCode::kShape, std::string(i == 1 ? "min" : "max") + " must be a scalar, got " + shape(i).ToString());
    }
  }

  void Reversed() const {
    const int64_t batch = node_.attributes.Int("batch_axis", 1), time = node_.attributes.Int("time_axis", 0);
    if (batch < 0 || batch > 1 || time < 0 || time > 1 || batch == time)
      Fail(ErrorCode::kAttr, "attributes 'batch_axis' and 'time_axis' must be 0 and 1, or 1 and 0, got " + std::to_string(batch) + " and " +
                                 std::to_string(time));
    if (shape(0).rank() < 2) return;
    const int64_t sequences = shape(0)[static_cast<int>(batch)];
    if (has(1) && shape(1) != Shape{sequences})
      Fail(ErrorCode::kShape, "lengths of " + shape(1).ToString() + " do not fit " + std::to_string(sequences) + " sequences");
    const auto steps = static_cast<double>(shape(0)[static_cast<int>(time)]);
    EachElement(
        1, "length of a sequence", [&](double length) { return length >= 0 && length <= steps; }, "must be from 0 to " + NumberText(steps));
  }

  // onnx's type inference does not check the number of parts. The last parts need not be outputs.
  void Parts() const {
    const auto outputs = static_cast<int64_t>(node_.outputs.size()), parts = node_.attributes.Int("num_outputs", outputs);
    const std::string given = "attribute 'num_outputs' is " + std::to_string(parts);
    if (parts < outputs) Fail(ErrorCode::kAttr, given + ", but this node has " + std::to_string(outputs) + " outputs");
    if (!has(0)) return;
    int64_t most = outputs;
    for (int64_t extent : shape(0)) most = std::max(most, extent);
    if (parts > most) Fail(ErrorCode::kAttr, given + ", which is more than any extent of its operand");
  }

  void Count(const std::vector<ValueType>& types) const {
    if (types[0].shape.elements() == shape(0).elements()) return;
    Fail(ErrorCode::kShape, shape(0).ToString() + " has " + std::to_string(shape(0).elements()) + " elements, but " +
                                types[0].shape.ToString() + " has " + std::to_string(types[0].shape.elements()));
  }

  // C of a Gemm must broadcast to the product; type inference does not check it.
  void Addend(const std::vector<ValueType>& types) const {
    if (!has(2)) return;
    const Shape &c = shape(2), &y = types[0].shape;
    if (!Repeats(c, y)) Fail(ErrorCode::kShape, "C " + c.ToString() + " does not fit a product of " + y.ToString());
  }

  // Checks that there is one cosine and sine for each rotated pair of features. Those of a single sample may serve all.
  void Turned() const {
    if (!has(1) || !has(2) || (shape(0).rank() != 3 && shape(0).rank() != 4)) return;
    const bool parted = shape(0).rank() == 4, chosen = has(3);
    const int64_t heads = node_.attributes.Int("num_heads", 0);
    if (!parted && (heads <= 0 || shape(0)[2] % heads != 0)) return;
    const int64_t width = parted ? shape(0)[3] : shape(0)[2] / heads, part = node_.attributes.Int("rotary_embedding_dim", 0);
    const int64_t pairs = (part > 0 ? part : width) / 2, length = shape(0)[parted ? 2 : 1];
    const Shape& cos = shape(1);
    if (cos != shape(2)) Fail(ErrorCode::kShape, "cos_cache and sin_cache must have the same shape");
    if (cos.rank() != (chosen ? 2 : 3) || cos[cos.rank() - 1] != pairs || (!chosen && cos[1] != length)) {
      Fail(ErrorCode::kShape, "cos_cache and sin_cache of " + cos.ToString() + " do not fit " + std::to_string(pairs) +
                                  " pairs of features" + (chosen ? "" : " at " + std::to_string(length) + " positions"));
    }
  }

  // Checks that the last axis holds real or complex numbers.
  void Transform() const {
    const Shape& x = shape(0);
    if (x.rank() > 0 && x[x.rank() - 1] != 1 && x[x.rank() - 1] != 2)
      Fail(ErrorCode::kShape,
           "the last axis of the signal must have extent 1 (real) or 2 (complex), got " + std::to_string(x[x.rank() - 1]));
    EachElement(
        1, "dft_length", [](double length) { return length >= 1; }, "must be at least 1");
  }

  static std::string List(const std::vector<int64_t>& numbers) {
    std::string text;
    for (size_t i = 0; i < std::min<size_t>(numbers.size(), 16); ++i) text += (i == 0 ? "" : ",") + std::to_string(numbers[i]);
    return "[" + text + (numbers.size() > 16 ? ",..." : "") + "]";
  }

 private:
  const Graph& graph_;
  const Node& node_;
};

using Rule = void (*)(const Rules& rules);

const std::unordered_map<std::string_view, Rule>& OperandRules() {
  static const std::unordered_map<std::string_view, Rule> rules = {
      {"AveragePool", [](const Rules& r) { r.Window(); }},
      {"Clip", [](const Rules& r) { r.Bounds(); }},
      {"Conv", [](const Rules& r) { r.Convolution(1, false); }},
      {"ConvInteger", [](const Rules& r) { r.Convolution(1, false); }},
      {"ConvTranspose", [](const Rules& r) { r.Convolution(1, true); }},
      {"CumSum", [](const Rules& r) { r.AxisOperand(); }},
      {"DFT", [](const Rules& r) { r.Transform(); }},
      {"Dropout", [](const Rules& r) { r.Ratio(); }},
      {"Gather", [](const Rules& r) { r.Indices("axis"); }},
      {"GatherElements", [](const Rules& r) { r.Elements(); }},
      {"GatherND", [](const Rules& r) { r.TupleIndices(); }},
      {"GroupNormalization", [](const Rules& r) { r.HasChannels(); }},
      {"InstanceNormalization", [](const Rules& r) { r.Channels(); }},
      {"LRN", [](const Rules& r) { r.HasChannels(); }},
      {"LayerNormalization", [](const Rules& r) { r.EachNormalized(); }},
      {"LpPool", [](const Rules& r) { r.Window(); }},
      {"MaxPool", [](const Rules& r) { r.Window(); }},
      {"NegativeLogLikelihoodLoss", [](const Rules& r) { r.Loss(); }},
      {"OneHot", [](const Rules& r) { r.Depth(); }},
      {"PRelu", [](const Rules& r) { r.Repeated(1, "a slope", r.shape(0)); }},
      {"QLinearConv", [](const Rules& r) { r.Convolution(3, false); }},
      {"RMSNormalization",
       [](const Rules& r) {
         r.SameType(1, "a scale");
         r.Repeated(1, "a scale", r.normalized());
       }},
      {"Resize", [](const Rules& r) { r.Scales(); }},
      {"ReverseSequence", [](const Rules& r) { r.Reversed(); }},
      {"RotaryEmbedding", [](const Rules& r) { r.Turned(); }},
      {"ScatterElements", [](const Rules& r) { r.Elements(); }},
      {"ScatterND", [](const Rules& r) { r.Tuples(); }},
      {"Slice", [](const Rules& r) { r.Slices(); }},
      {"SoftmaxCrossEntropyLoss", [](const Rules& r) { r.Loss(); }},
      {"SpaceToDepth", [](const Rules& r) { r.Blocks(); }},
      {"Split", [](const Rules& r) { r.Parts(); }},
      {"Tile",
       [](const Rules& r) {
         r.EachElement(
             1, "repeat", [](double times) { return times >= 0; }, "must not be negative");
       }},
      {"Transpose", [](const Rules& r) { r.Order(); }},
      {"TopK",
       [](const Rules& r) {
         r.EachElement(
             1, "k", [](double k) { return k >= 0; }, "must not be negative");
       }},
  };
  return rules;
}

}  // namespace

void CheckOperands(const Graph& graph, const Node& node) {
  if (!node.domain.empty()) return;
  if (const std::string fault = AttributeFault(node); !fault.empty()) Rules(graph, node).Fail(ErrorCode::kAttr, fault);
  const auto rule = OperandRules().find(node.op);
  if (rule != OperandRules().end()) rule->second(Rules(graph, node));
}

void CheckTypes(const Graph& graph, const Node& node, const std::vector<ValueType>& types) {
  if (!node.domain.empty()) return;
  if (node.op == "Reshape") Rules(graph, node).Count(types);
  if (node.op == "Gemm") Rules(graph, node).Addend(types);
}

}  // namespace gradloom
