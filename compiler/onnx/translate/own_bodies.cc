#include "compiler/onnx/translate/own_bodies.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <vector>

#include "compiler/onnx/translate/contrib_body.h"
#include "runtime/base/error.h"
#include "runtime/base/joined.h"
#include "runtime/base/windows.h"

namespace gradloom {
namespace {

std::string ListOf(const std::string& name, const std::vector<int64_t>& values) {
  return name + " = Constant <value_ints = " + OnnxText(values) + "> () ";
}

// ONNX's body squeezes each row of theta without giving an axis, which also removes the batch axis of a single sample. Grid points are
// evenly spaced, and a single one is in the middle, as in PyTorch.
std::string AffineGrid(const Graph& graph, const Node& node) {
  const Shape theta = graph.value(node.inputs[0]).shape;
  const bool plane = theta.rank() == 3 && theta[1] == 2;
  const bool corners = node.attributes.Int("align_corners", 0) != 0;
  std::string text = R"(
    zero = Constant <value_ints = [0]> () one = Constant <value_ints = [1]> () last = Constant <value_ints = [-1]> ()
    first_number = Constant <value_int = 0> () step = Constant <value_int = 1> () two = Constant <value_int = 2> ()
    end = Constant <value_ints = [9]> () begin = Constant <value_ints = [2]> () extents = Slice (size, begin, end, zero)
  )";
  // For each axis of the grid, outermost first: its coordinates between -1 and 1, expanded to the whole grid.
  const int axes = plane ? 2 : 3;
  std::string columns;
  for (int k = 0; k < axes; ++k) {
    const std::string id = std::to_string(k), at = "at" + id + "_";
    std::vector<int64_t> others;
    for (int other = 0; other < axes; ++other) {
      if (other != k) others.push_back(other);
    }
    text += at + "k = Constant <value_int = " + id + "> () " + at + "n = Gather (extents, " + at + "k) ";
    text += at + "i = Range (first_number, " + at + "n, step) " + at + "d = Mul (" + at + "i, two) ";
    text += at + "less = Sub (" + at + "n, step) " + at + "centred = Sub (" + at + "d, " + at + "less) ";
    text += at + "parts = " + (corners ? "Max (" + at + "less, step) " : "Identity (" + at + "n) ");
    text += at + "c = CastLike (" + at + "centred, theta) " + at + "p = CastLike (" + at + "parts, theta) ";
    text += at + "x = Div (" + at + "c, " + at + "p) " + at + "others = Constant <value_ints = " + OnnxText(others) + "> () ";
    text += at + "u = Unsqueeze (" + at + "x, " + at + "others) " + at + "e = Expand (" + at + "u, extents) ";
    text += at + "column = Unsqueeze (" + at + "e, last)\n";
    columns = at + "column, " + columns;
  }
  const std::string width = std::to_string(axes);
  text +=
      "unit = Constant <value_float = 1.0> () like = CastLike (unit, theta) ones = Expand (like, extents) ones_column = Unsqueeze (ones, "
      "last)\n";
  text +=
      "points = Concat <axis = -1> (" + columns + "ones_column) rows = Constant <value_ints = [-1, " + std::to_string(axes + 1) + "]> () ";
  text += "flat = Reshape (points, rows) turned = Transpose <perm = [0, 2, 1]> (theta) moved = MatMul (flat, turned)\n";
  text +=
      "width = Constant <value_ints = [" + width + "]> () shape = Concat <axis = 0> (last, extents, width) grid = Reshape (moved, shape)\n";
  return text;
}

// Written as sums, because samples may be on several devices, which can combine sums but not a kernel for the whole.
std::string MeanVariance(const std::vector<int64_t>& axes) {
  return "axes = Constant <value_ints = " + OnnxText(axes) +
         "> () mean = ReduceMean (X, axes) centred = Sub (X, mean) squares = Mul (centred, centred) variance = ReduceMean (squares, axes) "
         "deviation = Sqrt (variance) least = Constant <value_float = 1e-9> () like = CastLike (least, X) divisor = Add (deviation, like) "
         "Y = Div (centred, divisor)";
}

// --- a BatchNormalization whose statistics the file computes ----------------------------------------------------------
//
// tf.keras writes LayerNormalization as one with rows as channels, [1, N * T, D, 1]. It is the same in training and keeps no statistics.
// Written out, its rows can be divided over devices.

// The node that computes a value, if it is among the last ones before the end of the graph, as that of a mean is. A search of the whole
// graph for each node would take quadratic time.
const Node* NearProducer(const Graph& graph, ValueId id) {
  constexpr std::ptrdiff_t kNear = 64;
  const auto makes = [id](const Node& node) { return std::find(node.outputs.begin(), node.outputs.end(), id) != node.outputs.end(); };
  const auto end = graph.nodes.rbegin() + std::min(kNear, std::ssize(graph.nodes));
  const auto found = std::find_if(graph.nodes.rbegin(), end, makes);
  return found == end ? nullptr : &*found;
}

bool HasComputedMean(const Graph& graph, const Node& node) {
  if (node.op != "BatchNormalization" || !node.domain.empty() || node.attributes.Int("training_mode", 0) != 0 || node.inputs.size() < 5)
    return false;
  const Node* producer = NearProducer(graph, node.inputs[3]);
  while (producer != nullptr && (producer->op == "Squeeze" || producer->op == "Reshape" || producer->op == "Cast"))
    producer = NearProducer(graph, producer->inputs[0]);
  return producer != nullptr && producer->op == "ReduceMean";
}

std::string NormalizationWithStatistics(const Graph& graph, const Node& node) {
  std::vector<int64_t> others = {0};
  for (int axis = 2; axis < graph.value(node.inputs[0]).shape.rank(); ++axis) others.push_back(axis);
  std::string text = ListOf("others", others);
  for (const char* name : {"scale", "B", "input_mean", "input_var"}) {
    const std::string of = name;
    text += of + "_like = CastLike (" + of + ", X) " + of + "_beside = Unsqueeze (" + of + "_like, others) ";
  }
  return text + "epsilon = Constant <value_float = " + OnnxText(node.attributes.Float("epsilon", 1e-5F)) +
         "> () least = CastLike (epsilon, X) centred = Sub (X, input_mean_beside) moved = Add (input_var_beside, least) deviation = Sqrt "
         "(moved) normal = Div (centred, deviation) scaled = Mul (normal, scale_beside) Y = Add (scaled, B_beside)";
}

// --- a BatchNormalization of a vector, whose elements are samples of one channel --------------------------------------

bool HasSingleChannel(const Graph& graph, const Node& node) {
  return node.op == "BatchNormalization" && node.domain.empty() && graph.value(node.inputs[0]).shape.rank() < 2;
}

std::string NormalizationOfVector(const Graph& graph, const Node& node) {
  if (graph.value(node.inputs[0]).shape.rank() == 0)
    throw Error(ErrorCode::kShape, "BatchNormalization expects an input of rank 1 or more");
  const int64_t training = node.attributes.Int("training_mode", 0);
  return ListOf("channel", {1}) + "column = Unsqueeze (X, channel) normal" + (training != 0 ? ", running_mean, running_var" : "") +
         " = BatchNormalization <epsilon = " + OnnxText(node.attributes.Float("epsilon", 1e-5F)) +
         ", momentum = " + OnnxText(node.attributes.Float("momentum", 0.9F)) + ", training_mode = " + std::to_string(training) +
         "> (column, scale, B, input_mean, input_var) Y = Squeeze (normal, channel)";
}

// --- windows over more than three axes, most of which cover a single point --------------------------------------------
//
// jax2onnx writes the pooling of an image with channels last as MaxPool over [1, 1, N, H, W, C] with windows [1, k, k, 1], and the mean of
// such windows as a Conv over [N, 1, 1, H, W, C]. Kernels have at most three axes of windows.

constexpr int kMaxWindowAxes = 3;

// [1, 1, N, W, C] with windows [1, k, 1], which is the same of sequences: kernels could take it, but its samples would be places.
bool HasWindowsOfRows(const Graph& graph, const Node& node) {
  const Shape& x = graph.value(node.inputs[0]).shape;
  if (x.rank() != 5 || x[0] != 1 || x[1] != 1) return false;
  std::vector<int64_t> kernel = node.attributes.Ints("kernel_shape");
  if (node.op == "Conv") {
    const Shape& filter = graph.value(node.inputs[1]).shape;
    if (filter.rank() != 5 || filter[0] != 1 || node.inputs.size() > 2) return false;
    kernel.assign(filter.begin() + 2, filter.end());
  }
  const std::vector<int64_t> strides = node.attributes.Ints("strides", {1, 1, 1}), pads = node.attributes.Ints("pads", {0, 0, 0, 0, 0, 0});
  if (kernel.size() != 3 || strides.size() != 3 || pads.size() != 6) return false;
  const auto plain = [&](size_t i) { return kernel[i] == 1 && strides[i] == 1 && pads[i] == 0 && pads[i + 3] == 0; };
  return plain(0) && !plain(1) && plain(2);
}

// Whether the node has too many axes of windows, or axes of windows that are samples and channels.
bool HasOtherWindowAxes(const Graph& graph, const Node& node) {
  const bool windows = node.op == "MaxPool" || node.op == "AveragePool" || node.op == "LpPool" || node.op == "Conv";
  const size_t least = node.op == "Conv" ? 2 : 1;
  if (!windows || !node.domain.empty() || node.inputs.size() < least) return false;
  for (size_t i = 0; i < least; ++i) {
    if (node.inputs[i] == kNoValue) return false;
  }
  return graph.value(node.inputs[0]).shape.rank() > 2 + kMaxWindowAxes || HasWindowsOfRows(graph, node);
}

// The node over these axes of its windows, in their order.
std::string WindowsAlong(const Node& node, const Windows& all, const std::vector<int>& axes, int64_t group, const std::string& call) {
  std::vector<int64_t> kernel, strides, dilations, pads;
  for (const int axis : axes) {
    const auto i = static_cast<size_t>(axis);
    kernel.push_back(all.kernel[i]);
    strides.push_back(all.strides[i]);
    dilations.push_back(all.dilations[i]);
    pads.push_back(all.pads_begin[i]);
  }
  for (const int axis : axes) pads.push_back(all.pads_end[static_cast<size_t>(axis)]);
  std::string text = node.op + " <kernel_shape = " + OnnxText(kernel) + ", strides = " + OnnxText(strides) +
                     ", dilations = " + OnnxText(dilations) + ", pads = " + OnnxText(pads);
  if (node.op == "Conv") text += ", group = " + std::to_string(group);
  for (const char* name : {"ceil_mode", "count_include_pad", "p"}) {
    if (node.attributes.has(name)) text += ", " + std::string(name) + " = " + std::to_string(node.attributes.Int(name, 0));
  }
  return text + "> " + call;
}

// [1, 1, ...]: of the axes that follow, those without windows become samples and channels, all of which a convolution filters alike.
std::string WindowsOfRest(const Node& node, const Windows& all, const Shape& x, const std::vector<int>& plain,
                          const std::vector<int>& wide) {
  std::vector<int64_t> order(plain.begin(), plain.end()), back(plain.size() + wide.size()), missing, thin, filters(wide.size() + 2, 1);
  order.insert(order.end(), wide.begin(), wide.end());
  for (size_t i = 0; i < order.size(); ++i) back[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  for (auto axis = static_cast<int64_t>(plain.size()); axis < 2; ++axis) missing.push_back(axis);
  for (const int axis : plain) thin.push_back(axis + 2);
  filters[0] = plain.size() > 1 ? x[plain[1] + 2] : 1;
  const bool full = missing.empty(), conv = node.op == "Conv";
  std::string text = ListOf("lead", {0, 1}) + ListOf("missing", full ? std::vector<int64_t>{0} : missing);
  text += "rest = Squeeze (X, lead) turned = Transpose <perm = " + OnnxText(order) + "> (rest) ";
  text += full ? "image = Identity (turned) " : "image = Unsqueeze (turned, missing) ";
  if (conv) {
    text += ListOf("thin", thin) + ListOf("filters", filters) + "one = " + (thin.empty() ? "Identity (W) " : "Squeeze (W, thin) ") +
            "filter = Expand (one, filters) ";
  }
  text += "made = " + WindowsAlong(node, all, wide, filters[0], conv ? "(image, filter) " : "(image) ");
  text += full ? "less = Identity (made) " : "less = Squeeze (made, missing) ";
  return text + "again = Transpose <perm = " + OnnxText(back) + "> (less) Y = Unsqueeze (again, lead)";
}

// Without the axes that have one point.
std::string WindowsWithoutPoints(const Node& node, const Windows& all, const Shape& x) {
  std::vector<int64_t> points;
  std::vector<int> rest;
  for (int axis = 0; axis < all.rank(); ++axis) {
    const auto i = static_cast<size_t>(axis);
    const bool point = x[axis + 2] == 1 && all.kernel[i] == 1 && all.pads_begin[i] == 0 && all.pads_end[i] == 0;
    if (point && all.rank() - static_cast<int>(points.size()) > 1) {
      points.push_back(axis + 2);
    } else {
      rest.push_back(axis);
    }
  }
  if (rest.size() > kMaxWindowAxes) return "";
  const bool conv = node.op == "Conv", bias = conv && node.inputs.size() > 2 && node.inputs[2] != kNoValue;
  return ListOf("points", points) + "image = Squeeze (X, points) " + (conv ? "filter = Squeeze (W, points) " : "") + "made = " +
         WindowsAlong(node, all, rest, node.attributes.Int("group", 1),
                      conv ? bias ? "(image, filter, B) " : "(image, filter) " : "(image) ") +
         "Y = Unsqueeze (made, points)";
}

std::string WindowsOfFewerAxes(const Graph& graph, const Node& node) {
  const Shape& x = graph.value(node.inputs[0]).shape;
  std::vector<int64_t> kernel = node.attributes.Ints("kernel_shape");
  bool single = true;  // one channel, which gives one
  if (node.op == "Conv") {
    const Shape& filter = graph.value(node.inputs[1]).shape;
    if (filter.rank() != x.rank()) throw Error(ErrorCode::kShape, "a filter " + filter.ToString() + " over a tensor " + x.ToString());
    kernel.assign(filter.begin() + 2, filter.end());
    single = filter[0] == 1 && filter[1] == 1 && (node.inputs.size() < 3 || node.inputs[2] == kNoValue);
  }
  const Windows all = WindowsOf(node.attributes, x, kernel);
  std::vector<int> plain, wide;
  for (int axis = 0; axis < all.rank(); ++axis) {
    const auto i = static_cast<size_t>(axis);
    const bool one = all.kernel[i] == 1 && all.strides[i] == 1 && all.pads_begin[i] == 0 && all.pads_end[i] == 0;
    (one ? plain : wide).push_back(axis);
  }
  const bool alone = single && x[0] == 1 && x[1] == 1 && plain.size() <= 2 && !wide.empty() && wide.size() <= kMaxWindowAxes;
  const std::string text = alone ? WindowsOfRest(node, all, x, plain, wide) : WindowsWithoutPoints(node, all, x);
  if (!text.empty()) return text;
  throw Error(ErrorCode::kUnsupported, "a tensor " + x.ToString() + ": windows along one to three axes are supported");
}

// --- preprocessing of scikit-learn's pipelines (ai.onnx.ml), whose numbers are attributes and are not trained -------------------------

std::string NumbersAt(const Node& node, const std::string& attribute, double absent) {
  std::vector<double> numbers = node.attributes.Floats(attribute);
  if (numbers.empty()) numbers.push_back(absent);
  return "Constant <value_floats = [" + JoinedTexts(numbers, [](double number) { return OnnxText(number); }) + "]> ()";
}

std::string Scaler(const Graph& /*graph*/, const Node& node) {
  return "x = Cast <to = 1> (X) offset = " + NumbersAt(node, "offset", 0) + " scale = " + NumbersAt(node, "scale", 1) +
         " moved = Sub (x, offset) Y = Mul (moved, scale)";
}

// Rows of zeros are unchanged.
std::string Normalizer(const Graph& graph, const Node& node) {
  if (graph.value(node.inputs[0]).shape.rank() > 2) throw Error(ErrorCode::kShape, "Normalizer expects an input of rank 1 or 2");
  const std::string norm = node.attributes.String("norm", "MAX");
  if (norm != "MAX" && norm != "L1" && norm != "L2")
    throw Error(ErrorCode::kAttr, "attribute 'norm' of Normalizer must be MAX, L1 or L2, got '" + Escaped(norm) + "'");
  return "x = Cast <to = 1> (X) axes = Constant <value_ints = [-1]> () zero = Constant <value_float = 0.0> () one = Constant <value_float "
         "= 1.0> () norm = Reduce" +
         std::string(norm == "MAX" ? "Max" : norm) +
         " (x, axes) none = Equal (norm, zero) divisor = Where (none, one, norm) Y = Div (x, divisor)";
}

std::string Imputer(const Graph& graph, const Node& node) {
  if (!IsFloating(graph.value(node.inputs[0]).dtype)) {
    if (node.attributes.Ints("imputed_value_int64s").empty())
      throw Error(ErrorCode::kAttr, "Imputer of integers needs attribute 'imputed_value_int64s'", Describe(node));
    return "number = Constant <value_int = " + std::to_string(node.attributes.Int("replaced_value_int64", 0)) +
           "> () gone = CastLike (number, X) missing = Equal (X, gone) given = Constant <value_ints = " +
           OnnxText(node.attributes.Ints("imputed_value_int64s")) + "> () numbers = CastLike (given, X) Y = Where (missing, numbers, X)";
  }
  const double gone = node.attributes.Float("replaced_value_float", 0);
  // scikit-learn's PowerTransformer replaces infinities.
  const std::string infinite = gone > 0 ? "IsInf <detect_negative = 0> (X)" : "IsInf <detect_positive = 0> (X)";
  const std::string missing = std::isnan(gone) ? "IsNaN (X)" : std::isinf(gone) ? infinite : "Equal (X, gone)";
  return (!std::isfinite(gone) ? "" : "number = Constant <value_float = " + OnnxText(gone) + "> () gone = CastLike (number, X) ") +
         "missing = " + missing + " given = " + NumbersAt(node, "imputed_value_floats", 0) +
         " numbers = CastLike (given, X) Y = Where (missing, numbers, X)";
}

std::string OneHotEncoder(const Graph& /*graph*/, const Node& node) {
  const std::vector<int64_t> kinds = node.attributes.Ints("cats_int64s");
  if (kinds.empty()) throw Error(ErrorCode::kUnsupported, "OneHotEncoder with string categories is not supported");
  return "x = Cast <to = 7> (X) last = Constant <value_ints = [-1]> () each = Unsqueeze (x, last) kinds = Constant <value_ints = " +
         OnnxText(kinds) + "> () same = Equal (each, kinds) Y = Cast <to = 1> (same)";
}

constexpr std::string_view kMl = "ai.onnx.ml";
const std::map<std::string, std::string (*)(const Graph&, const Node&), std::less<>>& Preprocessing() {
  static const std::map<std::string, std::string (*)(const Graph&, const Node&), std::less<>> rows = {
      {"Imputer", Imputer}, {"Normalizer", Normalizer}, {"OneHotEncoder", OneHotEncoder}, {"Scaler", Scaler}};
  return rows;
}

}  // namespace

bool MayHaveOwnBody(std::string_view domain, std::string_view op) {
  return domain == kMl ? Preprocessing().contains(op) : domain.empty() && (op == "AffineGrid" || op == "MeanVarianceNormalization");
}

bool HasOwnBody(const Graph& graph, const Node& node, const std::vector<std::string>& outputs) {
  // The indices that a pooling returns are positions in the tensor as it is: kernels compute them.
  const bool indices = outputs.size() > 1 && !outputs[1].empty();
  if ((!indices && HasOtherWindowAxes(graph, node)) || HasSingleChannel(graph, node) || HasComputedMean(graph, node)) return true;
  if (!MayHaveOwnBody(node.domain, node.op)) return false;
  if (node.domain == kMl) return true;
  if (node.op == "AffineGrid") return true;
  if (node.inputs.empty() || node.inputs[0] == kNoValue) return false;
  const std::vector<int64_t> axes = node.attributes.Ints("axes", {0, 2, 3});
  const int rank = graph.value(node.inputs[0]).shape.rank();
  return std::any_of(axes.begin(), axes.end(), [&](int64_t axis) { return NormalAxis(axis, rank) == 0; });
}

std::string OwnBody(const Graph& graph, const Node& node) {
  if (HasOtherWindowAxes(graph, node)) return WindowsOfFewerAxes(graph, node);
  if (HasSingleChannel(graph, node)) return NormalizationOfVector(graph, node);
  if (HasComputedMean(graph, node)) return NormalizationWithStatistics(graph, node);
  if (node.domain == kMl) return Preprocessing().find(node.op)->second(graph, node);
  return node.op == "AffineGrid" ? AffineGrid(graph, node) : MeanVariance(node.attributes.Ints("axes", {0, 2, 3}));
}

}  // namespace gradloom
