#include "compiler/onnx/own_bodies.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <vector>

#include "compiler/onnx/contrib_body.h"
#include "runtime/base/error.h"

namespace gradloom {
namespace {

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
    text += at + "x = Div (" + at + "c, " + at + "p) " + at + "others = Constant <value_ints = " + Spelled(others) + "> () ";
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
  return "axes = Constant <value_ints = " + Spelled(axes) +
         "> () mean = ReduceMean (X, axes) centred = Sub (X, mean) squares = Mul (centred, centred) variance = ReduceMean (squares, axes) "
         "deviation = Sqrt (variance) least = Constant <value_float = 1e-9> () like = CastLike (least, X) divisor = Add (deviation, like) "
         "Y = Div (centred, divisor)";
}

// --- preprocessing of scikit-learn's pipelines (ai.onnx.ml), whose numbers are attributes and are not trained -------------------------

std::string NumbersAt(const Node& node, const std::string& attribute, double absent) {
  std::vector<double> numbers = node.attributes.Floats(attribute);
  if (numbers.empty()) numbers.push_back(absent);
  std::string list;
  for (const double number : numbers) list += (list.empty() ? "" : ", ") + Spelled(number);
  return "Constant <value_floats = [" + list + "]> ()";
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
    return "gone = Constant <value_int = " + std::to_string(node.attributes.Int("replaced_value_int64", 0)) +
           "> () missing = Equal (X, gone) numbers = Constant <value_ints = " + Spelled(node.attributes.Ints("imputed_value_int64s")) +
           "> () Y = Where (missing, numbers, X)";
  }
  const double gone = node.attributes.Float("replaced_value_float", 0);
  // scikit-learn's PowerTransformer replaces infinities.
  const std::string infinite = gone > 0 ? "IsInf <detect_negative = 0> (X)" : "IsInf <detect_positive = 0> (X)";
  const std::string missing = std::isnan(gone) ? "IsNaN (X)" : std::isinf(gone) ? infinite : "Equal (X, gone)";
  return (!std::isfinite(gone) ? "" : "number = Constant <value_float = " + Spelled(gone) + "> () gone = CastLike (number, X) ") +
         "missing = " + missing + " given = " + NumbersAt(node, "imputed_value_floats", 0) +
         " numbers = CastLike (given, X) Y = Where (missing, numbers, X)";
}

std::string OneHotEncoder(const Graph& /*graph*/, const Node& node) {
  const std::vector<int64_t> kinds = node.attributes.Ints("cats_int64s");
  if (kinds.empty()) throw Error(ErrorCode::kUnsupported, "OneHotEncoder with string categories is not supported");
  return "x = Cast <to = 7> (X) last = Constant <value_ints = [-1]> () each = Unsqueeze (x, last) kinds = Constant <value_ints = " +
         Spelled(kinds) + "> () same = Equal (each, kinds) Y = Cast <to = 1> (same)";
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

bool HasOwnBody(const Graph& graph, const Node& node) {
  if (!MayHaveOwnBody(node.domain, node.op)) return false;
  if (node.domain == kMl) return true;
  if (node.op == "AffineGrid") return true;
  if (node.inputs.empty() || node.inputs[0] == kNoValue) return false;
  const std::vector<int64_t> axes = node.attributes.Ints("axes", {0, 2, 3});
  const int rank = graph.value(node.inputs[0]).shape.rank();
  return std::any_of(axes.begin(), axes.end(), [&](int64_t axis) { return NormalAxis(axis, rank) == 0; });
}

std::string OwnBody(const Graph& graph, const Node& node) {
  if (!HasOwnBody(graph, node)) return "";
  if (node.domain == kMl) return Preprocessing().find(node.op)->second(graph, node);
  return node.op == "AffineGrid" ? AffineGrid(graph, node) : MeanVariance(node.attributes.Ints("axes", {0, 2, 3}));
}

}  // namespace gradloom
