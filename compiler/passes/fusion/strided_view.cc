#include "compiler/passes/fusion/strided_view.h"

#include <algorithm>
#include <string_view>

#include "compiler/graph/constants.h"
#include "compiler/ops/op.h"
#include "compiler/passes/devices/slice_part.h"

namespace gradloom {
namespace {

// Adds a run outside of those of an axis.
void AddOutside(std::vector<StridedRun>& axis, StridedRun run) {
  if (run.extent == 1) return;
  if (!axis.empty() && run.stride == axis.front().extent * axis.front().stride) {
    axis.front().extent *= run.extent;
  } else {
    axis.insert(axis.begin(), run);
  }
}

size_t AxisOf(const Node& node, const StridedView& view) {
  const int rank = static_cast<int>(view.axes.size());
  return static_cast<size_t>(NormalAxis(node.attributes.Int("axis", 0), rank).value_or(0));
}

// Returns the view with only `extent` positions of an axis, from `begin` on; nullopt if the axis is not a single run.
std::optional<StridedView> PartAlong(StridedView view, size_t axis, int64_t begin, int64_t extent) {
  std::vector<StridedRun>& runs = view.axes[axis];
  if (extent == view.Extent(axis)) return view;
  if (runs.size() != 1) return std::nullopt;
  view.first += begin * runs[0].stride;
  runs[0].extent = extent;
  if (extent == 1) runs.clear();
  return view;
}

// Returns the perm of a Transpose, reversed if it has none.
std::vector<int64_t> PermOf(const Node& node, size_t rank) {
  std::vector<int64_t> reversed;
  for (size_t i = rank; i > 0; --i) reversed.push_back(static_cast<int64_t>(i) - 1);
  return node.attributes.Ints("perm", reversed);
}

// The sum of the extents along the axis of the values before position `end`; nullopt if one of them is absent.
std::optional<int64_t> ExtentBefore(const Graph& graph, const std::vector<ValueId>& values, size_t end, size_t axis) {
  int64_t sum = 0;
  for (size_t i = 0; i < end; ++i) {
    if (values[i] == kNoValue) return std::nullopt;
    sum += graph.value(values[i]).shape[static_cast<int>(axis)];
  }
  return sum;
}

std::optional<StridedView> GatheredView(const Graph& graph, const Node& node, const StridedView& view) {
  const auto indices = ConstantInts(graph, node, 1);
  if (!indices || graph.value(node.inputs[1]).shape.rank() != 0) return std::nullopt;
  const size_t axis = AxisOf(node, view);
  const int64_t extent = view.Extent(axis), index = indices->front() < 0 ? indices->front() + extent : indices->front();
  if (index < 0 || index >= extent) return std::nullopt;
  auto made = PartAlong(view, axis, index, 1);
  if (made) made->axes.erase(made->axes.begin() + static_cast<std::ptrdiff_t>(axis));
  return made;
}

}  // namespace

int64_t StridedView::Extent(size_t axis) const {
  int64_t extent = 1;
  for (const StridedRun& run : axes[axis]) extent *= run.extent;
  return extent;
}

StridedView ViewOf(const Shape& shape) {
  const std::vector<int64_t> strides = shape.strides();
  StridedView view;
  for (size_t i = 0; i < strides.size(); ++i) AddOutside(view.axes.emplace_back(), {shape.dims()[i], strides[i]});
  return view;
}

std::optional<StridedView> Reshaped(const StridedView& view, const Shape& shape) {
  std::vector<StridedRun> rest;
  for (const auto& axis : view.axes) rest.insert(rest.end(), axis.begin(), axis.end());
  StridedView made{std::vector<std::vector<StridedRun>>(shape.dims().size()), view.first};
  for (size_t axis = made.axes.size(); axis-- > 0;) {
    int64_t left = shape.dims()[axis];
    while (left != 1) {
      if (rest.empty()) return std::nullopt;
      StridedRun& run = rest.back();
      const int64_t taken = std::min(left, run.extent);
      if (taken < 1 || left % taken != 0 || run.extent % taken != 0) return std::nullopt;
      AddOutside(made.axes[axis], {taken, run.stride});
      left /= taken;
      run = {run.extent / taken, run.stride * taken};
      if (run.extent == 1) rest.pop_back();
    }
  }
  if (!rest.empty()) return std::nullopt;
  return made;
}

StridedView Transposed(const StridedView& view, const std::vector<int64_t>& perm) {
  StridedView made{{}, view.first};
  for (int64_t axis : perm) made.axes.push_back(view.axes[static_cast<size_t>(axis)]);
  return made;
}

std::optional<StridedView> OutputView(const Graph& graph, const Node& node, size_t output, const StridedView& input) {
  if (!node.domain.empty()) return std::nullopt;
  const Shape& shape = graph.value(node.outputs[output]).shape;
  if (KeepsElements(node)) return Reshaped(input, shape);
  if (node.op == "Transpose") return Transposed(input, PermOf(node, input.axes.size()));
  if (node.op == "Gather") return GatheredView(graph, node, input);
  if (node.op == "Split") {
    const size_t axis = AxisOf(node, input);
    const auto before = ExtentBefore(graph, node.outputs, output, axis);
    return before ? PartAlong(input, axis, *before, shape[static_cast<int>(axis)]) : std::nullopt;
  }
  const auto part = node.op == "Slice" ? PartOf(graph, node, graph.value(node.inputs[0]).shape, shape) : std::nullopt;
  return part ? PartAlong(input, static_cast<size_t>(part->axis), part->begin, part->end - part->begin) : std::nullopt;
}

std::optional<StridedView> InputView(const Graph& graph, const Node& node, size_t input, const StridedView& output) {
  if (!node.domain.empty()) return std::nullopt;
  const Shape& shape = graph.value(node.inputs[input]).shape;
  if (KeepsElements(node)) return Reshaped(output, shape);
  if (node.op == "Transpose") {
    const std::vector<int64_t> perm = PermOf(node, output.axes.size());
    std::vector<int64_t> inverse(perm.size());
    for (size_t i = 0; i < perm.size(); ++i) inverse[static_cast<size_t>(perm[i])] = static_cast<int64_t>(i);
    return Transposed(output, inverse);
  }
  if (node.op != "Concat") return std::nullopt;
  const size_t axis = AxisOf(node, output);
  const auto before = ExtentBefore(graph, node.inputs, input, axis);
  return before ? PartAlong(output, axis, *before, shape[static_cast<int>(axis)]) : std::nullopt;
}

}  // namespace gradloom
