// Operators that introduce data-dependent extents.
#include <algorithm>
#include <limits>

#include "compiler/onnx/extents/extent_node.h"

namespace gradloom {

// Positions of the same condition are computed once, so that values gathered by them have equal extents.
std::pair<ValueId, Size> ExtentNode::SelectedPositions(ValueId condition) {
  const auto found = extents_.places_.find(condition);
  if (found != extents_.places_.end()) return found->second;
  const std::vector<ValueId> made = Ops("NonZero", kGradloomDomain, {MaskedAll(condition, 0)}, 2);
  return extents_.places_[condition] = {made[0], NewSize(made[1], shape(made[0])[1])};
}

void ExtentNode::NonZero() {
  const auto [places, count] = SelectedPositions(in(0));
  Last("Identity", {places});
  SetAxes(0, {{1, count}});
}

// Without an axis the input is flattened.
void ExtentNode::Compress() {
  const auto [found, count] = SelectedPositions(in(1));
  const ValueId places = Reshaped(found, {-1});
  ValueId data = in(0);
  int64_t axis = 0;
  Axes after;
  if (node_.attributes.has("axis")) {
    axis = Axis(Attr("axis", 0), rank(data));
    after = axes(data);
  } else {
    for (const auto& [unknown, size] : axes(data)) {
      if (unknown != 0) Refuse(0, unknown);
    }
    data = Reshaped(data, {-1});
  }
  after[static_cast<int>(axis)] = count;
  Last("Gather", {data, places}, {{"axis", axis}});
  SetAxes(0, after);
}

// The result is gathered from the first positions of distinct slices, so that gradients flow to those.
void ExtentNode::Unique() {
  for (size_t i = 0; i < num_inputs(); ++i) Only(i);
  const bool flat = !node_.attributes.has("axis");
  const ValueId data = flat ? Reshaped(in(0), {-1}) : in(0);
  const int axis = flat ? 0 : Axis(Attr("axis", 0), rank(data));
  const std::vector<ValueId> made = Ops("Unique", kGradloomDomain, {data}, 4, {{"axis", int64_t{axis}}, {"sorted", Attr("sorted", 1)}});
  const Size count = NewSize(made[3], shape(made[0])[0]);
  const auto named = [&](size_t i, const std::string& op, std::vector<ValueId> inputs, Attributes attributes, const Axes& after) {
    if (i >= names_.size() || names_[i].empty()) return;
    Node node;
    node.op = op;
    node.inputs = std::move(inputs);
    node.attributes = std::move(attributes);
    node.origin = node_.origin;
    results_[i] = emitter_.EmitStatic(std::move(node), {names_[i]})[0];
    SetAxes(i, after);
  };
  named(0, "Gather", {data, made[0]}, {{"axis", int64_t{axis}}}, {{axis, count}});
  named(1, "Identity", {made[0]}, {}, {{0, count}});
  named(2, "Identity", {made[1]}, {}, {});
  named(3, "Identity", {made[2]}, {}, {{0, count}});
}

// Invalid boxes get a score that exceeds no threshold.
void ExtentNode::NonMaxSuppression() {
  ExpectRank(0, 3);
  ExpectRank(1, 3);
  Only(0, {1});
  Only(1, {2});
  for (size_t i = 2; i < num_inputs(); ++i) Only(i);
  const Size boxes = SameSize(0, 1, 1, 2);
  if (!boxes.known()) {
    constexpr size_t kThreshold = 4;
    constexpr double kNone = -std::numeric_limits<double>::infinity();
    node_.inputs.resize(kThreshold + 1, kNoValue);
    node_.inputs[1] = Masked(in(1), {{2, boxes}}, kNone);
    if (in(kThreshold) == kNoValue) node_.inputs[kThreshold] = Scalar(kNone, dtype(in(1)));
  }
  int64_t most = shape(in(0))[1];
  if (const Tensor* boxes = emitter_.Constant(in(2))) {
    if (boxes->elements() > 0) most = std::clamp<int64_t>(ElementAsInt(boxes->view(), 0), 0, most);
  }
  node_.domain = kGradloomDomain;
  node_.attributes.set("bound", shape(in(1))[0] * shape(in(1))[1] * most);
  const std::vector<ValueId> made = Ops("NonMaxSuppression", kGradloomDomain, node_.inputs, 2, node_.attributes);
  node_.domain.clear();
  Last("Identity", {made[0]});
  SetAxes(0, {{0, NewSize(made[1], shape(made[0])[0])}});
}

}  // namespace gradloom
