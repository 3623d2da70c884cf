#include "compiler/passes/devices/gather_tail.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "compiler/passes/memory/place_state.h"

namespace gradloom {
namespace {

const std::string kDomain(kGradloomDomain);

class Marker {
 public:
  Marker(Graph& graph, const Stages& stages) : graph_(graph), home_(static_cast<size_t>(graph.num_values()), kTrunk) {
    for (const Value& value : graph.values()) {
      const bool kept = IsKept(value);
      if (kept) home_[static_cast<size_t>(value.id)] = stages.of_state.at(value.name);
      // The device with the tail also has the trunk's states.
      here_.push_back(kept || value.role == Role::kInput);
      free_.push_back(kept && home_[static_cast<size_t>(value.id)] == kTrunk);
    }
    for (const Node& node : graph.nodes) {
      ForEachUse(node, [&](ValueId id) {
        if (graph.value(id).role != Role::kConst) return;
        free_[static_cast<size_t>(id)] = true;
        if (node.device == kTrunk) trunk_reads_.insert(id);
      });
    }
    for (ValueId id : graph.inputs) free_[static_cast<size_t>(id)] = true;
    for (ValueId id : FeedsOf(graph)) free_[static_cast<size_t>(id)] = false;
    for (const Node& node : graph.nodes) {
      for (ValueId id : node.outputs) {
        if (id != kNoValue) home_[static_cast<size_t>(id)] = node.device;
      }
    }
    for (const Node& node : graph.nodes) {
      ForEachUse(node, [&](ValueId id) {
        if (Crosses(id, node.device)) read_[id] = node.device;
      });
    }
  }

  void Run() {
    std::vector<Node> nodes = std::exchange(graph_.nodes, {});
    for (Node& node : nodes) {
      ForEachUse(node, [&](ValueId id) {
        if (here_[static_cast<size_t>(id)] && Crosses(id, node.device)) Pass(id, node);
      });
      for (ValueId& id : node.inputs) {
        if (id != kNoValue && node.device == kTail && trunk_reads_.contains(id)) id = Whole(id);
        if (id != kNoValue && Crosses(id, node.device)) id = passed_.at(id);
      }
      const Node kept = node;
      graph_.nodes.push_back(std::move(node));
      for (ValueId id : kept.outputs) {
        if (id != kNoValue && read_.contains(id)) Pass(id, kept);
      }
    }
  }

 private:
  bool Crosses(ValueId id, int device) const {
    const auto at = static_cast<size_t>(id);
    return at < home_.size() && home_[at] != device && !free_[at];
  }

  // A constant of the trunk may be reduced to a device's samples, so the tail gets its own copy.
  ValueId Whole(ValueId id) {
    const auto [at, fresh] = whole_.emplace(id, kNoValue);
    if (fresh) at->second = graph_.AddData(graph_.value(id).name + "/whole", *graph_.data(id), Role::kConst);
    return at->second;
  }

  void Pass(ValueId id, const Node& cause) {
    if (passed_.contains(id)) return;
    const Value value = graph_.value(id);
    const bool gathers = home_[static_cast<size_t>(id)] == kTrunk;
    const ValueId copy = graph_.AddValue(value.name + (gathers ? "/gathered" : "/scattered"), value.dtype, value.shape,
                                         value.role == Role::kGradient ? Role::kGradient : Role::kActivation);
    passed_.emplace(id, copy);
    Node node{
        .op = gathers ? "GatherSamples" : "ScatterSamples", .domain = kDomain, .inputs = {id}, .outputs = {copy}, .phase = cause.phase};
    node.origin = cause.origin.empty() ? value.name : cause.origin;
    node.device = gathers ? kTail : kTrunk;
    graph_.AddNode(std::move(node));
  }

  Graph& graph_;
  std::vector<int> home_;          // by value id
  std::vector<bool> here_, free_;  // by value id: available before the first node; readable everywhere without a transfer
  std::map<ValueId, int> read_;    // values that are read on the other side, with that side
  std::set<ValueId> trunk_reads_;  // constants
  std::map<ValueId, ValueId> passed_, whole_;
};

class Part {
 public:
  Part(const Graph& graph, const TypeRules& rules, const std::vector<BatchShard>& shards, size_t me, size_t tail)
      : graph_(graph.Clone()), builder_(*graph_, rules), shards_(shards), me_(me), tail_(tail) {}

  std::unique_ptr<Graph> Run() {
    std::vector<bool> made(static_cast<size_t>(graph_->num_values()), true);
    std::vector<Node> nodes = std::exchange(graph_->nodes, {});
    for (const Node& node : nodes) {
      for (ValueId id : node.outputs) {
        if (id != kNoValue) made[static_cast<size_t>(id)] = has_tail() || node.device == kTrunk;
      }
    }
    for (Node& node : nodes) {
      builder_.set_phase(node.phase);
      builder_.set_origin(node.origin);
      if (IsBoundary(node) && node.device == kTail) {
        has_tail() ? Gather(node) : SendToTail(node);
      } else if (IsBoundary(node)) {
        has_tail() ? Scatter(node) : ReceiveFromTail(node);
      } else if (has_tail() || node.device == kTrunk) {
        graph_->nodes.push_back(std::move(node));
      }
    }
    std::erase_if(graph_->outputs, [&](ValueId id) { return !made[static_cast<size_t>(id)]; });
    for (ValueId id = 0; id < static_cast<ValueId>(made.size()); ++id) {
      if (!made[static_cast<size_t>(id)]) graph_->value(id).next_of = kNoValue;
    }
    return std::move(graph_);
  }

 private:
  bool has_tail() const { return me_ == tail_; }
  const Shape& ShapeOf(ValueId id) const { return graph_->value(id).shape; }
  int64_t batch() const { return shards_.back().start + shards_.back().length; }
  // Returns the batch axis of the value, or -1 if it has none.
  static int AxisOf(const Node& node) { return static_cast<int>(node.attributes.Int("axis", -1)); }

  void Transfer(const Node& boundary, const char* op, size_t peer, std::vector<ValueId> inputs, std::vector<ValueId> outputs) {
    Node node{.op = op, .domain = kDomain, .inputs = std::move(inputs), .outputs = std::move(outputs)};
    node.attributes.set("peer", static_cast<int64_t>(peer));
    node.attributes.set("tag", int64_t{boundary.outputs[0]});
    if (!node.outputs.empty()) {
      const Value& value = graph_->value(node.outputs[0]);
      node.attributes.set("dtype", static_cast<int64_t>(value.dtype));
      node.attributes.set("shape", std::vector<int64_t>(value.shape.begin(), value.shape.end()));
    }
    node.phase = boundary.phase;
    node.origin = boundary.origin;
    graph_->AddNode(std::move(node));
  }

  void Become(ValueId id, ValueId made) {
    builder_.Op("Identity", {made});
    graph_->nodes.back().outputs[0] = id;
  }

  // The samples of a value of the whole batch: along `axis`, where all samples follow each other `outer` times, with `each` positions.
  struct Samples {
    Shape whole;
    int axis = 0;
    int64_t outer = 1, each = 1;

    // The shape of `count` samples, and the same with an axis of their own for the repetitions, behind which the samples are contiguous.
    Shape Of(int64_t count) const {
      Shape shape = whole;
      shape[axis] = outer * each * count;
      return shape;
    }
    Shape Apart(int64_t count) const {
      std::vector<int64_t> dims(whole.begin(), whole.end());
      dims[static_cast<size_t>(axis)] = each * count;
      dims.insert(dims.begin() + axis, outer);
      return Shape(dims);
    }
    int axis_apart() const { return axis + 1; }
  };

  Samples SamplesOf(const Node& node, const Shape& whole) const {
    Samples samples{.whole = whole, .axis = AxisOf(node), .outer = node.attributes.Int("outer", 1)};
    samples.each = whole[samples.axis] / (samples.outer * batch());
    return samples;
  }

  void Gather(const Node& node) {
    const ValueId whole = node.outputs[0];
    if (AxisOf(node) < 0) return Become(whole, node.inputs[0]);
    const Samples samples = SamplesOf(node, ShapeOf(whole));
    std::vector<ValueId> parts;
    for (size_t r = 0; r < shards_.size(); ++r) {
      if (shards_[r].length == 0) continue;
      if (r == me_) {
        parts.push_back(node.inputs[0]);
        continue;
      }
      const Value& value = graph_->value(whole);
      parts.push_back(graph_->AddValue(value.name + "/of" + std::to_string(r), value.dtype, samples.Of(shards_[r].length), value.role));
      Transfer(node, "Recv", r, {}, {parts.back()});
    }
    if (parts.size() == 1) return Become(whole, parts[0]);
    if (samples.outer == 1) {
      builder_.Op("Concat", parts, {{"axis", int64_t{samples.axis}}});
    } else {
      size_t k = 0;
      for (const BatchShard& shard : shards_) {
        if (shard.length == 0) continue;
        parts[k] = builder_.Reshape(parts[k], samples.Apart(shard.length));
        ++k;
      }
      builder_.Reshape(builder_.Op("Concat", parts, {{"axis", int64_t{samples.axis_apart()}}}), samples.whole);
    }
    graph_->nodes.back().outputs[0] = whole;
  }

  void SendToTail(const Node& node) {
    if (AxisOf(node) >= 0 && shards_[me_].length > 0) Transfer(node, "Send", 0, {node.inputs[0]}, {});
  }

  void Scatter(const Node& node) {
    ValueId whole = node.inputs[0];
    const ValueId own = node.outputs[0];
    if (AxisOf(node) < 0) {
      Become(own, whole);
      for (size_t r = 0; r < shards_.size(); ++r) {
        if (r != me_) Transfer(node, "Send", r, {whole}, {});
      }
      return;
    }
    const Samples samples = SamplesOf(node, ShapeOf(whole));
    const int64_t axis = samples.outer == 1 ? samples.axis : samples.axis_apart();
    if (samples.outer > 1) whole = builder_.Reshape(whole, samples.Apart(batch()));
    for (size_t r = 0; r < shards_.size(); ++r) {
      if (shards_[r].length == 0) continue;
      const int64_t begin = shards_[r].start * samples.each, end = begin + shards_[r].length * samples.each;
      ValueId part = builder_.Op("Slice", {whole, builder_.Ints({begin}), builder_.Ints({end}), builder_.Ints({axis})});
      if (samples.outer > 1) part = builder_.Reshape(part, samples.Of(shards_[r].length));
      if (r == me_) {
        graph_->nodes.back().outputs[0] = own;
      } else {
        Transfer(node, "Send", r, {part}, {});
      }
    }
  }

  void ReceiveFromTail(const Node& node) {
    if (AxisOf(node) < 0 || shards_[me_].length > 0) Transfer(node, "Recv", 0, {}, {node.outputs[0]});
  }

  std::unique_ptr<Graph> graph_;
  GraphBuilder builder_;
  const std::vector<BatchShard>& shards_;
  const size_t me_, tail_;
};

}  // namespace

void AssignTail(const Graph& graph, const std::set<std::string>& origins, Stages& stages) {
  std::set<std::string> tail = origins;
  for (bool again = true; again;) {
    again = false;
    std::vector<bool> made(static_cast<size_t>(graph.num_values()), false);
    for (const Node& node : graph.nodes) {
      if (node.phase != Phase::kForward) continue;
      bool inside = !node.origin.empty() && tail.contains(node.origin);
      ForEachUse(node, [&](ValueId id) { inside = inside || made[static_cast<size_t>(id)]; });
      if (!inside) continue;
      for (ValueId id : node.outputs) {
        if (id != kNoValue) made[static_cast<size_t>(id)] = true;
      }
      // An earlier node may have this origin.
      if (!node.origin.empty()) again |= tail.insert(node.origin).second;
    }
  }
  for (const std::string& origin : tail) stages.of_node[origin] = kTail;
}

void MarkTail(Graph& graph, const Stages& stages) { Marker(graph, stages).Run(); }

std::unique_ptr<Graph> TailPart(const Graph& graph, const TypeRules& rules, const std::vector<BatchShard>& shards, size_t me, size_t tail) {
  return Part(graph, rules, shards, me, tail).Run();
}

}  // namespace gradloom
