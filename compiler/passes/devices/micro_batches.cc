#include "compiler/passes/devices/micro_batches.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "compiler/passes/node_key.h"
#include "compiler/passes/schedule/node_order.h"
#include "compiler/passes/schedule/program_plan.h"
#include "compiler/passes/update/accumulate.h"
#include "compiler/passes/update/step_params.h"
#include "runtime/base/error.h"

namespace gradloom {
namespace {

// The micro-batch of nodes that do not belong to one.
constexpr int kOfAll = -1;

// How the elements of a value of the whole graph lie that is divided by samples: [.., outer, samples, inner, ..] at `axis`.
struct Samples {
  int axis = 0;
  int64_t outer = 1, inner = 1;
};

class Joiner {
 public:
  Joiner(const Graph& whole, int64_t batch, const Replication& replication, const std::vector<MicroBatch>& parts, int replicas,
         const TypeRules& rules)
      : whole_(whole),
        batch_(batch),
        replication_(replication),
        parts_(parts),
        replicas_(replicas),
        made_(parts.front().graph->Clone()),
        graph_(*made_),
        builder_(graph_, rules),
        ids_(parts.size()) {
    // One replica has at least two samples, or there is nothing to divide.
    GRADLOOM_CHECK(replicas > 1 || parts.size() > 1);
    graph_.nodes.clear();
    for (const MicroBatch& part : parts) samples_ += part.shard.length;
    for (const ValueId id : whole.outputs) {
      if (whole.value(id).role != Role::kInput && replication.shard(id).split()) outputs_.insert(id);
    }
    for (const ValueId id : whole.inputs) ResizeToReplica(id);
    for (const ValueId id : outputs_) ResizeToReplica(id);
    for (const Value& value : graph_.values()) {
      const Tensor* data = graph_.data(value.id);
      if (value.role == Role::kConst && data != nullptr && data->bytes() <= kMaxComparedBytes) constants_.emplace(KeyOf(*data), value.id);
    }
  }

  std::unique_ptr<Graph> Run() {
    std::vector<size_t> next(parts_.size(), 0);
    while (true) {
      for (size_t k = 0; k < parts_.size(); ++k) {
        const std::vector<Node>& nodes = parts_[k].graph->nodes;
        for (; next[k] < nodes.size() && !Joins(k, nodes[next[k]]); ++next[k]) AddNode(k, nodes[next[k]]);
      }
      if (next[0] == parts_[0].graph->nodes.size()) break;
      Join(next);
      for (size_t& at : next) ++at;
    }
    for (const ValueId id : outputs_) ConcatOutput(id);
    return std::move(made_);
  }

 private:
  const Graph& GraphOf(size_t k) const { return *parts_[k].graph; }

  // Whether the micro-batches' values come together in the node.
  bool Joins(size_t k, const Node& node) const { return IsAllReduce(node) || AddsToPart(GraphOf(k), node); }

  std::optional<Samples> SamplesOf(ValueId id) const {
    const Shard& shard = replication_.shard(id);
    if (!shard.split()) return std::nullopt;
    const int64_t extent = whole_.value(id).shape[shard.axis], inner = shard.InnerOf(extent, batch_);
    return Samples{shard.axis, inner == 0 ? 0 : extent / (batch_ * inner), inner};
  }

  void ResizeToReplica(ValueId id) {
    const std::optional<Samples> samples = SamplesOf(id);
    if (!samples) return;
    std::vector<int64_t> dims(graph_.value(id).shape.begin(), graph_.value(id).shape.end());
    dims[static_cast<size_t>(samples->axis)] = samples->outer * samples_ * samples->inner;
    graph_.value(id).shape = Shape(dims);
  }

  // Notes that the nodes that were appended belong to micro-batch k, and to a stage.
  void Label(int k, int stage) {
    for (; labeled_ < graph_.nodes.size(); ++labeled_) {
      graph_.nodes[labeled_].device = stage;
      graph_.nodes[labeled_].micro_batch = k;
    }
  }

  ValueId& IdOf(size_t k, ValueId id) {
    std::vector<ValueId>& ids = ids_[k];
    if (static_cast<size_t>(id) >= ids.size()) ids.resize(static_cast<size_t>(GraphOf(k).num_values()), kNoValue);
    return ids[static_cast<size_t>(id)];
  }

  ValueId NewValue(size_t k, ValueId id) {
    const Value& value = GraphOf(k).value(id);
    return graph_.AddValue(value.name + "/micro" + std::to_string(k), value.dtype, value.shape, value.role);
  }

  // The value that a node of the micro-batch reads, by a node of this stage.
  ValueId Read(size_t k, ValueId id, int stage) {
    if (id == kNoValue) return id;
    const Value& value = GraphOf(k).value(id);
    if (value.role == Role::kInput) return Fed(k, value, stage);
    ValueId& known = IdOf(k, id);
    if (known != kNoValue) return known;
    if (value.role == Role::kConst) return known = Constant(k, value);
    GRADLOOM_CHECK(k == 0 || IsKept(value));
    return known = id;
  }

  ValueId Constant(size_t k, const Value& value) {
    const Tensor* data = GraphOf(k).data(value.id);
    if (k == 0 || data == nullptr) return value.id;
    if (const Tensor* known = value.id < whole_.num_values() ? graph_.data(value.id) : nullptr;
        known != nullptr && SameTensor(*known, *data))
      return value.id;
    const auto add = [&] {
      const ValueId made = graph_.AddData(value.name + "/micro" + std::to_string(k), *data, Role::kConst);
      graph_.value(made).derived = value.derived;
      return made;
    };
    if (data->bytes() > kMaxComparedBytes) return add();
    const auto [known, fresh] = constants_.emplace(KeyOf(*data), kNoValue);
    if (fresh) known->second = add();
    return known->second;
  }

  // The part of an input that is the micro-batch's. Made on each stage that reads it, as each stage is fed.
  ValueId Fed(size_t k, const Value& input, int stage) {
    if (input.name == kStepFirst) return FirstSample(k, stage);
    const bool of_whole = input.id < whole_.num_values();
    const std::optional<Samples> samples = of_whole ? SamplesOf(input.id) : std::nullopt;
    if (!samples) return of_whole ? input.id : StepParam(graph_, input.name);
    const auto [known, fresh] = fed_.emplace(std::tuple(k, input.id, stage), kNoValue);
    if (!fresh) return known->second;
    builder_.set_origin("");
    builder_.set_phase(Phase::kForward);
    const int64_t start = (parts_[k].shard.start - parts_[0].shard.start) * samples->inner,
                  length = parts_[k].shard.length * samples->inner;
    const int axis = samples->axis + (samples->outer > 1 ? 1 : 0);
    ValueId part = input.id;
    if (samples->outer > 1) part = builder_.Reshape(part, WithOuter(graph_.value(input.id).shape, *samples));
    part = builder_.Op("Slice", {part, builder_.Ints({start}), builder_.Ints({start + length}), builder_.Ints({axis})});
    if (samples->outer > 1) part = builder_.Reshape(part, input.shape);
    Label(static_cast<int>(k), stage);
    of_one_.insert(part);
    return known->second = part;
  }

  static Shape WithOuter(const Shape& shape, const Samples& samples) {
    std::vector<int64_t> dims(shape.begin(), shape.end());
    const auto at = dims.begin() + samples.axis;
    *at /= samples.outer;
    dims.insert(at, samples.outer);
    return Shape(dims);
  }

  // The number of the micro-batch's first sample in the whole batch.
  ValueId FirstSample(size_t k, int stage) {
    const ValueId first = StepParam(graph_, kStepFirst);
    const int64_t before = parts_[k].shard.start - parts_[0].shard.start;
    if (before == 0) return first;
    const auto [known, fresh] = fed_.emplace(std::tuple(k, first, stage), kNoValue);
    if (!fresh) return known->second;
    builder_.set_origin("");
    builder_.set_phase(Phase::kForward);
    known->second = builder_.Add(first, builder_.Constant(Tensor::Scalar<int64_t>(before)));
    Label(static_cast<int>(k), stage);
    of_one_.insert(known->second);
    return known->second;
  }

  void AddNode(size_t k, const Node& from) {
    Node node = from;
    for (ValueId& id : node.inputs) id = Read(k, id, from.device);
    // The number of the first micro-batch's first sample is that of the replica.
    const auto counts = [&](ValueId id) { return id != kNoValue && GraphOf(k).value(id).name == kStepFirst; };
    const bool depends = std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) { return of_one_.contains(id); }) ||
                         std::any_of(from.inputs.begin(), from.inputs.end(), counts);
    if (!depends && IsThere(k, node)) return;
    for (ValueId& id : node.outputs) {
      if (id == kNoValue) continue;
      // Ids of values that only a micro-batch has are those of other values in the first one's graph.
      const bool keeps = k == 0 && !outputs_.contains(id);
      GRADLOOM_CHECK(k == 0 || GraphOf(k).value(id).next_of == kNoValue);
      const ValueId made = keeps ? id : NewValue(k, id);
      IdOf(k, id) = made;
      id = made;
      if (depends) of_one_.insert(made);
    }
    // Passes change bodies in place.
    for (Region& region : node.regions) region.body = region.body->Clone();
    graph_.AddNode(std::move(node));
    Label(depends ? static_cast<int>(k) : kOfAll, from.device);
  }

  // Whether an earlier micro-batch has computed the same from what all have; if so, its results are this one's.
  bool IsThere(size_t k, const Node& node) {
    std::string key = KeyOf(node) + "@" + std::to_string(node.device);
    // A draw of random numbers, or a branch or loop, is that of another micro-batch if it has the same results in the whole graph.
    for (const ValueId id : node.outputs) {
      if (id != kNoValue && id < whole_.num_values()) key += "#" + std::to_string(id);
    }
    const auto [known, fresh] = of_all_.emplace(std::move(key), Origin{k, node.outputs});
    if (fresh) return false;
    const auto& [from, outputs] = known->second;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i] != kNoValue) IdOf(k, node.outputs[i]) = IdOf(from, outputs[i]);
    }
    return true;
  }

  // Adds the node that all micro-batches have at these positions, with the sums of their operands.
  void Join(const std::vector<size_t>& at) {
    const Node& first = GraphOf(0).nodes[at[0]];
    for (size_t k = 1; k < at.size(); ++k) {
      const Node& other = GraphOf(k).nodes[at[k]];
      GRADLOOM_CHECK(other.op == first.op && other.inputs.size() == first.inputs.size());
    }
    builder_.set_phase(first.phase);
    IsAllReduce(first) ? JoinAllReduce(first, at) : JoinAddition(first, at);
    for (size_t k = 1; k < at.size(); ++k) {
      const Node& other = GraphOf(k).nodes[at[k]];
      for (size_t i = 0; i < first.outputs.size(); ++i) IdOf(k, other.outputs[i]) = IdOf(0, first.outputs[i]);
    }
  }

  ValueId OperandOf(size_t k, size_t at, size_t i) {
    const Node& node = GraphOf(k).nodes[at];
    return Read(k, node.inputs[i], node.device);
  }

  // The sum of an operand over the micro-batches. `into`: the value that it becomes; kNoValue: a new one.
  ValueId SumOf(const std::vector<size_t>& at, size_t operand, int stage, ValueId into) {
    ValueId sum = OperandOf(0, at[0], operand);
    for (size_t k = 1; k < parts_.size(); ++k) {
      const ValueId part = OperandOf(k, at[k], operand);
      if (k + 1 == parts_.size() && into != kNoValue) {
        graph_.AddNode({.op = "Add", .inputs = {sum, part}, .outputs = {into}, .phase = builder_.phase()});
        sum = into;
      } else {
        sum = builder_.Add(sum, part);
        if (graph_.value(part).role == Role::kGradient) graph_.value(sum).role = Role::kGradient;
      }
      Label(static_cast<int>(k), stage);
    }
    return sum;
  }

  void JoinAllReduce(const Node& first, const std::vector<size_t>& at) {
    Node all_reduce = first;
    for (size_t i = 0; i < first.inputs.size(); ++i) {
      const ValueId result = first.outputs[i];
      IdOf(0, result) = result;
      ValueId& operand = all_reduce.inputs[i];
      operand = SumOf(at, i, first.device, replicas_ == 1 ? result : kNoValue);
    }
    if (replicas_ == 1) return;
    graph_.AddNode(std::move(all_reduce));
    Label(kOfAll, first.device);
  }

  void JoinAddition(const Node& first, const std::vector<size_t>& at) {
    Node add = first;
    const size_t added = AddedOperand(GraphOf(0), first);
    add.inputs[added] = SumOf(at, added, first.device, kNoValue);
    IdOf(0, first.outputs[0]) = first.outputs[0];
    graph_.AddNode(std::move(add));
    Label(kOfAll, first.device);
  }

  // Puts the micro-batches' parts of an output together.
  void ConcatOutput(ValueId id) {
    const Samples samples = *SamplesOf(id);
    std::vector<ValueId> parts;
    for (size_t k = 0; k < parts_.size(); ++k) parts.push_back(IdOf(k, id));
    const auto made = std::find_if(graph_.nodes.begin(), graph_.nodes.end(),
                                   [&](const Node& node) { return std::ranges::find(node.outputs, parts.front()) != node.outputs.end(); });
    GRADLOOM_CHECK(made != graph_.nodes.end());
    const int stage = made->device;
    builder_.set_phase(made->phase);
    if (samples.outer > 1) {
      for (ValueId& part : parts) part = builder_.Reshape(part, WithOuter(graph_.value(part).shape, samples));
    }
    Node concat{.op = "Concat", .inputs = std::move(parts), .outputs = {id}, .phase = builder_.phase()};
    concat.attributes.set("axis", static_cast<int64_t>(samples.axis) + (samples.outer > 1 ? 1 : 0));
    if (samples.outer > 1) {
      const Value value = graph_.value(id);
      const ValueId joined = graph_.AddValue(value.name + "/joined", value.dtype, WithOuter(value.shape, samples), value.role);
      concat.outputs = {joined};
      graph_.AddNode(std::move(concat));
      const std::vector<int64_t> dims(value.shape.begin(), value.shape.end());
      graph_.AddNode({.op = "Reshape", .inputs = {joined, builder_.Ints(dims)}, .outputs = {id}, .phase = builder_.phase()});
    } else {
      graph_.AddNode(std::move(concat));
    }
    Label(kOfAll, stage);
  }

  // A node, whose operands all micro-batches have, of the first one that has it.
  struct Origin {
    size_t micro_batch;
    std::vector<ValueId> outputs;
  };

  const Graph& whole_;
  const int64_t batch_;
  const Replication& replication_;
  const std::vector<MicroBatch>& parts_;
  const int replicas_;
  std::unique_ptr<Graph> made_;
  Graph& graph_;
  GraphBuilder builder_;
  size_t labeled_ = 0;                                       // nodes that have their stage and micro-batch
  int64_t samples_ = 0;                                      // of the replica
  std::set<ValueId> outputs_;                                // of the whole graph, divided by samples
  std::vector<std::vector<ValueId>> ids_;                    // by micro-batch, and by id in its graph
  std::set<ValueId> of_one_;                                 // values of this graph that depend on one micro-batch's samples
  std::map<std::string, ValueId> constants_;                 // by their elements
  std::map<std::tuple<size_t, ValueId, int>, ValueId> fed_;  // by micro-batch, input and stage
  std::map<std::string, Origin> of_all_;
};

}  // namespace

// Each stage computes all micro-batches of the first copy, which has most of them, and the last one waits for stages - 1 before.
int MicroBatchesOf(int64_t batch, int copies, int stages, int most) {
  const auto time = [&](int count) { return DivideBatch(batch, copies * count)[0].length * (count + stages - 1); };
  int best = 1;
  for (int count = 2; count <= most; ++count) {
    if (time(count) <= time(best)) best = count;
  }
  return best;
}

std::unique_ptr<Graph> JoinMicroBatches(const Graph& whole, int64_t batch, const Replication& replication,
                                        const std::vector<MicroBatch>& parts, int replicas, const TypeRules& rules) {
  return Joiner(whole, batch, replication, parts, replicas, rules).Run();
}

}  // namespace gradloom
