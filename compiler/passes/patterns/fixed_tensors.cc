#include "compiler/passes/patterns/fixed_tensors.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <iterator>
#include <limits>
#include <set>
#include <string_view>

namespace gradloom {
namespace {

constexpr double kTolerance = 1e-3;  // relative, of squares: tables are rounded, possibly to 16 bits
constexpr int64_t kMinElements = 8;  // minimum elements of a table: fewer may match by chance

// What MLIR calls a constant that comes from nowhere in the model, as TensorFlow Lite's files keep it ("arith.constant8").
bool IsConstantOfMlir(std::string_view name) {
  return name.starts_with("arith.constant") || name.starts_with("std.constant") || name.starts_with("tfl.pseudo_");
}

// TensorFlow reads a variable by this node, and its converters call the variable's initializer after it, with or without the output.
bool IsReadOfVariable(std::string_view name) { return name.ends_with("/ReadVariableOp:0") || name.ends_with("/ReadVariableOp"); }

// A number in the code of TensorFlow is the first or second operand of a node and called so ("rescaling/Cast/x:0"); a variable is not.
bool IsOperandOfTensorFlow(std::string_view name) { return name.size() > 4 && (name.ends_with("/x:0") || name.ends_with("/y:0")); }

// skl2onnx calls the number that a step in front of a net adds or multiplies after the node ("Mu_Mulcst", "pref_Powcst1"); the weights of
// a net have other names.
bool IsNumberOfScikitLearn(std::string_view name) {
  while (!name.empty() && std::isdigit(static_cast<unsigned char>(name.back())) != 0) name.remove_suffix(1);
  static constexpr std::string_view kEnds[] = {"_Addcst", "_Subcst", "_Mulcst", "_Divcst", "_Powcst"};
  return std::any_of(std::begin(kEnds), std::end(kEnds), [&](std::string_view end) { return name.ends_with(end); });
}

// Numbers that Paddle's converter makes itself, and those in the code of a model ("helper.constant.3", "p2o.pd_op.full.0.0").
bool IsNumberOfPaddle(std::string_view name) {
  return name.find("helper.constant.") != std::string_view::npos || name.starts_with("p2o.pd_op.full");
}

// Tensors that the code makes and exporters compute in advance have the names of torch.export's nodes ("ones_like", "new_zeros_1").
bool IsMadeByTorch(std::string_view name) {
  const size_t number = name.find_last_not_of("0123456789");
  if (number != std::string_view::npos && number + 1 < name.size() && name[number] == '_') name = name.substr(0, number);
  static constexpr std::string_view kMakers[] = {"arange",    "full", "full_like", "new_full", "new_ones",
                                                 "new_zeros", "ones", "ones_like", "zeros",    "zeros_like"};
  return std::find(std::begin(kMakers), std::end(kMakers), name) != std::end(kMakers);
}

template <typename F>
bool All(const Tensor& tensor, F f) {
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    if (!f(ElementAsDouble(tensor.view(), i))) return false;
  }
  return true;
}

// Checks that pairs lie on one circle around zero, at several places of it: a repeated row is not a table. Places that differ only in signs
// count once, because a weight whose elements are all c or -c has pairs at four of those.
class Circle {
 public:
  bool Holds(double a, double b) {
    const double square = a * a + b * b;
    if (count_++ == 0) square_ = square;
    if (places_.size() < kMinPositions && square_ > 0) {
      const double unit = kPlaces / std::sqrt(square_);
      places_.emplace(std::lround(std::abs(a) * unit), std::lround(std::abs(b) * unit));
    }
    return square > 0 && std::abs(square - square_) <= kTolerance * square_;
  }
  bool spread() const { return places_.size() >= kMinPositions; }
  int64_t count() const { return count_; }

 private:
  static constexpr size_t kMinPositions = 3;
  static constexpr double kPlaces = 20;  // per radius

  int64_t count_ = 0;
  double square_ = 0;
  std::set<std::pair<long, long>> places_;
};

// Element k of a row is paired with element k + `step` of the same row, for k = 0, `stride`, 2 * `stride` ... of the first `width`.
bool PairsOfRows(const Tensor& data, int64_t extent, int64_t width, int64_t stride, int64_t step) {
  Circle circle;
  for (int64_t row = 0; row < data.elements() / extent; ++row) {
    bool zero = true;
    for (int64_t k = 0; k < extent && zero; ++k) zero = ElementAsDouble(data.view(), row * extent + k) == 0;
    if (zero) continue;
    for (int64_t k = 0; k < width; k += stride) {
      const int64_t at = row * extent + k;
      if (!circle.Holds(ElementAsDouble(data.view(), at), ElementAsDouble(data.view(), at + step))) return false;
    }
  }
  return 2 * circle.count() >= kMinElements && circle.spread();
}

}  // namespace

bool IsAttribute(const std::string& name) {
  const auto is_letter = [](unsigned char c) { return std::isalpha(c) != 0; };
  const auto is_part_of_path = [](unsigned char c) { return c == '_' || c == '.' || std::isalnum(c) != 0; };
  return std::any_of(name.begin(), name.end(), is_letter) && std::all_of(name.begin(), name.end(), is_part_of_path);
}

bool IsModulePath(const std::string& name) {
  const auto is_part_of_word = [](unsigned char c) { return c == '_' || c == '.' || std::isalnum(c) != 0; };
  if (IsReadOfVariable(name)) return true;
  if (IsConstantOfMlir(name)) return false;
  const size_t dot = name.rfind('.');
  return dot != std::string::npos && dot > 0 && dot + 1 < name.size() && std::isdigit(static_cast<unsigned char>(name[dot + 1])) == 0 &&
         std::all_of(name.begin(), name.end(), is_part_of_word);
}

std::string FixedByName(const std::string& name) {
  const std::string last = name.substr(name.rfind('.') + 1);
  if (last == "running_mean" || last == "running_var") return "a running statistic, by its name";
  const bool number = last.starts_with("lifted_tensor_") || last.starts_with("scalar_tensor_default") || IsMadeByTorch(name) ||
                      IsNumberOfPaddle(name) || IsOperandOfTensorFlow(name) || IsNumberOfScikitLearn(name);
  return number ? "numbers written in the code" : "";
}

bool IsCalledConstant(const std::string& name) {
  static constexpr std::string_view kOutput = "_output_0";
  const size_t slash = name.rfind('/');
  if (slash == std::string::npos || !name.ends_with(kOutput)) return false;
  std::string_view node(name);
  node = node.substr(slash + 1, node.size() - slash - 1 - kOutput.size());
  for (const std::string_view op : {"Constant", "ConstantOfShape", "EyeLike", "Range"}) {
    if (node == op) return true;
    const bool numbered = node.starts_with(op) && node.size() > op.size() + 1 && node[op.size()] == '_';
    if (numbered && std::all_of(node.begin() + static_cast<std::ptrdiff_t>(op.size()) + 1, node.end(),
                                [](unsigned char c) { return std::isdigit(c) != 0; }))
      return true;
  }
  return false;
}

bool AllZero(const Tensor& data) {
  return All(data, [](double v) { return v == 0; });
}

namespace {

// Whether the least number, `least`, hides elements of a sum that also has other numbers, such as distances: infinite, or as good as that,
// or a large one that occurs repeatedly and is far from all others. No learned bias has such elements.
bool Hides(const Tensor& data, double least) {
  if (least <= -1e30) return true;
  if (least > -1e4) return false;
  int64_t equal = 0;
  return All(data, [&](double v) { return v == least ? ++equal > 0 : v > least / 10; }) && equal > 1;
}

}  // namespace

bool LooksLikeMask(const Tensor& data, bool product) {
  double least = 0, most = 0;
  bool zeros = false;
  for (int64_t i = 0; i < data.elements(); ++i) {
    const double v = ElementAsDouble(data.view(), i);
    zeros |= v == 0;
    least = std::min(least, v);
    most = std::max(most, v);
  }
  // Scales are initialized to ones and gates to zeros, so neither alone makes a mask.
  if (product) return zeros && most == 1 && All(data, [](double v) { return v == 0 || v == 1; });
  if (AllZero(data)) return false;
  return std::isinf(most) || Hides(data, least) || All(data, [](double v) { return v == 0 || v <= -1e4; }) ||
         (zeros && least <= -100 && All(data, [least](double v) { return v == 0 || v == least; }));
}

bool IsSinusoidTable(const Tensor& data) {
  const int rank = data.shape().rank();
  const int64_t extent = rank >= 2 ? data.shape()[rank - 1] : 0;
  if (extent < 2 || extent % 2 != 0 || data.elements() < kMinElements) return false;
  for (int64_t parts = 1; parts <= 3; ++parts) {
    const int64_t part = extent / parts;
    if (extent % (2 * parts) != 0 || part < 2) continue;
    if (PairsOfRows(data, part, part / 2, 1, part / 2) || PairsOfRows(data, part, part, 2, 1)) return true;
  }
  return false;
}

bool IsSummingWindow(const Tensor& data) {
  return data.elements() > 1 && All(data, [](double v) { return v == 1; });
}

bool IsCounting(const Tensor& data) {
  if (data.elements() < kMinElements) return false;
  for (int64_t i = 0; i < data.elements(); ++i) {
    if (ElementAsDouble(data.view(), i) != static_cast<double>(i)) return false;
  }
  return true;
}

bool IsRotation(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || a.shape() != b.shape() || a.elements() < kMinElements) return false;
  Circle circle;
  for (int64_t i = 0; i < a.elements(); ++i) {
    if (!circle.Holds(ElementAsDouble(a.view(), i), ElementAsDouble(b.view(), i))) return false;
  }
  return circle.spread();
}

void RotationTables::Add(const Tensor& data) {
  const double change = ChangeOf(data);
  if (!std::isfinite(change)) return;
  Group& group = groups_[{data.dtype(), data.shape().dims()}];
  group.most = std::max(group.most, Square(data, 0));
  group.by_change.emplace(change, &data);
}

bool RotationTables::HasOtherHalf(const Tensor& data) const {
  const auto found = groups_.find({data.dtype(), data.shape().dims()});
  const double change = ChangeOf(data);
  if (found == groups_.end() || !std::isfinite(change)) return false;
  const auto& [most, by_change] = found->second;
  // The sums of squares of the first and of the last pair are equal, so the changes cancel. The bound is twice as wide as IsRotation's.
  const double apart = 2 * kTolerance * (Square(data, 0) + most);
  return std::any_of(by_change.lower_bound(-change - apart), by_change.upper_bound(-change + apart),
                     [&](const auto& other) { return other.second != &data && IsRotation(data, *other.second); });
}

double RotationTables::Square(const Tensor& data, int64_t element) {
  const double value = ElementAsDouble(data.view(), element);
  return value * value;
}

double RotationTables::ChangeOf(const Tensor& data) {
  if (!IsFloating(data.dtype()) || data.elements() < kMinElements) return std::numeric_limits<double>::quiet_NaN();
  return Square(data, data.elements() - 1) - Square(data, 0);
}

}  // namespace gradloom
