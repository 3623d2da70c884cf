// Whole batches that follow each other along an axis: joined by a Concat, such as two views of each sample that go through one network,
// and taken apart again.
#include <algorithm>
#include <cstdint>
#include <utility>

#include "compiler/onnx/batch/batch_prover.h"

namespace gradloom {
namespace {

int AxisOf(const Node& node, int rank) {
  const int64_t axis = node.attributes.Int("axis", 0);
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

}  // namespace

// Returns how many whole batches a batch axis with this extent at the declared batch size consists of; 0: samples are in another order.
int64_t BatchProver::WholeBatches(ValueId id, int64_t extent) const {
  if (extent == found_.declared) return 1;
  const auto merged = outer_.find(id);
  return merged != outer_.end() && merged->second * found_.declared == extent ? merged->second : 0;
}

// Returns how many whole batches a Concat of whole batches consists of, or a Tile that repeats them; 0 if it is something else.
int64_t BatchProver::BatchesJoined(const Graph& graph, const Node& node, const Emitted& was) const {
  if (IsOneOf(node, {"Tile"})) {
    const std::vector<int> axes = BatchAxes(graph.value(node.inputs[0]).shape, was.inputs[0]);
    const Shape& from = was.inputs[0];
    if (axes.size() != 1 || static_cast<int>(was.numbers[1].size()) != from.rank()) return 0;
    return WholeBatches(node.inputs[0], from[axes[0]]) * was.numbers[1][static_cast<size_t>(axes[0])];
  }
  int64_t batches = 0;
  for (size_t k = 0; k < node.inputs.size(); ++k) {
    const Shape& now = graph.value(node.inputs[k]).shape;
    const std::vector<int> axes = BatchAxes(now, was.inputs[k]);
    if (axes.size() != 1 || axes[0] != AxisOf(node, now.rank())) return 0;
    const int64_t whole = WholeBatches(node.inputs[k], was.inputs[k][axes[0]]);
    if (whole == 0) return 0;
    batches += whole;
  }
  return batches;
}

// Parts of a Split that are whole batches remain whole batches.
void BatchProver::ProveParts(Emitter& emitter, const Node& node, const Emitted& was, std::vector<BatchChange>& changes) const {
  if (node.inputs.size() != 2) return;
  const Shape& now = emitter.graph().value(node.inputs[0]).shape;
  const std::vector<int> axes = BatchAxes(now, was.inputs[0]);
  if (axes.size() != 1 || axes[0] != AxisOf(node, now.rank()) || WholeBatches(node.inputs[0], was.inputs[0][axes[0]]) == 0) return;
  const std::vector<int64_t> sizes = NumbersOf(emitter, node.inputs[1]);
  if (sizes.empty() || sizes != was.numbers[1]) return;
  BatchChange change{.operand = 1, .axis = -1, .entries = {}};
  for (int64_t size : sizes) {
    if (size % found_.declared != 0) return;
    change.entries.push_back({.batches = size / found_.declared, .number = size});
  }
  changes.push_back(std::move(change));
}

// A Slice that steps over positions of each sample (two views of each sample that follow each other) takes the same ones at any batch size.
// Returns whether the node is such a Slice.
bool BatchProver::StepsOverSamples(Emitter& emitter, const Node& node, const Emitted& was, std::vector<BatchChange>& changes) {
  const Shape& now = emitter.graph().value(node.inputs[0]).shape;
  const std::vector<int> grown = BatchAxes(now, was.inputs[0]);
  const auto merged = outer_.find(node.inputs[0]);
  if (grown.size() != 1 || merged == outer_.end() || node.inputs.size() < 5) return false;
  for (size_t k = 1; k < 5; ++k) {
    if (node.inputs[k] == kNoValue) return false;
  }
  const std::vector<int64_t> starts = NumbersOf(emitter, node.inputs[1]), ends = NumbersOf(emitter, node.inputs[2]);
  const std::vector<int64_t> axes = NumbersOf(emitter, node.inputs[3]), steps = NumbersOf(emitter, node.inputs[4]);
  if (axes.empty() || starts.size() != axes.size() || ends.size() != axes.size() || steps.size() != axes.size()) return false;
  const int64_t extent = was.inputs[0][grown[0]], of_each = extent / (merged->second * found_.declared);
  for (size_t i = 0; i < axes.size(); ++i) {
    if ((axes[i] < 0 ? axes[i] + now.rank() : axes[i]) != grown[0]) continue;
    const int64_t end = ends[i] < 0 ? ends[i] + extent : ends[i];
    if (steps[i] < 2 || of_each % steps[i] != 0 || starts[i] < 0 || starts[i] >= steps[i] || end <= extent - steps[i] + starts[i])
      return false;
    BatchChange change{.operand = 2, .axis = -1, .entries = {}};
    for (int64_t number : ends) change.entries.push_back({.batches = 0, .number = number});
    change.entries[i].number = INT64_MAX;
    changes.push_back(std::move(change));
    next_outer_ = merged->second;
    return true;
  }
  return false;
}

// A Slice that takes some of several whole batches takes the same ones. Returns whether the node is such a Slice.
bool BatchProver::CutBatches(Emitter& emitter, const Node& node, const Emitted& was, std::vector<BatchChange>& changes) const {
  const Shape& now = emitter.graph().value(node.inputs[0]).shape;
  const std::vector<int> grown = BatchAxes(now, was.inputs[0]);
  if (grown.size() != 1 || node.inputs.size() < 4 || node.inputs[3] == kNoValue) return false;
  const int64_t extent = was.inputs[0][grown[0]], declared = found_.declared;
  if (WholeBatches(node.inputs[0], extent) < 2) return false;
  const std::vector<int64_t> starts = NumbersOf(emitter, node.inputs[1]), ends = NumbersOf(emitter, node.inputs[2]);
  const std::vector<int64_t> axes = NumbersOf(emitter, node.inputs[3]);
  const bool stepped = node.inputs.size() > 4 && node.inputs[4] != kNoValue;
  const std::vector<int64_t> steps = stepped ? NumbersOf(emitter, node.inputs[4]) : std::vector<int64_t>(axes.size(), 1);
  if (axes.empty() || starts.size() != axes.size() || ends.size() != axes.size() || steps.size() != axes.size()) return false;
  if (starts != was.numbers[1] || ends != was.numbers[2]) return false;
  BatchChange from{.operand = 1, .axis = -1, .entries = {}}, to{.operand = 2, .axis = -1, .entries = {}};
  bool cuts = false;
  for (size_t i = 0; i < axes.size(); ++i) {
    from.entries.push_back({.batches = 0, .number = starts[i]});
    to.entries.push_back({.batches = 0, .number = ends[i]});
    if ((axes[i] < 0 ? axes[i] + now.rank() : axes[i]) != grown[0]) continue;
    const auto place = [&](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + extent : at, 0, extent); };
    const int64_t start = place(starts[i]), end = place(ends[i]);
    if (steps[i] != 1 || start % declared != 0 || end % declared != 0 || start >= end) return false;
    from.entries[i] = {.batches = start / declared, .number = 0};
    to.entries[i] = {.batches = end / declared, .number = 0};
    cuts = true;
  }
  if (!cuts) return false;
  changes.push_back(std::move(from));
  changes.push_back(std::move(to));
  return true;
}

}  // namespace gradloom
