#include "compiler/onnx/batch/batch_apply.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "compiler/graph/constants.h"
#include "compiler/onnx/batch/batch_values.h"

namespace gradloom {

// The nodes of changes are not observed themselves.
class BatchApplication::Emitting {
 public:
  explicit Emitting(BatchApplication& application) : application_(application) { application_.emitting_ = true; }
  ~Emitting() { application_.emitting_ = false; }
  Emitting(const Emitting&) = delete;
  Emitting& operator=(const Emitting&) = delete;

 private:
  BatchApplication& application_;
};

void BatchApplication::Apply(Emitter& emitter, Node& node, const BatchChange& change) {
  const Emitting emitting(*this);
  if (change.groups > 0) {
    node.attributes.set("group", change.groups * batch_);
    if (change.samples_in_channels) MoveSamplesToChannels(emitter, node);
  } else if (!change.permutation.empty()) {
    node.op = "Transpose";
    node.attributes = {};
    node.attributes.set("perm", change.permutation);
    node.inputs.resize(1);
  } else if (change.of_shape) {
    node.attributes.set("shape", NumbersOf(change));
  } else {
    node.inputs[static_cast<size_t>(change.operand)] = Operand(emitter, node, change);
  }
}

ValueId BatchApplication::Operand(Emitter& emitter, const Node& node, const BatchChange& change) {
  const ValueId id = node.inputs[static_cast<size_t>(change.operand)];
  const std::string name = node.origin + "/batch";
  if (!change.table_axes.empty()) return batch_ == found_.declared ? id : emitter.AddConstant(name, Repeated(emitter, id, change));
  if (change.added) return WithSteps(emitter, id, change, name);
  if (!change.steps.empty()) {
    const Tensor data = *emitter.Constant(emitter.Computed(id));
    return emitter.AddConstant(name, CountedAlong(data, change.axis, found_.declared, change.steps, batch_));
  }
  if (change.axis < 0) return Numbers(emitter, name, NumbersOf(change));
  if (proved_ && !IsDraw(node)) NoteCopies(emitter, id, change.axis);
  return RepeatedPart(emitter, id, change, name);
}

ValueId BatchApplication::Numbers(Emitter& emitter, const std::string& name, const std::vector<int64_t>& values) const {
  return emitter.AddConstant(name, Tensor::From<int64_t>(values, Shape{static_cast<int64_t>(values.size())}));
}

std::vector<int64_t> BatchApplication::NumbersOf(const BatchChange& change) const {
  std::vector<int64_t> values;
  for (const BatchChange::Entry& entry : change.entries) values.push_back(entry.batches > 0 ? entry.batches * batch_ : entry.number);
  return values;
}

// Adds the index of each sample, times the step, to indices that have none of their own.
ValueId BatchApplication::WithSteps(Emitter& emitter, ValueId id, const BatchChange& change, const std::string& name) const {
  const ValueType indices = emitter.graph().type(id);
  Shape shape(std::vector<int64_t>(static_cast<size_t>(indices.shape.rank()), 1));
  shape[change.axis] = indices.shape[change.axis];
  const int64_t of_each = std::max<int64_t>(1, shape[change.axis] / batch_);
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < shape[change.axis]; ++i) rows.push_back(i / of_each * change.steps[0]);
  Node add{.op = "Add",
           .domain = "",
           .inputs = {id, emitter.AddConstant(name, Converted(Tensor::From<int64_t>(rows, shape).view(), indices.dtype))}};
  add.origin = name;
  return emitter.Emit(std::move(add), {name})[0];
}

// The part of the first sample, for every sample.
ValueId BatchApplication::RepeatedPart(Emitter& emitter, ValueId id, const BatchChange& change, const std::string& name) const {
  Shape shape = emitter.graph().value(id).shape;
  const int64_t extent = shape[change.axis] / found_.declared * batch_;
  Node slice{.op = "Slice",
             .domain = "",
             .inputs = {id, Numbers(emitter, name, {0}), Numbers(emitter, name, {change.period}), Numbers(emitter, name, {change.axis})}};
  slice.origin = name;
  const ValueId one = emitter.Emit(std::move(slice), {name})[0];
  const bool same = change.period == 1;
  shape[change.axis] = extent;
  std::vector<int64_t> repeats(static_cast<size_t>(shape.rank()), 1);
  repeats[static_cast<size_t>(change.axis)] = extent / change.period;
  Node repeat{.op = same ? "Expand" : "Tile", .domain = "", .inputs = {one, Numbers(emitter, name, same ? shape.dims() : repeats)}};
  repeat.origin = name;
  return emitter.Emit(std::move(repeat), {name})[0];
}

// A constant in which samples differ, with the extents of this batch size.
Tensor BatchApplication::Repeated(Emitter& emitter, ValueId id, const BatchChange& change) const {
  Tensor data = *emitter.Constant(emitter.Computed(id));
  // A tensor of the file may be trained at its own batch size.
  std::optional<Tensor> grown;
  if (!emitter.may_train(id)) grown = GrownTable(data, change.table_axes, found_.declared, batch_);
  if (grown) return *std::move(grown);
  if (proved_ && !found_.compared) throw Error(*change.refusal);
  for (const int axis : change.table_axes) data = RepeatedAlong(data, axis, data.shape()[axis] / found_.declared * batch_);
  return data;
}

// Emits the convolution, and turns the node into the Reshape after it.
void BatchApplication::MoveSamplesToChannels(Emitter& emitter, Node& node) {
  const std::string name = node.origin + "/batch";
  const auto reshaped = [&](ValueId id, const std::vector<int64_t>& to) {
    const ValueId target = emitter.AddConstant(name, Tensor::From<int64_t>(to, Shape{static_cast<int64_t>(to.size())}));
    Node reshape{.op = "Reshape", .domain = "", .inputs = {id, target}};
    reshape.origin = node.origin;
    return reshape;
  };
  const auto merged = [&](ValueId id, int64_t samples, int64_t channels) {
    std::vector<int64_t> to = emitter.graph().value(id).shape.dims();
    to[0] = samples;
    to[1] = channels;
    return reshaped(id, to);
  };
  const int64_t channels = emitter.graph().value(node.inputs[0]).shape[1];
  Node convolution = node;
  convolution.outputs.clear();
  convolution.inputs[0] = emitter.Emit(merged(node.inputs[0], 1, batch_ * channels), {name})[0];
  if (node.inputs.size() > 2 && node.inputs[2] != kNoValue) {
    const int64_t biases = emitter.graph().value(node.inputs[2]).shape[0];
    if (biases * batch_ == emitter.graph().value(node.inputs[1]).shape[0]) {  // the same for all samples
      const ValueId times = emitter.AddConstant(name, Tensor::From<int64_t>({batch_}, Shape{1}));
      Node tile{.op = "Tile", .domain = "", .inputs = {node.inputs[2], times}};
      tile.origin = node.origin;
      convolution.inputs[2] = emitter.Emit(std::move(tile), {name})[0];
    }
  }
  const ValueId made = emitter.Emit(std::move(convolution), {name})[0];
  convolution_ = made;
  filters_ = emitter.graph().value(made).shape[1] / batch_;
  Node behind = merged(made, batch_, filters_);
  behind.outputs = node.outputs;
  node = std::move(behind);
}

bool BatchApplication::MayHoldCopies(const Graph& graph, ValueId id, int64_t extent) const {
  const Shape& shape = graph.value(id).shape;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (shape[axis] == extent && (graph.data(id) == nullptr || RepeatsAlong(*graph.data(id), axis, extent / found_.declared))) return true;
  }
  return false;
}

// Follows the axis back to the tensors of the file that have it. If the axis is lost, every tensor that repeats along an axis of that
// extent is noted.
void BatchApplication::NoteCopies(const Emitter& emitter, ValueId id, int axis) {
  // A single copy is not a copy.
  if (found_.declared == 1) return;
  const Graph& graph = emitter.graph();
  const int64_t extent = graph.value(id).shape[axis];
  std::set<std::pair<ValueId, int>> seen;
  std::vector<std::pair<ValueId, int>> open{{id, axis}};
  while (!open.empty()) {
    const auto [value, at] = open.back();
    open.pop_back();
    if (value == kNoValue || !seen.insert({value, at}).second) continue;
    const Shape& shape = graph.value(value).shape;
    if (at >= 0 && shape[at] != extent) continue;
    if (graph.value(value).role == Role::kConst) {
      if (!graph.value(value).derived && IsFloating(graph.value(value).dtype) && (at >= 0 || MayHoldCopies(graph, value, extent))) {
        copies_.insert(graph.value(value).name);
      }
      continue;
    }
    const Node* node = emitter.Producer(value);
    if (node == nullptr) continue;
    for (size_t i = 0; i < node->inputs.size(); ++i) {
      const ValueId input = node->inputs[i];
      const std::optional<int> from = input == kNoValue ? std::nullopt : SourceAxis(graph, *node, i, shape.rank(), at);
      if (from) open.emplace_back(input, *from);
    }
  }
}

}  // namespace gradloom
