// Random numbers in a file for one batch size: a mask per sample, noise added to each sample. Their extents are numbers that no operand
// shows (`torch.rand(len(x), 1)`); the node that combines them with samples does.
#include <set>
#include <utility>

#include "compiler/onnx/batch/batch_prover.h"
#include "compiler/ops/op.h"

namespace gradloom {
namespace {

using Draws = std::vector<std::pair<size_t, int>>;

}  // namespace

// Follows the axis back to the nodes that draw the numbers; none if it is lost, or comes from no such node. Constants on the way are
// repeated once the numbers have an extent per sample.
Draws BatchProver::DrawsBehind(const Emitter& emitter, ValueId id, int axis) const {
  const Graph& graph = emitter.graph();
  const int64_t extent = graph.value(id).shape[axis];
  // One of several numbers for the only sample is not the batch.
  if (found_.declared == 1 && extent > 1) return {};
  Draws draws;
  std::set<std::pair<ValueId, int>> seen;
  std::vector<std::pair<ValueId, int>> open{{id, axis}};
  while (!open.empty()) {
    const auto [value, at] = open.back();
    open.pop_back();
    if (at < 0 || graph.value(value).shape[at] != extent || !seen.insert({value, at}).second) continue;
    if (const auto draw = draw_of_.find({&graph, value}); draw != draw_of_.end()) {
      draws.emplace_back(draw->second, at);
      continue;
    }
    const Node* node = emitter.Producer(value);
    if (node == nullptr) continue;
    for (size_t i = 0; i < node->inputs.size(); ++i) {
      if (node->inputs[i] == kNoValue) continue;
      if (const std::optional<int> from = SourceAxis(graph, *node, i, graph.value(value).shape.rank(), at))
        open.emplace_back(node->inputs[i], *from);
    }
  }
  return draws;
}

// Notes for the next walk that these axes are over samples. Returns whether any of them is new.
bool BatchProver::NoteDraws(const Draws& draws) {
  bool any = false;
  for (const auto& [index, axis] : draws) any |= found_.drawn[index].insert(axis).second;
  again_ |= any;
  return any;
}

// In a file for a single sample, numbers that are drawn for it have extent 1, which fits any batch size. They would be the same for all
// samples that a pointwise node combines with them.
void BatchProver::DrawForSamples(const Emitter& emitter, const Node& node, const Emitted& was) {
  const Op* op = FindOp(node.domain, node.op);
  if (found_.declared != 1 || op == nullptr || !op->has(kPointwise)) return;
  const Graph& graph = emitter.graph();
  const auto shape = [&](size_t i) { return graph.value(node.inputs[i]).shape; };
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (node.inputs[i] == kNoValue) continue;
    for (const int axis : BatchAxes(shape(i), was.inputs[i])) {
      if (was.inputs[i][axis] != 1) continue;
      for (size_t k = 0; k < node.inputs.size(); ++k) {
        if (node.inputs[k] == kNoValue || shape(k) != was.inputs[k]) continue;
        const int aligned = axis - shape(i).rank() + shape(k).rank();
        if (aligned >= 0 && shape(k)[aligned] == 1) NoteDraws(DrawsBehind(emitter, node.inputs[k], aligned));
      }
    }
  }
}

// Applies what NoteDraws has noted for the node.
void BatchProver::RecordDraws(Emitter& emitter, const Node& node, std::vector<BatchChange>& changes) const {
  const auto noted = found_.drawn.find(index_);
  if (noted == found_.drawn.end()) return;
  if (IsOneOf(node, {"RandomUniform", "RandomNormal"})) {
    BatchChange change{.entries = {}, .of_shape = true};
    for (const int64_t extent : node.attributes.Ints("shape")) change.entries.push_back({.batches = 0, .number = extent});
    for (const int axis : noted->second) {
      BatchChange::Entry& entry = change.entries[static_cast<size_t>(axis)];
      entry.batches = entry.number / found_.declared;
    }
    changes.push_back(std::move(change));
    return;
  }
  for (const int axis : noted->second) {
    // Only the shape of the operand counts, except for probabilities.
    const int64_t period = IsOneOf(node, {"Bernoulli"}) ? PeriodAlong(emitter, node.inputs[0], axis) : 1;
    if (period == 0) Refuse(node, "its probabilities differ between samples");
    changes.push_back({.operand = 0, .axis = axis, .period = period, .entries = {}});
  }
}

}  // namespace gradloom
