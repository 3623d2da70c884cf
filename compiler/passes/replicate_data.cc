#include "compiler/passes/replicate_data.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "compiler/ops/op.h"
#include "compiler/passes/program_plan.h"
#include "compiler/passes/step_params.h"
#include "runtime/base/error.h"

namespace gradloom {
namespace {

size_t At(ValueId id) { return static_cast<size_t>(id); }

bool IsRandom(const Node& node) {
  const Op* op = FindOp(node.domain, node.op);
  return op != nullptr && op->has(kRandom);
}

// A device's graph, node by node from the whole one's.
class DeviceGraph {
 public:
  DeviceGraph(const Graph& whole, int64_t batch, int64_t samples, const TypeRules& rules)
      : graph_(whole.Clone()), builder_(*graph_, rules), nodes_(std::exchange(graph_->nodes, {})), batch_(batch), samples_(samples) {}

  Graph& graph() { return *graph_; }
  GraphBuilder& builder() { return builder_; }
  std::vector<Node>& nodes() { return nodes_; }
  std::unique_ptr<Graph> Take() { return std::move(graph_); }

  // A node whose samples the device has.
  void Add(Node node, bool mean) {
    if (mean) return AddMean(std::move(node));
    graph_->AddNode(std::move(node));
  }

  // The number of an element is that of its place in the whole batch.
  void AddRandom(Node node, const Graph& whole, const Shard& shard) {
    const Shape& shape = whole.value(node.outputs[0]).shape;
    int64_t together = shard.InnerOf(shape[shard.axis], batch_);
    for (int i = shard.axis + 1; i < shape.rank(); ++i) together *= shape[i];
    node.attributes.set("samples", std::vector<int64_t>{batch_, samples_, together});
    while (node.inputs.back() == kNoValue) node.inputs.pop_back();
    node.inputs.push_back(StepParam(*graph_, kStepFirst));
    graph_->AddNode(std::move(node));
  }

  // Value `id` is to become the sum of `part` over the devices.
  void Bring(ValueId id, ValueId part, const std::string& state, const std::string& origin) {
    meeting_.inputs.push_back(part);
    meeting_.outputs.push_back(id);
    meeting_.origin = origin;
    states_.push_back(state);
  }

  // What was brought becomes so.
  void Meet() {
    meeting_.attributes.set("states", std::exchange(states_, {}));
    graph_->AddNode(std::exchange(meeting_, kMeeting));
  }

  // A value like `id`, for what a device has of it.
  ValueId Part(ValueId id) {
    const Value value = graph_->value(id);
    const Role role = value.role == Role::kGradient ? Role::kGradient : Role::kActivation;
    return graph_->AddValue(value.name + "/part", value.dtype, value.shape, role);
  }

  ValueId Weighted(ValueId part) { return builder_.Scale(part, static_cast<double>(samples_) / static_cast<double>(batch_)); }

 private:
  // The sum over the device's samples, divided by the count of the whole batch.
  void AddMean(Node node) {
    const Value out = graph_->value(node.outputs[0]);
    const int64_t here = graph_->value(node.inputs[0]).shape.elements() / std::max<int64_t>(out.shape.elements(), 1);
    const double count = static_cast<double>(here) / static_cast<double>(samples_) * static_cast<double>(batch_);
    const ValueId sum = graph_->AddValue(out.name + "/sum", out.dtype, out.shape, out.role);
    const ValueId result = node.outputs[0];
    const Phase phase = node.phase;
    const std::string origin = node.origin;
    node.op = "ReduceSum";
    node.outputs = {sum};
    graph_->AddNode(std::move(node));
    Node scaled{.op = "Mul", .inputs = {sum, builder_.Scalar(1 / count, out.dtype)}, .outputs = {result}, .phase = phase, .origin = origin};
    graph_->AddNode(std::move(scaled));
  }

  static inline const Node kMeeting{.op = "AllReduce", .domain = std::string(kGradloomDomain), .phase = Phase::kComm};

  std::unique_ptr<Graph> graph_;
  GraphBuilder builder_;
  std::vector<Node> nodes_;
  int64_t batch_, samples_;
  Node meeting_ = kMeeting;
  std::vector<std::string> states_;  // by operand of the meeting
};

}  // namespace

std::vector<BatchShard> DivideBatch(int64_t batch, int devices) {
  const int64_t each = (batch + devices - 1) / devices;
  std::vector<BatchShard> shards;
  for (int64_t i = 0; i < devices; ++i) {
    const int64_t start = std::min(i * each, batch);
    shards.push_back({start, std::min(each, batch - start)});
  }
  return shards;
}

Replication::Replication(const Graph& graph, int64_t batch, const Graph& other, int64_t other_batch, const TypeRules& rules,
                         const std::map<ValueId, ValueId>& gradients, int64_t bucket_bytes)
    : graph_(graph), batch_(batch), rules_(rules), dependence_(graph, batch, other, other_batch) {
  for (const auto& [parameter, gradient] : gradients) gradient_of_.emplace(gradient, graph.value(parameter).name);
  for (const Value& value : graph.values()) growing_.push_back(dependence_.growing(value.id));
  // A fed axis that is a multiple of the batch: samples one behind the other, or else each over and over.
  std::optional<Error> first;
  for (bool apart : {false, true}) {
    try {
      Propagate(apart);
      FillBuckets(bucket_bytes);
      return;
    } catch (const Error& error) {
      if (first) throw *first;
      const bool choice = std::any_of(graph.inputs.begin(), graph.inputs.end(), [&](ValueId id) {
        return growing_[At(id)] >= 0 && graph_.value(id).shape[growing_[At(id)]] != batch_;
      });
      if (!choice) throw;
      first = error;
    }
  }
}

void Replication::Propagate(bool apart) {
  wanted_.assign(growing_.size(), false);
  for (bool again = true; again;) {
    again = false;
    summed_.assign(growing_.size(), false);
    averaged_.assign(growing_.size(), false);
    shards_.assign(growing_.size(), {});
    means_.assign(graph_.nodes.size(), false);
    for (const Value& value : graph_.values()) {
      const int axis = growing_[At(value.id)];
      if (axis < 0) continue;
      if (value.role == Role::kInput) shards_[At(value.id)] = Shard::Split(axis, apart ? 1 : value.shape[axis] / batch_);
      if (value.role == Role::kConst) shards_[At(value.id)] = Shard::Split(axis, 0);
    }
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      std::vector<Shard> inputs;
      std::vector<int> growing;
      for (ValueId id : node.inputs) inputs.push_back(id == kNoValue ? Shard::Whole() : shards_[At(id)]);
      for (ValueId id : node.outputs) growing.push_back(id == kNoValue ? -1 : growing_[At(id)]);
      ShardQuery query(graph_, node, batch_, std::move(inputs), std::move(growing));
      AskShards(query);
      Check(node, query.outputs());
      means_[i] = query.mean();
      for (int k : query.reduced()) again |= Want(node.inputs[static_cast<size_t>(k)]);
      for (size_t k = 0; k < node.outputs.size(); ++k) {
        const ValueId id = node.outputs[k];
        if (id == kNoValue) continue;
        const Shard made = query.outputs()[k];
        // What became whole by an earlier meeting needs none.
        summed_[At(id)] = wanted_[At(id)] && made.partial();
        averaged_[At(id)] = wanted_[At(id)] && made.local();
        shards_[At(id)] = summed_[At(id)] || averaged_[At(id)] ? Shard::Whole() : made;
        if (graph_.value(id).next_of != kNoValue && (shards_[At(id)].partial() || shards_[At(id)].local())) again |= Want(id);
      }
    }
    for (ValueId id : graph_.outputs) {
      if (shards_[At(id)].partial()) again |= Want(id);
      if (shards_[At(id)].local()) {
        throw Error(ErrorCode::kUnsupported,
                    "'" + Escaped(graph_.value(id).name) + "' is a statistic of one device's samples and cannot be fetched", "",
                    "--sync-bn gives batch statistics over all devices");
      }
    }
  }
}

bool Replication::Want(ValueId id) {
  if (wanted_[At(id)]) return false;
  wanted_[At(id)] = true;
  return true;
}

// The same on every device, also where it has none of the nodes between: by the whole graph's order.
void Replication::FillBuckets(int64_t bucket_bytes) {
  std::set<ValueId> open;
  ValueId last = kNoValue;
  int64_t bytes = 0;
  const auto close = [&] {
    if (last != kNoValue) last_in_bucket_.insert(last);
    open.clear();
    last = kNoValue;
    bytes = 0;
  };
  for (const Node& node : graph_.nodes) {
    if (std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) { return open.contains(id); })) close();
    for (ValueId id : node.outputs) {
      if (!Meets(id)) continue;
      const int64_t own = graph_.value(id).shape.elements() * DTypeBytes(graph_.value(id).dtype);
      if (last != kNoValue && bytes + own > bucket_bytes) close();
      open.insert(id);
      last = id;
      bytes += own;
    }
  }
  close();
}

// A rule that says something else than the shapes do is wrong.
void Replication::Check(const Node& node, const std::vector<Shard>& made) const {
  for (size_t k = 0; k < made.size(); ++k) {
    const ValueId id = node.outputs[k];
    if (id == kNoValue) continue;
    const int axis = growing_[At(id)];
    if (made[k].split() ? axis == made[k].axis : axis < 0) continue;
    throw Error(
        ErrorCode::kUnsupported,
        "the batch cannot be divided over devices: samples of '" + Escaped(graph_.value(id).name) + "' do not lie where its shape grows",
        Describe(node), "train on one device (--devices cpu)");
  }
}

std::unique_ptr<Graph> Replication::ForDevice(int64_t samples) const {
  DeviceGraph device(graph_, batch_, samples, rules_);
  Graph& graph = device.graph();
  const auto kept = [&](ValueId id) { return id == kNoValue || shard(id).whole(); };
  for (ValueId id = 0; samples > 0 && id < graph_.num_values(); ++id) {
    if (growing_[At(id)] >= 0) graph.value(id).shape = dependence_.ShapeAt(id, samples);
    if (graph.value(id).role == Role::kConst && graph.data(id) != nullptr) graph.set_data(id, dependence_.ConstantAt(id, samples));
  }
  for (size_t i = 0; i < graph_.nodes.size(); ++i) {
    Node& node = device.nodes()[i];
    // What a device without samples can make: what no sample has a part in.
    const bool whole = std::all_of(node.inputs.begin(), node.inputs.end(), kept) &&
                       std::all_of(node.outputs.begin(), node.outputs.end(), kept) &&
                       std::none_of(node.outputs.begin(), node.outputs.end(), [&](ValueId id) { return Meets(id); });
    std::vector<std::pair<ValueId, ValueId>> parts;  // a value that devices make together, and what this one has of it
    const std::string origin = node.origin;
    for (ValueId& id : node.outputs) {
      if (!Meets(id)) continue;
      parts.emplace_back(id, samples > 0 ? device.Part(id) : kNoValue);
      if (samples > 0) id = parts.back().second;
    }
    if (samples > 0) {
      node.attributes = dependence_.AttributesAt(i, samples);
      const ValueId out = graph_.nodes[i].outputs[0];
      const bool drawn = IsRandom(node) && out != kNoValue && shard(out).split();
      if (drawn) {
        device.AddRandom(std::move(node), graph_, shard(out));
      } else {
        device.Add(std::move(node), means_[i]);
      }
    } else if (whole) {
      device.Add(std::move(node), false);
    }
    for (const auto& [id, made] : parts) {
      ValueId part = made == kNoValue ? device.builder().Zeros(graph.type(id)) : made;
      if (averaged_[At(id)] && samples > 0) part = device.Weighted(part);
      const auto gradient = gradient_of_.find(id);
      device.Bring(id, part, gradient == gradient_of_.end() ? "" : gradient->second, origin);
      if (last_in_bucket_.contains(id)) device.Meet();
    }
  }
  if (samples == 0) std::erase_if(graph.outputs, [&](ValueId id) { return !shard(id).whole(); });
  std::unique_ptr<Graph> made = device.Take();
  // The operators' own rules must give what was worked out.
  for (const Node& node : made->nodes) {
    const std::vector<ValueType> types = rules_.Infer(*made, node);
    for (size_t k = 0; k < node.outputs.size(); ++k) {
      if (node.outputs[k] == kNoValue || types[k] == made->type(node.outputs[k])) continue;
      throw Error(ErrorCode::kUnsupported,
                  "the batch cannot be divided over devices: with " + std::to_string(samples) + " samples '" +
                      Escaped(made->value(node.outputs[k]).name) + "' is " + types[k].ToString() + ", not " +
                      made->type(node.outputs[k]).ToString(),
                  Describe(node), "train on one device (--devices cpu)");
    }
  }
  return made;
}

}  // namespace gradloom
