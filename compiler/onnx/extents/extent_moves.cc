// Pointwise and data movement operators with data-dependent extents.
#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compiler/onnx/extents/extent_node.h"

namespace gradloom {

namespace {

// Operands of operators whose derivatives are not finite everywhere, and a number at which they are.
struct Singularity {
  size_t operand;
  double regular;
};
const std::multimap<std::string, Singularity>& Singularities() {
  static const std::multimap<std::string, Singularity> table = {
      {"Acos", {0, 0}}, {"Acosh", {0, 2}}, {"Asin", {0, 0}}, {"Atanh", {0, 0}}, {"Div", {1, 1}},        {"Log", {0, 1}},
      {"Mod", {1, 1}},  {"Pow", {0, 1}},   {"Pow", {1, 1}},  {"Sqrt", {0, 1}},  {"Reciprocal", {0, 1}},
  };
  return table;
}

}  // namespace

// Padding has no gradient, but zero times an infinite derivative would be NaN.
std::vector<ValueId> ExtentNode::RegularOperands() {
  std::vector<ValueId> operands = node_.inputs;
  const auto [first, last] = Singularities().equal_range(node_.op);
  for (auto at = first; at != last; ++at) {
    const auto& [operand, regular] = at->second;
    ValueId& id = operands.at(operand);
    const Axes unknown = axes(id);
    if (unknown.empty() || !IsFloating(dtype(id))) continue;
    id = Masked(id, unknown, regular);
    extents_.axes_[id] = unknown;
  }
  return operands;
}

// Output element i depends on elements i of the broadcast operands, so valid elements stay in front.
void ExtentNode::Pointwise() {
  std::vector<ValueId> operands = RegularOperands();
  const size_t count = node_.op == "Dropout" || node_.op == "Trilu" ? 1 : operands.size();
  for (size_t i = count; i < operands.size(); ++i) Only(i);
  const std::vector<ValueId> rest(operands.begin() + static_cast<std::ptrdiff_t>(count), operands.end());
  operands.resize(count);
  int most = 0;
  for (ValueId id : operands) most = std::max(most, id == kNoValue ? 0 : rank(id));
  operands = WithEqualBounds(std::move(operands), most);
  const Axes merged = Broadcast(operands, most);
  operands.insert(operands.end(), rest.begin(), rest.end());
  Same(operands);
  for (size_t i = 0; i < results_.size(); ++i) SetAxes(i, merged);
}

void ExtentNode::Transpose() {
  const int n = rank(in(0));
  std::vector<int64_t> perm = node_.attributes.Ints("perm");
  for (int i = n - 1; i >= 0 && static_cast<int>(perm.size()) < n; --i) perm.push_back(i);
  const Axes before = axes(in(0));
  Axes after;
  for (int i = 0; i < n; ++i) {
    const auto found = before.find(static_cast<int>(perm[static_cast<size_t>(i)]));
    if (found != before.end()) after[i] = found->second;
  }
  Same();
  SetAxes(0, after);
}

void ExtentNode::Squeeze() {
  const int n = rank(in(0));
  const Axes before = axes(in(0));
  std::set<int> gone;
  for (int64_t axis : KnownInts(1)) gone.insert(Axis(axis, n));
  if (in(1) == kNoValue) {
    for (int axis = 0; axis < n; ++axis) {
      if (shape(in(0))[axis] == 1 && !before.contains(axis)) gone.insert(axis);
    }
  }
  Axes after;
  for (const auto& [axis, size] : before) {
    if (gone.contains(axis)) Refuse(0, axis, "the extent may differ from 1");
    after[axis - static_cast<int>(std::distance(gone.begin(), gone.lower_bound(axis)))] = size;
  }
  Same({in(0), Ints({gone.begin(), gone.end()})});
  SetAxes(0, after);
}

void ExtentNode::Unsqueeze() {
  std::vector<int64_t> added = KnownInts(1);
  const int n = rank(in(0)) + static_cast<int>(added.size());
  std::set<int> fresh;
  for (int64_t axis : added) fresh.insert(Axis(axis, n));
  Axes after;
  int from = 0;
  const Axes before = axes(in(0));
  for (int axis = 0; axis < n; ++axis) {
    if (fresh.contains(axis)) continue;
    const auto found = before.find(from++);
    if (found != before.end()) after[axis] = found->second;
  }
  Same();
  SetAxes(0, after);
}

void ExtentNode::Reshape() {
  std::vector<Size> target = Sizes(1);
  for (size_t i = 0; i < target.size() && Attr("allowzero", 0) == 0; ++i) {
    if (!(target[i] == Size{0})) continue;
    if (static_cast<int>(i) >= rank(in(0)))
      throw Error(ErrorCode::kShape, "element " + std::to_string(i) + " of the new shape is 0, but the input has no such axis",
                  Describe(node_));
    target[i] = ExtentOf(in(0), static_cast<int>(i));
  }
  ReshapeTo(std::move(target));
}

void ExtentNode::Flatten() {
  const int n = rank(in(0)), axis = static_cast<int>(Attr("axis", 1) < 0 ? Attr("axis", 1) + n : Attr("axis", 1));
  Size rows{1}, columns{1};
  for (int i = 0; i < n; ++i) (i < axis ? rows : columns) = Times(i < axis ? rows : columns, ExtentOf(in(0), i));
  ReshapeTo({rows, columns});
}

// A Reshape keeps the order of elements. So valid elements stay valid if, counting padding, each unknown extent has as many elements before
// and after it as it had. Otherwise they are repacked.
void ExtentNode::ReshapeTo(std::vector<Size> target) {
  const ValueId data = in(0);
  CloseTarget(target);
  std::vector<int64_t> bounds;
  for (const Size& size : target) bounds.push_back(Bound(size));
  std::vector<Size> sizes;
  for (int i = 0; i < rank(data); ++i) sizes.push_back(ExtentOf(data, i));
  if (PartsAtUnknown(sizes, shape(data).dims()) == PartsAtUnknown(target, bounds)) {
    node_.op = "Reshape";
    node_.attributes = {};
    node_.attributes.set("allowzero", int64_t{1});
    Same({data, Ints(bounds)});
  } else {
    const auto lengths = [&](const std::vector<Size>& list) {
      std::vector<ValueId> scalars;
      for (const Size& size : list) scalars.push_back(Reshaped(ScalarOf(size), {1}));
      return scalars.empty() ? Ints({}) : Op("Concat", scalars, {{"axis", int64_t{0}}});
    };
    const ValueId from = lengths(sizes), to = lengths(target);
    node_.domain = kGradloomDomain;
    Last("Repack", {data, from, to}, {{"shape", bounds}});
  }
  Axes after;
  for (size_t i = 0; i < target.size(); ++i) after[static_cast<int>(i)] = target[i];
  SetAxes(0, after);
}

// Replaces an extent of -1 by the one that it stands for.
void ExtentNode::CloseTarget(std::vector<Size>& target) {
  const auto open = std::find(target.begin(), target.end(), Size{-1});
  if (open == target.end()) return;
  const ValueId data = in(0);
  Size all{1}, rest{1};
  int64_t bound = 1;
  for (int i = 0; i < rank(data); ++i) {
    all = Times(all, ExtentOf(data, i));
    bound *= shape(data)[i];
  }
  for (const Size& size : target) {
    if (!(size == Size{-1})) rest = Times(rest, size);
  }
  if (const auto quotient = Quotient(all, rest)) {
    *open = *quotient;
    return;
  }
  // The extent is a new scalar, which the model takes for equal to another one.
  if (rest.factor <= 0 || !rest.known())
    Refuse(0, axes(data).empty() ? 0 : axes(data).begin()->first, "the extent that -1 stands for cannot be computed");
  *open = NewSize(Op("Div", {ScalarOf(all), Int(rest.factor)}), bound / rest.factor);
}

std::vector<std::pair<Size, int64_t>> ExtentNode::PartsAtUnknown(const std::vector<Size>& sizes, const std::vector<int64_t>& bounds) const {
  std::vector<std::pair<Size, int64_t>> found;
  int64_t before = 1;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (!sizes[i].known()) {
      if (found.empty()) found.push_back({Size{before}, before});
      found.push_back({sizes[i], bounds[i]});
    } else if (found.empty()) {
      before *= sizes[i].factor;
    } else {
      found.back() = {Times(found.back().first, sizes[i]), found.back().second * bounds[i]};
    }
  }
  return found;
}

void ExtentNode::Expand() {
  const std::vector<Size> numbers = Sizes(1);
  const int own = rank(in(0)), wanted = static_cast<int>(numbers.size()), n = std::max(own, wanted);
  std::vector<int64_t> bounds(static_cast<size_t>(n), 1);
  Axes after;
  for (int axis = 0; axis < n; ++axis) {
    const int from = axis - (n - own), to = axis - (n - wanted);
    Size size = to >= 0 ? numbers[static_cast<size_t>(to)] : Size{1};
    const Size has = from >= 0 ? ExtentOf(in(0), from) : Size{1};
    // An extent other than 1 is kept; if both differ from 1, they must be equal.
    if (!has.known() || has.factor != 1) {
      if (!has.known() && !size.known() && !(has == size)) {
        Axes same{{axis, has}};
        Merge(same, axis, size, Bound(size), Bound(has));
        size = same[axis];
      } else {
        size = has;
      }
    }
    bounds[static_cast<size_t>(axis)] = has.known() && has.factor == 1 ? Bound(size) : (from >= 0 ? shape(in(0))[from] : 1);
    after[axis] = size;
  }
  Same({in(0), Ints(bounds)});
  SetAxes(0, after);
}

void ExtentNode::ConstantOfShape() {
  const std::vector<Size> numbers = Sizes(0);
  std::vector<int64_t> bounds;
  Axes after;
  for (size_t i = 0; i < numbers.size(); ++i) {
    bounds.push_back(Bound(numbers[i]));
    after[static_cast<int>(i)] = numbers[i];
  }
  Same({Ints(bounds)});
  SetAxes(0, after);
}

// Numbers from start by steps of delta, up to but excluding limit.
void ExtentNode::Range() {
  const Size from = OneSize(0), to = OneSize(1), by = OneSize(2);
  if (!by.known() || by.factor == 0) {
    throw Error(ErrorCode::kUnsupported, "the delta of Range must be a constant other than 0 if its start or limit is data-dependent",
                Describe(node_));
  }
  const DType type = dtype(in(1));
  Size count = to;
  int64_t bound = Bound(to);
  if (!(from == Size{0}) || by.factor != 1 || Least(to) < 0) {
    const bool up = by.factor > 0;
    const int64_t step = up ? by.factor : -by.factor, least = Least(up ? from : to);
    bound = std::max<int64_t>(0, (Bound(up ? to : from) - least + step - 1) / step);
    const ValueId span = Add(up ? Sub(ScalarOf(to), ScalarOf(from)) : Sub(ScalarOf(from), ScalarOf(to)), Int(step - 1));
    count = NewSize(Op("Max", {Op("Div", {span, Int(step)}), Int(0)}), bound);
  }
  Last("Add", {Arange(bound, by.factor, type), in(0)});
  SetAxes(0, {{0, count}});
}

void ExtentNode::Concat() {
  const int n = rank(in(0)), axis = Axis(Attr("axis", 0), n);
  Axes after;
  Size total{0};
  bool gaps = false, open = false;  // gaps: an operand follows one with padding
  std::vector<Size> sizes;
  // Along the axis, bounds may differ.
  for (int other = 0; other < n; ++other) {
    int64_t least = std::numeric_limits<int64_t>::max();
    for (ValueId id : node_.inputs) least = std::min(least, shape(id)[other]);
    for (ValueId& id : node_.inputs) {
      if (other != axis && shape(id)[other] > least && axes(id).contains(other)) id = Cut(id, other, least);
    }
  }
  for (size_t i = 0; i < num_inputs(); ++i) {
    for (const auto& [other, size] : axes(in(i))) {
      if (other != axis) Merge(after, other, size, shape(in(i))[other], after.contains(other) ? shape(in(i))[other] : -1);
    }
    gaps = gaps || open;
    sizes.push_back(ExtentOf(in(i), axis));
    open = open || !sizes.back().known();
  }
  for (const Size& size : sizes) total = Sum(total, size);
  after[axis] = total;
  if (!gaps) {
    Same();
    return SetAxes(0, after);
  }
  // Valid elements are moved together: element i is found at i plus the amount of padding before it.
  const ValueId padded = Op("Concat", node_.inputs, {{"axis", int64_t{axis}}});
  const int64_t bound = shape(padded)[axis];
  const ValueId all = Arange(bound);
  ValueId from = all;
  Size begin{0};
  for (size_t i = 0; i + 1 < num_inputs(); ++i) {
    begin = Sum(begin, sizes[i]);
    if (sizes[i].known()) continue;
    const ValueId gap = Sub(Int(shape(in(i))[axis]), ScalarOf(sizes[i]));
    from = Op("Where", {Op("Less", {all, ScalarOf(begin)}), from, Add(from, gap)});
  }
  Last("Gather", {padded, Op("Min", {from, Int(bound - 1)})}, {{"axis", int64_t{axis}}});
  SetAxes(0, after);
}

// The added elements follow the valid ones.
void ExtentNode::Pad() {
  const int n = rank(in(0));
  const std::vector<int64_t> pads = KnownInts(1);
  std::vector<int64_t> padded_axes = KnownInts(3);
  if (in(3) == kNoValue) {
    for (int i = 0; i < n; ++i) padded_axes.push_back(i);
  }
  Axes after = axes(in(0));
  ValueId data = in(0);
  for (size_t i = 0; i < padded_axes.size(); ++i) {
    const int axis = Axis(padded_axes[i], n);
    const int64_t begin = pads.at(i), end = pads.at(i + padded_axes.size());
    if (!after.contains(axis) || (begin == 0 && end == 0)) continue;
    if (node_.attributes.String("mode", "constant") != "constant" || begin < 0 || end < 0) Refuse(0, axis);
    const ValueId value = in(2) != kNoValue ? Reshaped(in(2), {}) : Scalar(0, dtype(data));
    data = Op("Where", {Mask(after[axis], shape(data)[axis], axis, n), data, value});
    after[axis] = Sum(after[axis], {begin + end});
  }
  std::vector<ValueId> operands = node_.inputs;
  operands[0] = data;
  Same(operands);
  SetAxes(0, after);
}

void ExtentNode::OneHot() {
  const int n = rank(in(0)) + 1, axis = Axis(Attr("axis", -1), n);
  Axes after;
  for (const auto& [from, size] : axes(in(0))) after[from < axis ? from : from + 1] = size;
  Same();
  SetAxes(0, after);
}

void ExtentNode::ShapeOf() {
  const int n = rank(in(0));
  const auto clamp = [&](int64_t at) { return static_cast<int>(std::clamp<int64_t>(at < 0 ? at + n : at, 0, n)); };
  const int begin = clamp(Attr("start", 0)), end = std::max(begin, clamp(Attr("end", n)));
  std::vector<Size> numbers;
  std::vector<ValueId> scalars;
  for (int axis = begin; axis < end; ++axis) {
    numbers.push_back(ExtentOf(in(0), axis));
    scalars.push_back(numbers.back().known() ? Ints({numbers.back().factor}) : Reshaped(ScalarOf(numbers.back()), {1}));
  }
  scalars.empty() ? Last("Identity", {Ints({})}) : Last("Concat", scalars, {{"axis", int64_t{0}}});
  if (std::any_of(numbers.begin(), numbers.end(), [](const Size& size) { return !size.known(); })) extents_.numbers_[results_[0]] = numbers;
}

void ExtentNode::SizeOf() {
  Size all{1};
  for (int axis = 0; axis < rank(in(0)); ++axis) all = Times(all, ExtentOf(in(0), axis));
  Last("Identity", {ScalarOf(all)});
  if (!all.known()) extents_.numbers_[results_[0]] = {all};
}

}  // namespace gradloom
