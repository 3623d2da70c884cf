#include "compiler/onnx/batch/batch_prover.h"

#include <algorithm>
#include <utility>

namespace gradloom {
namespace {

std::vector<BatchChange::Entry> Literal(const std::vector<int64_t>& numbers) {
  std::vector<BatchChange::Entry> entries;
  for (int64_t number : numbers) entries.push_back({.batches = 0, .number = number});
  return entries;
}

// Returns the shape that a Reshape gives `in`, or an empty shape if it is invalid.
Shape Reshaped(const Shape& in, const std::vector<int64_t>& target, bool allow_zero) {
  Shape out;
  int64_t known = 1;
  int open = -1;
  for (size_t i = 0; i < target.size(); ++i) {
    int64_t extent = target[i];
    if (extent == 0 && !allow_zero) extent = static_cast<int>(i) < in.rank() ? in[static_cast<int>(i)] : 0;
    if (extent == -1) {
      open = static_cast<int>(i);
    } else {
      known *= extent;
    }
    out.push_back(extent);
  }
  if (open >= 0 && known > 0) out[open] = in.elements() / known;
  return out;
}

}  // namespace

std::vector<int> BatchProver::BatchAxes(const Shape& now, const Shape& was) const {
  std::vector<int> axes;
  if (now.rank() != was.rank()) return axes;
  for (int i = 0; i < now.rank(); ++i) {
    if (now[i] != was[i]) axes.push_back(i);
  }
  return axes;
}

void BatchProver::Before(Emitter& emitter, Node& node, size_t index) {
  index_ = index;
  next_outer_ = 0;
  std::vector<BatchChange> changes = Prove(emitter, node, found_.reference[index]);
  RecordCountedSample(changes);
  RecordDraws(emitter, node, changes);
  for (const BatchChange& change : changes) Apply(emitter, node, change);
  if (!changes.empty()) found_.changes.emplace(index, std::move(changes));
}

void BatchProver::Apply(Emitter& emitter, Node& node, const BatchChange& change) {
  application_.Apply(emitter, node, change);
  if (change.samples_in_channels) shards_[{&emitter.graph(), application_.convolution()}] = Shard::Split(1, application_.filters());
  if (IsRepetition(change))
    repeated_.emplace(std::pair(&emitter.graph(), node.inputs[static_cast<size_t>(change.operand)]), std::pair(index_, change));
}

void BatchProver::After(const Emitter& emitter, const Node& node, const std::vector<ValueId>& results) {
  const Graph& graph = emitter.graph();
  const Emitted& was = found_.reference[index_];
  if (IsDraw(node)) draw_of_.emplace(std::pair(&graph, results[0]), index_);
  if (found_.declared == 1) {
    for (ValueId id : results) made_of_.emplace(std::pair(&graph, id), std::pair(index_, node));
    FollowPooled(emitter, node, results, was);
    FollowSamples(emitter, node, results, was);
  }
  if (next_outer_ == 0 && IsOneOf(node, {"Reshape", "Flatten"})) FollowView(graph, node.inputs[0], results[0], was);
  FollowCounted(graph, node, results);
  for (size_t i = 0; i < results.size() && i < was.outputs.size(); ++i) {
    if (results[i] == kNoValue) continue;
    const Shape& now = graph.value(results[i]).shape;
    const std::vector<int> axes = BatchAxes(now, was.outputs[i]);
    if (axes.empty() || was.outputs[i][axes[0]] == found_.declared) continue;
    if (next_outer_ > 0) outer_[results[i]] = next_outer_;
    // The rows of a sample are contiguous: there are as many as the factor of the sample index in the indices by which they are written.
    if (IsOneOf(node, {"ScatterND"}) && axes[0] == 0 && CountedBy(graph, node.inputs[1]) * found_.declared == was.outputs[i][0])
      outer_[results[i]] = 1;
    if (IsOneOf(node, {"Split", "Slice"}) && WholeBatches(node.inputs[0], was.inputs[0][axes[0]]) > 0 &&
        was.outputs[i][axes[0]] % found_.declared == 0) {
      outer_[results[i]] = was.outputs[i][axes[0]] / found_.declared;
      continue;
    }
    for (size_t k = 0; k < node.inputs.size(); ++k) {
      const auto from = outer_.find(node.inputs[k]);
      if (from == outer_.end() || next_outer_ > 0) continue;
      const Shape& operand = graph.value(node.inputs[k]).shape;
      if (std::find(operand.begin(), operand.end(), now[axes[0]]) != operand.end()) outer_[results[i]] = from->second;
    }
  }
}

std::vector<BatchChange> BatchProver::Prove(Emitter& emitter, const Node& node, const Emitted& was) {
  std::vector<BatchChange> changes;
  if (IsOneOf(node, {"Reshape"})) ProveReshape(emitter, node, was, changes);
  if (IsOneOf(node, {"ScatterND"})) ProveScatter(emitter, node, was, changes);
  if (IsOneOf(node, {"Expand"})) ProveExpand(emitter, node, was, changes);
  if (IsOneOf(node, {"Resize"})) ProveResize(emitter, node, was, changes);
  if (IsOneOf(node, {"Conv", "ConvTranspose"})) ProveGroups(emitter, node, was, changes);
  if (IsOneOf(node, {"Concat", "Tile"})) next_outer_ = BatchesJoined(emitter.graph(), node, was);
  if (IsOneOf(node, {"Split"})) ProveParts(emitter, node, was, changes);
  if (IsOneOf(node, {"Slice"}) && !StepsOverSamples(emitter, node, was, changes) && !CutBatches(emitter, node, was, changes))
    ProveSlice(emitter, node, was, changes);
  if (changes.empty() && IsOneOf(node, {"Gather", "GatherND", "GatherElements", "ScatterND", "ScatterElements"}))
    ProveChosen(emitter, node, was, changes);
  if (IsOneOf(node, {"RoiAlign", "MaxRoiPool"})) ProveRegions(emitter, node, was, changes);
  if (IsOneOf(node, {"LSTM", "GRU", "RNN"})) ProveStates(emitter, node, was, changes);
  if (!changes.empty()) return changes;
  try {
    emitter.CheckTypes(node);
  } catch (const Error& error) {
    // Einsum reports extents that do not match as an invalid equation.
    if (error.code() != ErrorCode::kShape && error.code() != ErrorCode::kValue && error.code() != ErrorCode::kAttr) throw;
    ProveOperands(emitter, node, was, error, changes);
  }
  if (IsOneOf(node, {"Expand"})) KeepTarget(emitter, node, was, changes);
  if (changes.empty()) DrawForSamples(emitter, node, was);
  return changes;
}

namespace {

int64_t Ones(const Shape& shape) { return std::count(shape.begin(), shape.end(), 1); }

// The Transposes with the same effect as a Reshape from `in` to `out`, which move the axis `axis` of extent 1 elsewhere.
std::vector<std::vector<int64_t>> TransposesLike(const Shape& in, const Shape& out, int axis) {
  std::vector<std::vector<int64_t>> found;
  if (in.rank() != out.rank()) return found;
  for (int to = 0; to < out.rank(); ++to) {
    std::vector<int64_t> permutation;
    for (int i = 0; i < in.rank(); ++i) {
      if (i != axis) permutation.push_back(i);
    }
    permutation.insert(permutation.begin() + to, axis);
    bool same = to != axis;
    for (int i = 0; same && i < out.rank(); ++i) same = out[i] == in[static_cast<int>(permutation[static_cast<size_t>(i)])];
    if (same) found.push_back(std::move(permutation));
  }
  return found;
}

}  // namespace

// In element order the batch is a factor of the size: `outer` whole batches follow each other, and neighbouring samples are `stride`
// elements apart. The batch axis of the output is the one whose elements cover that factor.
void BatchProver::ProveReshape(Emitter& emitter, const Node& node, const Emitted& was, std::vector<BatchChange>& changes) {
  const ValueId in = node.inputs[0];
  const Shape now = emitter.graph().value(in).shape;
  const std::vector<int> axes = BatchAxes(now, was.inputs[0]);
  const std::vector<int64_t> target = NumbersOf(emitter, node.inputs[1]);
  // A target that depends on the batch size is correct.
  if (axes.empty() || emitter.Computed(node.inputs[1]) == kNoValue || target != was.numbers[1]) return;
  if (target == std::vector<int64_t>{-1} && axes.size() > 1) return;
  if (axes.size() > 1)
    Refuse(node, "two axes of its input depend on the batch size, and its target " + Shape(target).ToString() + " is a constant");
  const int axis = axes[0];
  const int64_t extent = was.inputs[0][axis];
  const auto merged = outer_.find(in);
  if (extent != found_.declared && merged == outer_.end()) {
    Refuse(node, "axis " + std::to_string(axis) + " of its input " + was.inputs[0].ToString() +
                     " merges the batch with another axis in an unknown order");
  }
  const int64_t outer = merged == outer_.end() ? 1 : merged->second;
  const int64_t stride = was.inputs[0].strides()[static_cast<size_t>(axis)] * (extent / (outer * found_.declared));
  const Shape& out = was.outputs[0];
  const std::vector<int64_t> behind = out.strides();
  if (stride == 0) return;
  std::vector<int> shared, own;
  for (int j = 0; j < out.rank(); ++j) {
    const int64_t inner = behind[static_cast<size_t>(j)], whole = inner * out[j];
    if (inner == 0 || stride % inner != 0 || whole % (stride * found_.declared) != 0) continue;
    (out[j] == found_.declared ? own : shared).push_back(j);
  }
  // If the batch size is one, several axes can be the batch axis; an axis of extent 1 takes precedence over one that would be shared.
  std::vector<int> ways = own;
  ways.insert(ways.end(), shared.begin(), shared.end());
  int found = ways.empty() ? -1 : ways[0];
  if (found_.declared == 1 && ways.size() > 1) {
    found = Merged(node, was, axis, ways, !own.empty(),
                   "the target " + Shape(target).ToString() + " merges a batch of one with one of several axes, and it is ambiguous which");
  } else if (found_.declared == 1 && own.empty() && shared.size() == 1 && Ones(out) > Ones(was.inputs[0])) {
    // A tool may have removed a Transpose before it, which has no effect for one sample; samples would then be mixed.
    found = Merged(node, was, axis, ways, false,
                   "the target " + Shape(target).ToString() + " has the batch of one after other axes, and its input has it before them");
  } else if (own.empty() && shared.size() > 1) {
    Refuse(node, "the target " + Shape(target).ToString() + " merges the batch with one of several axes, and it is ambiguous which");
  } else if (found_.declared == 1 && own.empty() && shared.size() == 1 && extent == 1) {
    // Converters write a Transpose to time first so. Then the samples do not follow each other along the first axis.
    const std::vector<std::vector<int64_t>> transposes = TransposesLike(was.inputs[0], out, axis);
    for (size_t i = 0; i < transposes.size(); ++i) ways.push_back(out.rank() + static_cast<int>(i));
    if (!transposes.empty()) {
      found = Merged(node, was, axis, ways, true, "it is ambiguous whether " + Shape(target).ToString() + " has its axes in another order",
                     true);
    }
    if (found >= out.rank()) {
      changes.push_back({.axis = -1, .entries = {}, .permutation = transposes[static_cast<size_t>(found - out.rank())]});
      return;
    }
  }
  if (found < 0) Refuse(node, "the target " + Shape(target).ToString() + " splits the batch axis of its input " + was.inputs[0].ToString());
  next_outer_ = behind[static_cast<size_t>(found)] * out[found] / (stride * found_.declared);
  Shape wanted = out;
  wanted[found] = out[found] / found_.declared * batch_;
  if (Reshaped(now, target, node.attributes.Int("allowzero", 0) != 0) == wanted) return;
  BatchChange change{.operand = 1, .axis = -1, .entries = Literal(out.dims())};
  change.entries[static_cast<size_t>(found)].batches = out[found] / found_.declared;
  changes.push_back(std::move(change));
}

// A view that depends on the batch size needs no change; it may merge its batch axis with others.
void BatchProver::FollowView(const Graph& graph, ValueId in, ValueId out, const Emitted& was) {
  const Shape &before = was.inputs[0], &after = was.outputs[0];
  const std::vector<int> from = BatchAxes(graph.value(in).shape, before), to = BatchAxes(graph.value(out).shape, after);
  const auto merged = outer_.find(in);
  if (from.size() != 1 || to.size() != 1 || (before[from[0]] != found_.declared && merged == outer_.end())) return;
  const int64_t outer = merged == outer_.end() ? 1 : merged->second;
  const int64_t stride = before.strides()[static_cast<size_t>(from[0])] * (before[from[0]] / (outer * found_.declared));
  const int64_t whole = after.strides()[static_cast<size_t>(to[0])] * after[to[0]];
  if (stride > 0 && whole % (stride * found_.declared) == 0) next_outer_ = whole / (stride * found_.declared);
}

// The tensor that slices of a batch are written into must have a position for each sample.
void BatchProver::ProveScatter(Emitter& emitter, const Node& node, const Emitted& was, std::vector<BatchChange>& changes) {
  const Graph& graph = emitter.graph();
  const Shape &data = graph.value(node.inputs[0]).shape, &updates = graph.value(node.inputs[2]).shape;
  if (data != was.inputs[0] || updates.rank() != was.inputs[2].rank()) return;
  const int shift = data.rank() - updates.rank();
  const Shape& indices = graph.value(node.inputs[1]).shape;
  const int depth = indices.rank() == 0 ? 0 : static_cast<int>(indices[indices.rank() - 1]);
  for (int axis : BatchAxes(updates, was.inputs[2])) {
    // The axis belongs to the slices.
    if (axis + shift < depth || data[axis + shift] != found_.declared || PeriodAlong(emitter, node.inputs[0], axis + shift) != 1) continue;
    changes.push_back({.operand = 0, .axis = axis + shift, .entries = {}});
  }
}

// The batch axis of an expanded tensor keeps its extent.
void BatchProver::ProveExpand(Emitter& emitter, const Node& node, const Emitted& was, std::vector<BatchChange>& changes) {
  const Shape& now = emitter.graph().value(node.inputs[0]).shape;
  const std::vector<int64_t> target = NumbersOf(emitter, node.inputs[1]);
  if (target.empty() || target != was.numbers[1]) return;
  BatchChange change{.operand = 1, .axis = -1, .entries = Literal(target)};
  const int shift = static_cast<int>(target.size()) - now.rank();
  bool differs = false;
  for (int axis : BatchAxes(now, was.inputs[0])) {
    if (axis + shift < 0 || target[static_cast<size_t>(axis + shift)] != was.inputs[0][axis] || was.inputs[0][axis] == 1) continue;
    change.entries[static_cast<size_t>(axis + shift)].number = 1;
    differs = true;
  }
  if (differs) changes.push_back(std::move(change));
}

// A target that has grown with a larger batch, such as the maximum of two extents, need not shrink with a smaller one.
void BatchProver::KeepTarget(Emitter& emitter, const Node& node, const Emitted& was, std::vector<BatchChange>& changes) const {
  const std::vector<int64_t> target = NumbersOf(emitter, node.inputs[1]), &before = was.numbers[1];
  if (found_.declared == 1 || target == before || target.size() != before.size()) return;
  BatchChange change{.operand = 1, .axis = -1, .entries = Literal(target)};
  for (size_t i = 0; i < target.size(); ++i) {
    if (target[i] == before[i]) continue;
    if (before[i] % found_.declared != 0 || target[i] != before[i] / found_.declared * batch_) return;
    change.entries[i].batches = before[i] / found_.declared;
  }
  changes.push_back(std::move(change));
}

// An axis that is not resized keeps its extent.
void BatchProver::ProveResize(Emitter& emitter, const Node& node, const Emitted& was, std::vector<BatchChange>& changes) {
  if (node.inputs.size() < 4) return;
  const std::vector<int64_t> sizes = NumbersOf(emitter, node.inputs[3]);
  if (sizes.empty() || sizes != was.numbers[3]) return;
  const Shape& now = emitter.graph().value(node.inputs[0]).shape;
  std::vector<int64_t> axes = node.attributes.Ints("axes", {});
  if (axes.empty()) {
    for (int i = 0; i < now.rank(); ++i) axes.push_back(i);
  }
  BatchChange change{.operand = 3, .axis = -1, .entries = Literal(sizes)};
  bool differs = false;
  for (int axis : BatchAxes(now, was.inputs[0])) {
    for (size_t i = 0; i < axes.size() && i < sizes.size(); ++i) {
      if ((axes[i] < 0 ? axes[i] + now.rank() : axes[i]) != axis) continue;
      if (sizes[i] != was.inputs[0][axis]) Refuse(node, "the batch axis is resized");
      change.entries[i].batches = sizes[i] / found_.declared;
      differs = true;
    }
  }
  if (differs) changes.push_back(std::move(change));
}

// A slice that took the whole batch still takes the whole batch.
void BatchProver::ProveSlice(Emitter& emitter, const Node& node, const Emitted& was, std::vector<BatchChange>& changes) {
  const Shape& now = emitter.graph().value(node.inputs[0]).shape;
  const std::vector<int64_t> ends = node.inputs.size() > 2 ? NumbersOf(emitter, node.inputs[2]) : std::vector<int64_t>();
  if (ends.empty() || ends != was.numbers[2] || was.outputs.empty()) return;
  std::vector<int64_t> axes;
  if (node.inputs.size() > 3 && node.inputs[3] != kNoValue) {
    axes = NumbersOf(emitter, node.inputs[3]);
  } else {
    for (size_t i = 0; i < ends.size(); ++i) axes.push_back(static_cast<int64_t>(i));
  }
  const std::vector<int64_t> starts = NumbersOf(emitter, node.inputs[1]);
  BatchChange change{.operand = 2, .axis = -1, .entries = Literal(ends)};
  bool differs = false;
  for (int axis : BatchAxes(now, was.inputs[0])) {
    for (size_t i = 0; i < axes.size() && i < ends.size(); ++i) {
      if ((axes[i] < 0 ? axes[i] + now.rank() : axes[i]) == axis && i < starts.size() && starts[i] > 0) {
        Refuse(node, "it selects samples of the batch by index");
      }
      if ((axes[i] < 0 ? axes[i] + now.rank() : axes[i]) != axis || ends[i] < 0 || ends[i] > was.inputs[0][axis]) continue;
      if (was.outputs[0][axis] != was.inputs[0][axis]) Refuse(node, "it selects samples of the batch by index");
      change.entries[i].number = INT64_MAX;
      differs = true;
    }
  }
  if (differs) changes.push_back(std::move(change));
}

// Sequence lengths and initial states have an entry for each sequence of the batch.
void BatchProver::ProveStates(Emitter& emitter, const Node& node, const Emitted& was, std::vector<BatchChange>& changes) {
  const Graph& graph = emitter.graph();
  const int layout = static_cast<int>(node.attributes.Int("layout", 0)), batch_axis = layout == 0 ? 1 : 0;
  const Shape& x = graph.value(node.inputs[0]).shape;
  if (x.rank() == 3 && x[1 - batch_axis] != was.inputs[0][1 - batch_axis] &&
      std::any_of(found_.merges.begin(), found_.merges.end(), [](const BatchChanges::Merge& merge) { return merge.transposes; })) {
    Refuse(node, "its sequence would have the steps of all samples, one after the other");
  }
  if (x.rank() != 3 || x[batch_axis] == was.inputs[0][batch_axis]) return;
  for (size_t k = 4; k < std::min<size_t>(node.inputs.size(), 7); ++k) {
    if (node.inputs[k] == kNoValue) continue;
    const int axis = k == 4 || layout != 0 ? 0 : 1;
    const Shape& state = graph.value(node.inputs[k]).shape;
    if (axis >= state.rank() || state[axis] == x[batch_axis]) continue;
    if (state[axis] != was.inputs[0][batch_axis] || PeriodAlong(emitter, node.inputs[k], axis) != 1) {
      const bool given = emitter.Constant(emitter.Computed(node.inputs[k])) == nullptr;
      Refuse(node, "its operand " + std::to_string(k) + " " + state.ToString() + " has that batch size and differs between samples" +
                       (given ? " (if it is an input that is zeros in training, --value INPUT=0 makes it a constant)" : ""));
    }
    changes.push_back({.operand = static_cast<int>(k), .axis = axis, .entries = {}});
  }
}

}  // namespace gradloom
