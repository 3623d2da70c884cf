// Split and Tile with data-dependent extents.
#include <algorithm>

#include "compiler/onnx/extents/extent_node.h"

namespace gradloom {

// Returns the extents of the parts: as given by the node, or equal ones with a smaller last one.
std::vector<Size> ExtentNode::PartsOf(const Size& extent, size_t count) {
  if (in(1) != kNoValue) {
    std::vector<Size> sizes = Sizes(1);
    for (const Size& size : sizes) {
      if (size.factor < 0) throw Error(ErrorCode::kShape, "Split has a part of " + std::to_string(size.factor), Describe(node_));
    }
    return sizes;
  }
  const int64_t parts = Attr("num_outputs", static_cast<int64_t>(count));
  if (parts <= 0 || parts > static_cast<int64_t>(emitter_.limits().node_inputs))
    throw Error(ErrorCode::kAttr, "Split must have at least 1 part, got " + std::to_string(parts), Describe(node_));
  if (const auto even = Quotient(extent, {parts})) return std::vector<Size>(static_cast<size_t>(parts), *even);
  const int64_t most = (Bound(extent) + parts - 1) / parts;
  const ValueId all = ScalarOf(extent), part = Op("Div", {Add(all, Int(parts - 1)), Int(parts)});
  const Size even = NewSize(part, most);
  std::vector<Size> sizes{even};
  for (int64_t i = 1; i < parts; ++i) {
    // With few elements the last parts may be empty.
    const ValueId rest = Sub(all, Mul(part, Int(i)));
    sizes.push_back(NewSize(Op("Max", {Op("Min", {rest, part}), Int(0)}), std::min(most, std::max<int64_t>(Bound(extent) - i, 0))));
  }
  return sizes;
}

void ExtentNode::Split() {
  const ValueId data = in(0);
  const int axis = Axis(Attr("axis", 0), rank(data));
  const Size extent = ExtentOf(data, axis);
  Axes after = axes(data);
  const auto numbers = in(1) == kNoValue ? std::nullopt : Numbers(in(1));
  const bool known = !numbers || std::all_of(numbers->begin(), numbers->end(), [](const Size& size) { return size.known(); });
  if (extent.known() && known) {
    Same();
    for (size_t i = 0; i < results_.size(); ++i) SetAxes(i, after);
    return;
  }
  const std::vector<Size> parts = PartsOf(extent, results_.size());
  // Unused outputs may be missing.
  if (parts.size() < results_.size()) {
    throw Error(ErrorCode::kArity,
                "Split has " + std::to_string(results_.size()) + " outputs but only " + std::to_string(parts.size()) + " parts",
                Describe(node_));
  }
  // At run time, the step checks that the parts add up to the extent.
  Size total{0};
  for (const Size& part : parts) total = Sum(total, part);
  const bool checked = in(1) != kNoValue && !(total == extent);
  const ValueId fits = checked ? Ops("SameExtent", kGradloomDomain, {ScalarOf(total), ScalarOf(extent)}, 1)[0] : kNoValue;
  const ValueId last = Int(std::max<int64_t>(shape(data)[axis] - 1, 0));
  Size begin{0};
  for (size_t i = 0; i < results_.size(); ++i) {
    const int64_t bound = std::min(Bound(parts[i]), shape(data)[axis]);
    ValueId from = ScalarOf(begin);
    // The check is made an operand, because unused values are not computed.
    if (checked) from = Add(from, Sub(fits, ScalarOf(total)));
    begin = Sum(begin, parts[i]);
    if (names_[i].empty()) continue;
    const ValueId places = Op("Max", {Op("Min", {Add(Arange(bound), from), last}), Int(0)});
    Node part;
    part.op = "Gather";
    part.inputs = {data, places};
    part.attributes = {{"axis", int64_t{axis}}};
    part.origin = node_.origin;
    results_[i] = emitter_.EmitStatic(std::move(part), {names_[i]})[0];
    after[axis] = parts[i];
    SetAxes(i, after);
  }
}

// Element i of the result is element i modulo the valid extent of the operand.
void ExtentNode::Tile() {
  const std::vector<Size> numbers = Sizes(1);
  if (static_cast<int>(numbers.size()) != rank(in(0)))
    throw Error(ErrorCode::kShape, "Tile has " + std::to_string(numbers.size()) + " repeats for " + shape(in(0)).ToString(),
                Describe(node_));
  ValueId data = in(0);
  Axes after;
  std::vector<int64_t> repeats;
  for (int axis = 0; axis < rank(in(0)); ++axis) {
    const Size has = ExtentOf(in(0), axis), times = numbers[static_cast<size_t>(axis)];
    after[axis] = Times(has, times);
    repeats.push_back(has.known() ? Bound(times) : 1);
    if (has.known() || times == Size{1}) continue;
    const ValueId extent = Op("Max", {ScalarOf(has), Int(1)});
    const ValueId places = Op("Mod", {Arange(shape(data)[axis] * Bound(times)), extent});
    data = Op("Gather", {data, places}, {{"axis", int64_t{axis}}});
  }
  Same({data, Ints(repeats)});
  SetAxes(0, after);
}

}  // namespace gradloom
