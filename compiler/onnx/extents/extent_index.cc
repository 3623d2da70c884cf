// Gathers, scatters and Slice with data-dependent extents.
#include <algorithm>
#include <limits>

#include "compiler/onnx/extents/extent_node.h"

namespace gradloom {

// Returns the data-dependent beginning or end of a slice with a positive step: negative values count from the end, and the result is
// clamped.
Size ExtentNode::PositionIn(const Size& extent, ValueId places, size_t i) {
  const ValueId at = ElementOf(places, static_cast<int64_t>(i)), all = ScalarOf(extent), zero = Int(0);
  const ValueId from_front = Op("Where", {Op("Less", {at, zero}), Add(at, all), at});
  return NewSize(Op("Max", {Op("Min", {from_front, all}), zero}), Bound(extent));
}

void ExtentNode::Slice() {
  const int n = rank(in(0));
  const auto starts = Numbers(in(1)), ends = Numbers(in(2));
  std::vector<int64_t> sliced = KnownInts(3), steps = KnownInts(4);
  const auto count = static_cast<size_t>(shape(in(1)).elements());
  if (in(3) == kNoValue) {
    for (size_t i = 0; i < count; ++i) sliced.push_back(static_cast<int64_t>(i));
  }
  if (in(4) == kNoValue) steps.resize(count, 1);
  if (shape(in(2)).elements() != static_cast<int64_t>(count) || sliced.size() != count || steps.size() != count)
    throw Error(ErrorCode::kShape, "starts, ends, axes and steps of Slice must have equal lengths", Describe(node_));
  // With a negative step, the position before the first one is written as a number that also denotes another position.
  const bool down = std::any_of(steps.begin(), steps.end(), [](int64_t step) { return step < 0; });
  if (!starts && down) KnownInts(1);
  if (!ends && down) KnownInts(2);
  Axes after = axes(in(0));
  // Axes with known extents and bounds are sliced by one ordinary node before the others.
  std::vector<int64_t> from, to, along, by;
  std::vector<size_t> rest;
  for (size_t i = 0; i < count; ++i) {
    const int axis = Axis(sliced.at(i), n);
    if (!after.contains(axis) && starts && ends && (*starts)[i].known() && (*ends)[i].known()) {
      from.push_back((*starts)[i].factor);
      to.push_back((*ends)[i].factor);
      along.push_back(axis);
      by.push_back(steps[i]);
    } else {
      rest.push_back(i);
    }
  }
  ValueId data = in(0);
  if (!along.empty() && !rest.empty()) data = Op("Slice", {data, Ints(from), Ints(to), Ints(along), Ints(by)});
  for (size_t k = 0; k < rest.size(); ++k) {
    const size_t i = rest[k];
    const int axis = Axis(sliced[i], n);
    Size extent = after.contains(axis) ? after[axis] : Size{shape(data)[axis]};
    const Size begin = starts ? (*starts)[i] : PositionIn(extent, in(1), i), end = ends ? (*ends)[i] : PositionIn(extent, in(2), i);
    data = SliceAxis(data, axis, extent, begin, end, steps[i]);
    after[axis] = extent;
  }
  rest.empty() ? Same() : static_cast<void>(Last("Identity", {data}));
  SetAxes(0, after);
}

// `extent`: in: the extent of the axis; out: that of the result.
ValueId ExtentNode::SliceAxis(ValueId data, int axis, Size& extent, const Size& start, const Size& end, int64_t step) {
  const int64_t bound = shape(data)[axis];
  const auto cut = [&](int64_t from, int64_t to) {
    return Op("Slice", {data, Ints({from}), Ints({to}), Ints({int64_t{axis}}), Ints({step})});
  };
  const bool to_end = end.known() && end.factor >= bound;
  const bool before_end = end.known() && end.factor < 0;
  if (step > 0 && start.known() && start.factor >= 0 && (before_end || Least(end) >= 0)) {
    // Counting from the front keeps the valid elements in front.
    const int64_t most = to_end ? bound : before_end ? std::max(bound + end.factor, int64_t{0}) : std::min(bound, Bound(end));
    Size last = extent;
    if (before_end) {
      last = NewSize(Op("Max", {Add(ScalarOf(extent), Int(std::max(end.factor, -bound))), Int(0)}), most);
    } else if (!to_end && !(end == extent)) {
      last = extent.known() && Bound(end) <= extent.factor
                 ? end
                 : NewSize(Op("Min", {ScalarOf(extent), ScalarOf(end)}), std::min(Bound(extent), most));
    }
    if (start.factor != 0 || step != 1) {
      const ValueId span = Add(Sub(ScalarOf(last), Int(start.factor)), Int(step - 1));
      const int64_t count = std::max<int64_t>(0, (std::min(most, Bound(last)) - start.factor + step - 1) / step);
      last = last.known() ? Size{count} : NewSize(Op("Max", {Op("Div", {span, Int(step)}), Int(0)}), count);
    }
    extent = last;
    return cut(start.factor, most);
  }
  if (step == 0) throw Error(ErrorCode::kValue, "the step of Slice must not be 0", Describe(node_));
  // The beginning and the end, counted from the front and clamped like in ONNX.
  const ValueId all = ScalarOf(extent), zero = Int(0);
  const auto from_front = [&](const Size& at) {
    if (at.known()) return at.factor < 0 ? Add(all, Int(std::max(at.factor, -(int64_t{1} << 40)))) : Int(std::min(at.factor, bound));
    const ValueId place = ScalarOf(at);
    return Least(at) < 0 ? Op("Where", {Op("Less", {place, zero}), Add(all, place), place}) : place;
  };
  const auto clamp = [&](ValueId at, ValueId least, ValueId most) { return Op("Max", {Op("Min", {at, most}), least}); };
  const ValueId last = Sub(all, Int(1)), before = Int(-1);
  const ValueId from = step > 0 ? clamp(from_front(start), zero, all) : clamp(from_front(start), before, last);
  const ValueId to = step > 0 ? clamp(from_front(end), zero, all) : clamp(from_front(end), before, last);
  const int64_t stride = step > 0 ? step : -step;
  const ValueId span = step > 0 ? Sub(to, from) : Sub(from, to);
  const ValueId count = Op("Max", {Op("Div", {Add(span, Int(stride - 1)), Int(stride)}), zero});
  int64_t most = (bound + stride - 1) / stride;
  if (step > 0 && start.known()) {
    // The largest number of elements between them.
    int64_t width = start.factor < 0 ? -std::max(start.factor, -bound) : std::max(bound - start.factor, int64_t{0});
    if (start.factor < 0 && before_end) width = std::max(width + end.factor, int64_t{0});
    most = (width + stride - 1) / stride;
  }
  extent = NewSize(count, most);
  const ValueId picked = clamp(Add(Arange(most, step), from), zero, Int(bound - 1));
  return Op("Gather", {data, picked}, {{"axis", int64_t{axis}}});
}

void ExtentNode::Gather() {
  const ValueId data = in(0);
  const int axis = Axis(Attr("axis", 0), rank(data)), more = rank(in(1)) - 1;
  const ValueId indices = ClampedIndices(NonNegativeIndices(in(1), ExtentOf(data, axis)), {shape(data)[axis]});
  Axes after;
  for (const auto& [from, size] : axes(data)) {
    if (from != axis) after[from < axis ? from : from + more] = size;
  }
  for (const auto& [from, size] : axes(in(1))) after[axis + from] = size;
  Same({data, indices});
  SetAxes(0, after);
}

void ExtentNode::GatherElements() {
  const int axis = Axis(Attr("axis", 0), rank(in(0)));
  const Axes after = axes(in(1));
  for (const auto& [other, size] : axes(in(0))) {
    // The extents of the indices must not exceed those of the data.
    if (other != axis && !after.contains(other) && shape(in(1))[other] == shape(in(0))[other]) Refuse(0, other);
  }
  const ValueId from_front = NonNegativeIndices(in(1), ExtentOf(in(0), axis));
  Same({in(0), ClampedIndices(from_front, {shape(in(0))[axis]})});
  SetAxes(0, after);
}

// Returns the number of axes, after the `batches` first ones, that an index tuple selects along.
int ExtentNode::TupleOf(ValueId data, ValueId indices, int64_t batches) const {
  const int last = rank(indices) - 1;
  const int64_t tuple = last < 0 ? 0 : shape(indices)[last];
  if (batches < 0 || batches > last || batches + tuple > rank(data)) {
    throw Error(ErrorCode::kShape,
                "indices of " + shape(indices).ToString() + " with batch_dims " + std::to_string(batches) + " do not fit data of " +
                    shape(data).ToString(),
                Describe(node_));
  }
  return static_cast<int>(tuple);
}

void ExtentNode::GatherNd() {
  const ValueId data = in(0), indices = in(1);
  const int64_t batches = Attr("batch_dims", 0);
  const int tuple = TupleOf(data, indices, batches), last = rank(indices) - 1;
  const auto batch = static_cast<int>(batches);
  Only(1, [&] {
    std::vector<int> may;
    for (int i = batch; i < last; ++i) may.push_back(i);
    return may;
  }());
  Axes after = axes(indices);
  if (batch == 0 && tuple == 1 && axes(data).contains(0)) {
    const ValueId rows = Op("Squeeze", {indices, Ints({int64_t{last}})});
    if (!after.empty()) extents_.axes_[rows] = after;
    node_.op = "Gather";
    node_.attributes = {};
    node_.inputs = {data, rows};
    return Gather();
  }
  std::vector<int64_t> extents;
  for (const auto& [axis, size] : axes(data)) {
    if (axis < batch + tuple) Refuse(0, axis);
    after[last + axis - batch - tuple] = size;
  }
  for (int i = 0; i < tuple; ++i) extents.push_back(shape(data)[batch + i]);
  Same({data, ClampedIndices(indices, extents)});
  SetAxes(0, after);
}

namespace {

// Whether padding may be scattered as zeros, which change nothing.
bool Adds(const Node& node) { return node.attributes.String("reduction", "none") == "add"; }

}  // namespace

void ExtentNode::ScatterWithPaddingSlice(ValueId data, ValueId places, int axis, int64_t extent) {
  const ValueId along = Ints({int64_t{axis}});
  const ValueId slice = Op("Slice", {data, Ints({0}), Ints({1}), along, Ints({1})});
  const ValueId longer = Op("Concat", {data, slice}, {{"axis", int64_t{axis}}});
  const ValueId scattered = Op(node_.op, {longer, places, in(2)}, node_.attributes);
  Last("Slice", {scattered, Ints({0}), Ints({extent}), along, Ints({1})});
}

// Scatters padding to an extra slice at the end, which is cut off.
void ExtentNode::ScatterNd() {
  const ValueId data = in(0), indices = in(1);
  const int tuple = TupleOf(data, indices, 0), last = rank(indices) - 1;
  Only(1, [&] {
    std::vector<int> may;
    for (int i = 0; i < last; ++i) may.push_back(i);
    return may;
  }());
  const Axes kept = axes(data);
  for (const auto& [axis, size] : kept) {
    if (axis < tuple) Refuse(0, axis);
  }
  std::vector<int64_t> extents;
  for (int i = 0; i < tuple; ++i) extents.push_back(shape(data)[i]);
  const Axes unknown = axes(indices);
  ValueId updates = in(2), places = ClampedIndices(indices, extents);
  if (Adds(node_) || unknown.empty()) {
    Same({data, places, Masked(updates, unknown, 0)});
    return SetAxes(0, kept);
  }
  // The index tuple of padding: its first component is the extent.
  std::vector<int64_t> nowhere(static_cast<size_t>(tuple), 0);
  nowhere[0] = extents[0];
  const ValueId dims = Ints(extents);
  places = Op("Where", {Op("Less", {places, Int(0)}), Add(places, dims), places});
  places = Op("Where", {Counts(unknown, shape(indices)), places, Ints(nowhere)});
  ScatterWithPaddingSlice(data, places, 0, extents[0]);
  SetAxes(0, kept);
}

void ExtentNode::ScatterElements() {
  const ValueId data = in(0);
  const int n = rank(data), axis = Axis(Attr("axis", 0), n);
  const Axes kept = axes(data), unknown = axes(in(1));
  const int64_t extent = shape(data)[axis];
  const ValueId from_front = NonNegativeIndices(in(1), ExtentOf(data, axis));
  ValueId places = ClampedIndices(from_front, {extent}), updates = in(2);
  if (Adds(node_) || unknown.empty()) {
    Same({data, places, Masked(updates, unknown, 0)});
    return SetAxes(0, kept);
  }
  const DType type = dtype(places);
  places = Op("Where", {Op("Less", {places, Scalar(0, type)}), Add(places, Scalar(static_cast<double>(extent), type)), places});
  places = Op("Where", {Counts(unknown, shape(in(1))), places, Scalar(static_cast<double>(extent), type)});
  ScatterWithPaddingSlice(data, places, axis, extent);
  SetAxes(0, kept);
}

}  // namespace gradloom
