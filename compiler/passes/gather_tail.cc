#include "compiler/passes/gather_tail.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "compiler/passes/place_state.h"

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
    node.phase = boundary.phase == Phase::kUpdate ? Phase::kUpdate : Phase::kComm;
    node.origin = boundary.origin;
    graph_->AddNode(std::move(node));
  }

  void Become(ValueId id, ValueId made) {
    builder_.Op("Identity", {made});
    graph_->nodes.back().outputs[0] = id;
  }

  void Gather(const Node& node) {
    const int axis = AxisOf(node);
    const ValueId whole = node.outputs[0];
    if (axis < 0) return Become(whole, node.inputs[0]);
    const int64_t each = ShapeOf(whole)[axis] / (shards_.back().start + shards_.back().length);
    std::vector<ValueId> parts;
    for (size_t r = 0; r < shards_.size(); ++r) {
      if (shards_[r].length == 0) continue;
      if (r == me_) {
        parts.push_back(node.inputs[0]);
        continue;
      }
      Shape shape = ShapeOf(whole);
      shape[axis] = each * shards_[r].length;
      const Value& value = graph_->value(whole);
      parts.push_back(graph_->AddValue(value.name + "/of" + std::to_string(r), value.dtype, shape, value.role));
      Transfer(node, "Recv", r, {}, {parts.back()});
    }
    if (parts.size() == 1) return Become(whole, parts[0]);
    builder_.Op("Concat", parts, {{"axis", int64_t{axis}}});
    graph_->nodes.back().outputs[0] = whole;
  }

  void SendToTail(const Node& node) {
    if (AxisOf(node) >= 0 && shards_[me_].length > 0) Transfer(node, "Send", 0, {node.inputs[0]}, {});
  }

  void Scatter(const Node& node) {
    const int axis = AxisOf(node);
    const ValueId whole = node.inputs[0], own = node.outputs[0];
    if (axis < 0) {
      Become(own, whole);
      for (size_t r = 0; r < shards_.size(); ++r) {
        if (r != me_) Transfer(node, "Send", r, {whole}, {});
      }
      return;
    }
    const int64_t each = ShapeOf(whole)[axis] / (shards_.back().start + shards_.back().length);
    for (size_t r = 0; r < shards_.size(); ++r) {
      if (shards_[r].length == 0) continue;
      const int64_t begin = shards_[r].start * each, end = begin + shards_[r].length * each;
      const ValueId part = builder_.Op("Slice", {whole, builder_.Ints({begin}), builder_.Ints({end}), builder_.Ints({axis})});
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

void MarkTail(Graph& graph, const Stages& stages) { Marker(graph, stages).Run(); }

std::unique_ptr<Graph> TailPart(const Graph& graph, const TypeRules& rules, const std::vector<BatchShard>& shards, size_t me, size_t tail) {
  return Part(graph, rules, shards, me, tail).Run();
}

}  // namespace gradloom
