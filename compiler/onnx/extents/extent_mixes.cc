// Operators that mix elements along an axis of data-dependent extent: padding is replaced by neutral elements.
#include <algorithm>
#include <set>

#include "compiler/onnx/extents/extent_node.h"
#include "runtime/base/ignored_class.h"

namespace gradloom {

void ExtentNode::Reduce() {
  const ValueId data = in(0);
  const int n = rank(data);
  const std::string op = node_.op;
  std::set<int> reduced;
  for (int64_t axis : KnownInts(1)) reduced.insert(Axis(axis, n));
  if (reduced.empty() && Attr("noop_with_empty_axes", 0) == 0) {
    for (int axis = 0; axis < n; ++axis) reduced.insert(axis);
  }
  const bool keeps = Attr("keepdims", 1) != 0;
  Axes mixed, after;
  Size count{1};
  for (int axis : reduced) count = Times(count, ExtentOf(data, axis));
  for (const auto& [axis, size] : axes(data)) {
    if (reduced.contains(axis)) {
      mixed[axis] = size;
    } else {
      after[keeps ? axis : axis - static_cast<int>(std::distance(reduced.begin(), reduced.lower_bound(axis)))] = size;
    }
  }
  if (mixed.empty()) {
    Same();
    return SetAxes(0, after);
  }
  const DType type = dtype(data);
  const double fill = op == "ReduceMax" || op == "ReduceLogSumExp" ? Lowest(type)
                      : op == "ReduceMin"                          ? Highest(type)
                      : op == "ReduceProd"                         ? 1
                                                                   : 0;
  std::vector<ValueId> operands = node_.inputs;
  operands[0] = Masked(data, mixed, fill);
  if (op == "ReduceMean") {
    // A sum or a count may be too large for 16 bits, and a count has more digits than they hold.
    const bool widens = Is16BitFloat(type);
    const Attributes wide{{"to", static_cast<int64_t>(widens ? DType::kFloat32 : type)}}, narrow{{"to", static_cast<int64_t>(type)}};
    if (widens) operands[0] = Op("Cast", {operands[0]}, wide);
    // ONNX leaves open what the mean of nothing is. NaN would reach gradients through padding, as in a variance, so it is 0.
    const std::vector<ValueId> quotient = {Op("ReduceSum", operands, node_.attributes),
                                           Op("Cast", {Op("Max", {ScalarOf(count), Int(1)})}, wide)};
    widens ? Last("Cast", {Op("Div", quotient)}, narrow) : Last("Div", quotient);
  } else {
    Same(operands);
  }
  SetAxes(0, after);
}

void ExtentNode::ArgExtreme() {
  const ValueId data = in(0);
  const int axis = Axis(Attr("axis", 0), rank(data));
  const bool keeps = Attr("keepdims", 1) != 0, last = Attr("select_last_index", 0) != 0;
  Axes after;
  for (const auto& [other, size] : axes(data)) {
    if (other != axis) after[keeps || other < axis ? other : other - 1] = size;
  }
  if (last && axes(data).contains(axis)) Refuse(0, axis, "with select_last_index, the last of equal elements may be padding");
  Same({Masked(data, AxesAmong(data, {axis}), node_.op == "ArgMax" ? BelowAll(dtype(data)) : AboveAll(dtype(data)))});
  SetAxes(0, after);
}

void ExtentNode::Softmax() {
  const ValueId data = in(0);
  const int axis = Axis(Attr("axis", -1), rank(data));
  const Axes after = axes(data);
  // A Softmax of infinities alone, as along an axis without valid elements, is not a number.
  const double fill = node_.op == "Hardmax" ? BelowAll(dtype(data)) : Lowest(dtype(data));
  const Axes along = AxesAmong(data, {axis});
  SameWithPadding({Masked(data, along, fill)}, along, node_.op == "LogSoftmax" ? 0 : 1);
  SetAxes(0, after);
}

void ExtentNode::CumSum() {
  const ValueId data = in(0);
  const std::vector<int64_t> along = KnownInts(1);
  if (along.size() != 1) throw Error(ErrorCode::kShape, "the axis of CumSum must be a scalar", Describe(node_));
  const int axis = Axis(along[0], rank(data));
  const Axes after = axes(data);
  Same({Attr("reverse", 0) != 0 ? Masked(data, AxesAmong(data, {axis}), 0) : data, in(1)});
  SetAxes(0, after);
}

void ExtentNode::TopK() {
  const ValueId data = in(0);
  const int axis = Axis(Attr("axis", -1), rank(data));
  const Size k = OneSize(1);
  Axes after = axes(data);
  after[axis] = k;
  // Padding comes last; no more of it is taken than the axis holds.
  const int64_t bound = std::min(Bound(k), shape(data)[axis]);
  const double fill = Attr("largest", 1) != 0 ? BelowAll(dtype(data)) : AboveAll(dtype(data));
  SameWithPadding({Masked(data, AxesAmong(data, {axis}), fill), k.known() ? in(1) : Ints({bound})}, k.known() ? Axes{} : Axes{{axis, k}},
                  0);
  for (size_t i = 0; i < results_.size(); ++i) SetAxes(i, after);
}

// Sums run over the last axis of the first operand and the second to last of the second.
void ExtentNode::MatMul() {
  const int p = rank(in(0)), q = rank(in(1)), summed_a = p - 1, summed_b = q == 1 ? 0 : q - 2;
  std::vector<ValueId> operands = WithEqualBounds(node_.inputs, std::max({p - 2, q - 2, 0}), /*own=*/2);
  if (!ExtentOf(operands[0], summed_a).known() && !ExtentOf(operands[1], summed_b).known()) {
    const int64_t x = shape(operands[0])[summed_a], y = shape(operands[1])[summed_b];
    if (x > y) operands[0] = Cut(operands[0], summed_a, y);
    if (y > x) operands[1] = Cut(operands[1], summed_b, x);
  }
  const ValueId a = operands[0], b = operands[1];
  const Axes mixed_a = AxesAmong(a, {summed_a}), mixed_b = AxesAmong(b, {summed_b});
  const int lead = std::max({p - 2, q - 2, 0});
  Axes after;
  for (int axis = 0; axis < lead; ++axis) {
    const int own_a = axis - (lead - (p - 2)), own_b = axis - (lead - (q - 2));
    const Size x = own_a >= 0 ? ExtentOf(a, own_a) : Size{1}, y = own_b >= 0 ? ExtentOf(b, own_b) : Size{1};
    if (x == y || (y.known() && y.factor == 1)) {
      after[axis] = x;
    } else if (x.known() && x.factor == 1) {
      after[axis] = y;
    } else if (!x.known() && !y.known()) {
      after[axis] = x;
      Merge(after, axis, y, Bound(y), Bound(x));
    } else {
      Refuse(x.known() ? 1 : 0, x.known() ? own_b : own_a, "the other operand has a fixed extent there");
    }
  }
  if (p > 1) after[lead] = ExtentOf(a, p - 2);
  if (q > 1) after[lead + (p > 1 ? 1 : 0)] = ExtentOf(b, q - 1);
  // Both operands must be masked: padding may hold anything.
  const Axes mixed = mixed_a.empty() ? mixed_b : mixed_a;
  const auto masked = [&](ValueId id, int axis) { return mixed.empty() ? id : Masked(id, {{axis, mixed.begin()->second}}, 0); };
  Same({masked(a, summed_a), masked(b, summed_b)});
  SetAxes(0, after);
}

void ExtentNode::Gemm() {
  const ValueId a = in(0), b = in(1), c = in(2);
  const int rows = Attr("transA", 0) != 0 ? 1 : 0, columns = Attr("transB", 0) != 0 ? 0 : 1;
  Axes after;
  after[0] = ExtentOf(a, rows);
  after[1] = ExtentOf(b, columns);
  if (c != kNoValue) {
    const int add = 2 - rank(c);
    for (const auto& [axis, size] : axes(c)) {
      if (!(after[axis + add] == size)) Refuse(2, axis);
    }
  }
  const Axes mixed_a = AxesAmong(a, {1 - rows}), mixed_b = AxesAmong(b, {1 - columns});
  std::vector<ValueId> operands = node_.inputs;
  if (!mixed_a.empty() || !mixed_b.empty()) {
    const Size summed = (mixed_a.empty() ? mixed_b : mixed_a).begin()->second;
    operands[0] = Masked(a, {{1 - rows, summed}}, 0);
    operands[1] = Masked(b, {{1 - columns, summed}}, 0);
  }
  Same(operands);
  SetAxes(0, after);
}

void ExtentNode::Einsum() {
  std::string equation = node_.attributes.String("equation", "");
  std::erase(equation, ' ');
  const size_t arrow = equation.find("->");
  if (equation.find('.') != std::string::npos || arrow == std::string::npos) {
    for (size_t i = 0; i < num_inputs(); ++i) Only(i);
  }
  std::vector<std::string> terms{""};
  for (char c : equation.substr(0, arrow)) {
    if (c == ',') {
      terms.emplace_back();
    } else {
      terms.back() += c;
    }
  }
  const std::string made = equation.substr(arrow + 2);
  std::map<char, Size> sizes;
  for (size_t i = 0; i < num_inputs(); ++i) {
    for (const auto& [axis, size] : axes(in(i))) {
      const auto [at, fresh] = sizes.try_emplace(terms.at(i).at(static_cast<size_t>(axis)), size);
      if (!fresh && !(at->second == size)) Refuse(i, axis, "another operand has a different extent for this index");
    }
  }
  std::vector<ValueId> operands;
  for (size_t i = 0; i < num_inputs(); ++i) {
    Axes mixed;
    for (size_t axis = 0; axis < terms[i].size(); ++axis) {
      const auto found = sizes.find(terms[i][axis]);
      if (found != sizes.end() && made.find(terms[i][axis]) == std::string::npos) mixed[static_cast<int>(axis)] = found->second;
    }
    operands.push_back(Masked(in(i), mixed, 0));
  }
  Axes after;
  for (size_t axis = 0; axis < made.size(); ++axis) {
    const auto found = sizes.find(made[axis]);
    if (found != sizes.end()) after[static_cast<int>(axis)] = found->second;
  }
  Same(operands);
  SetAxes(0, after);
}

// Normalizations over the axes from `axis` on.
void ExtentNode::RowNormalization() {
  const int axis = Axis(Attr("axis", -1), rank(in(0)));
  for (size_t i = 1; i < num_inputs(); ++i) Only(i);
  const Axes after = axes(in(0));
  for (const auto& [unknown, size] : after) {
    if (unknown >= axis) Refuse(0, unknown);
  }
  Same();
  for (size_t i = 0; i < results_.size(); ++i) SetAxes(i, after);
}

// Operators for which samples along axis 0 are independent.
void ExtentNode::FirstAxisFree() {
  Only(0, {0});
  for (size_t i = 1; i < num_inputs(); ++i) Only(i);
  const Axes after = axes(in(0));
  Same();
  for (size_t i = 0; i < results_.size(); ++i) SetAxes(i, after);
}

// Operands: scores [samples, classes, ...], classes [samples, ...], class weights. Padding gets a class that is ignored.
void ExtentNode::ClassLoss() {
  const ValueId scores = in(0), labels = in(1);
  Only(2);
  const Axes of_scores = axes(scores);
  if (of_scores.contains(1)) Refuse(0, 1);
  Axes after;
  for (const auto& [axis, size] : of_scores) after[axis == 0 ? 0 : axis - 1] = size;
  for (const auto& [axis, size] : axes(labels)) after.try_emplace(axis, size);
  const int64_t ignored = IgnoredClassOf(node_.attributes);
  node_.attributes.set("ignore_index", ignored);
  std::vector<ValueId> operands = node_.inputs;
  operands[1] = Masked(labels, after, static_cast<double>(ignored));
  Same(operands);
  if (node_.attributes.String("reduction", "mean") == "none") SetAxes(0, after);
  SetAxes(1, of_scores);
}

}  // namespace gradloom
