#include "compiler/passes/devices/replicate_data.h"

#include <algorithm>
#include <exception>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "compiler/cost/cost_model.h"
#include "compiler/ops/op.h"
#include "compiler/passes/schedule/program_plan.h"
#include "compiler/passes/schedule/refusals.h"
#include "compiler/passes/update/accumulate.h"
#include "compiler/passes/update/step_params.h"
#include "runtime/base/error.h"

namespace gradloom {
namespace {

size_t At(ValueId id) { return static_cast<size_t>(id); }

}  // namespace

// A device's graph, built node by node from the whole graph.
class Replication::DeviceGraph {
 public:
  DeviceGraph(const Graph& whole, int64_t batch, int64_t samples, const TypeRules& rules)
      : graph_(whole.Clone()),
        builder_(*graph_, rules),
        nodes_(std::exchange(graph_->nodes, {})),
        batch_(batch),
        samples_(samples),
        lacks_(static_cast<size_t>(whole.num_values()), false) {}

  Graph& graph() { return *graph_; }
  GraphBuilder& builder() { return builder_; }
  std::vector<Node>& nodes() { return nodes_; }
  std::unique_ptr<Graph> Take() { return std::move(graph_); }

  // Whether the device, which has no samples, does not compute this value, although it is whole: as in a loop over samples.
  bool lacks(ValueId id) const { return lacks_[At(id)]; }
  void SetLacks(ValueId id) { lacks_[At(id)] = true; }

  // Adds a node that works on the device's samples; `mean`: it computes a mean over samples.
  void Add(Node node, bool mean) {
    if (mean) return AddPartOfMean(builder_, std::move(node), samples_, batch_);
    graph_->AddNode(std::move(node));
  }

  void AddRandom(Node node, const Graph& whole, const Shard& shard) {
    DrawForSamples(whole, *graph_, node, shard, samples_, batch_);
    graph_->AddNode(std::move(node));
  }

  // Adds to the pending all-reduce of a stage: value `id` becomes the sum of `part` over the devices that have the stage. The phase is that
  // of the builder.
  void AddToAllReduce(ValueId id, ValueId part, const std::string& state, const std::string& origin, int stage) {
    auto& [all_reduce, states, tag] = open_.emplace(stage, Open{}).first->second;
    if (states.empty()) tag = id;
    all_reduce.inputs.push_back(part);
    all_reduce.outputs.push_back(id);
    all_reduce.origin = origin;
    all_reduce.device = stage;
    all_reduce.phase = std::max(all_reduce.phase, builder_.phase());
    states.push_back(state);
  }

  // Appends the pending all-reduce of a stage.
  void EmitAllReduce(int stage) {
    auto& [all_reduce, states, tag] = open_.at(stage);
    all_reduce.attributes.set("states", states);
    all_reduce.attributes.set("tag", int64_t{tag});
    graph_->AddNode(std::move(all_reduce));
    open_.erase(stage);
  }

  // Returns `added`, the device's contribution to its part of a state, made to depend on an all-reduce of zeros. A device that has passed
  // this all-reduce knows that all others have reached it and that none has refused the batch.
  ValueId AfterAllReduce(ValueId added, int stage) {
    const auto [known, fresh] = one_.emplace(stage, kNoValue);
    if (fresh) {
      const ValueId zero = graph_->AddValue("accepted", DType::kFloat32, Shape{}, Role::kActivation);
      AddToAllReduce(zero, builder_.Scalar(0, DType::kFloat32), "", "", stage);
      // No value of the whole graph, and the same on all devices.
      open_.at(stage).tag = static_cast<ValueId>(lacks_.size()) + 1 + stage;
      EmitAllReduce(stage);
      known->second = builder_.Add(builder_.Scalar(1, DType::kFloat32), zero);
    }
    return builder_.Mul(added, builder_.Cast(known->second, builder_.dtype(added)));
  }

  // Adds a value like `id` for the device's part of it.
  ValueId Part(ValueId id) {
    const Value value = graph_->value(id);
    const Role role = value.role == Role::kGradient ? Role::kGradient : Role::kActivation;
    return graph_->AddValue(value.name + "/part", value.dtype, value.shape, role);
  }

  ValueId Weighted(ValueId part) { return DeviceShareOf(builder_, part, samples_, batch_); }

  // Returns one row for each device that has samples, with the device's own value in its row and zeros elsewhere. All devices but the last
  // have `each` samples.
  ValueId RowOfDevice(ValueId own, int64_t each) {
    const DType dtype = Summed(builder_.dtype(own));
    std::vector<int64_t> rows(static_cast<size_t>(builder_.shape(own).rank()) + 1, 1), numbers(static_cast<size_t>(Rows(each)));
    rows[0] = Rows(each);
    std::iota(numbers.begin(), numbers.end(), 0);
    const ValueId here = builder_.Div(StepParam(*graph_, kStepFirst), builder_.Constant(Tensor::Scalar<int64_t>(each)));
    const ValueId mine = builder_.Op("Equal", {builder_.Constant(Tensor::From<int64_t>(numbers, Shape(rows))), here});
    return builder_.Where(mine, builder_.Cast(own, dtype), builder_.Scalar(0, dtype));
  }

  // Returns the rows of all devices from which the operator computes value `id`. Contributes the device's own row, or zeros if it has none.
  ValueId AllGatherRow(ValueId id, ValueId own, int64_t each, const std::string& origin, int stage) {
    const Value value = graph_->value(id);
    std::vector<int64_t> dims{Rows(each)};
    dims.insert(dims.end(), value.shape.begin(), value.shape.end());
    const ValueType type{Summed(value.dtype), Shape(dims)};
    const ValueId rows = graph_->AddValue(value.name + "/rows", type.dtype, type.shape, value.role);
    AddToAllReduce(rows, own == kNoValue ? builder_.Zeros(type) : RowOfDevice(own, each), "", origin, stage);
    open_.at(stage).tag = id;
    return rows;
  }
  void Combine(const std::string& op, ValueId rows, ValueId id) {
    const DType dtype = graph_->value(id).dtype;
    const ValueId made = builder_.Op(op, {rows, builder_.Ints({0})}, {{"keepdims", int64_t{0}}});
    Node as{.op = "Cast", .inputs = {made}, .outputs = {id}, .phase = builder_.phase()};
    as.attributes.set("to", static_cast<int64_t>(dtype));
    graph_->AddNode(std::move(as));
  }

 private:
  int64_t Rows(int64_t each) const { return (batch_ + each - 1) / each; }
  // Returns the type in which values of a type are summed.
  static DType Summed(DType dtype) {
    if (dtype == DType::kFloat64) return dtype;
    return IsFloating(dtype) ? DType::kFloat32 : DType::kInt64;
  }

  std::unique_ptr<Graph> graph_;
  GraphBuilder builder_;
  std::vector<Node> nodes_;
  int64_t batch_, samples_;
  std::vector<bool> lacks_;  // by value of the whole graph

  // A pending all-reduce; for each operand the state whose layout it is sent in; the tag, a value of the whole graph that no other
  // collective has.
  struct Open {
    Node all_reduce{.op = "AllReduce", .domain = std::string(kGradloomDomain)};
    std::vector<std::string> states;
    ValueId tag = kNoValue;
  };
  std::map<int, Open> open_;    // by stage
  std::map<int, ValueId> one_;  // the number 1, computed by an all-reduce, by stage
};

std::vector<BatchShard> DivideBatch(int64_t batch, int devices) {
  const int64_t each = (batch + devices - 1) / devices;
  std::vector<BatchShard> shards;
  for (int64_t i = 0; i < devices; ++i) {
    const int64_t start = std::min(i * each, batch);
    shards.push_back({start, std::min(each, batch - start)});
  }
  return shards;
}

int64_t BucketBytesOf(const Recipe& recipe) {
  return recipe.bucket_bytes > 0 ? recipe.bucket_bytes : BucketBytes(DefaultCosts(recipe.device));
}

Replication::Replication(const Graph& graph, int64_t batch, const Graph& other, int64_t other_batch, int devices, const TypeRules& rules,
                         const std::map<ValueId, ValueId>& gradients, int64_t bucket_bytes, bool gathers, std::map<ValueId, int64_t> inner)
    : graph_(graph),
      batch_(batch),
      each_(DivideBatch(batch, devices)[0].length),
      rules_(rules),
      dependence_(graph, batch, other, other_batch),
      numbers_(graph, dependence_, rules),
      gathers_(gathers),
      inner_(std::move(inner)),
      of_tail_(static_cast<size_t>(graph.num_values()), false) {
  for (const Node& node : graph.nodes) {
    if (!InTail(node)) continue;
    if (IsBoundary(node) && node.phase == Phase::kForward) gathered_.push_back(node.inputs[0]);
    for (ValueId id : node.outputs) {
      if (id != kNoValue) of_tail_[At(id)] = true;
    }
    ForEachUse(node, [&](ValueId id) {
      if (graph.value(id).role == Role::kConst) of_tail_[At(id)] = true;
    });
  }
  for (const auto& [parameter, gradient] : gradients) gradient_of_.emplace(gradient, graph.value(parameter).name);
  for (const Value& value : graph.values()) {
    const std::vector<int> axes = of_tail_[At(value.id)] ? std::vector<int>() : dependence_.growing_axes(value.id);
    growing_.push_back(axes.empty() ? -1 : axes[0]);
    // A fed table of pairs is divided into rows.
    of_pairs_.push_back(axes.size() > 1 && value.role != Role::kInput);
  }
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    if (!node.regions.empty() && !InTail(node)) bodies_.emplace(i, ReplicatedBodies(node, i, dependence_, batch, rules));
  }
  // If the extent of a fed axis is a multiple of the batch size, the samples may be contiguous, or else interleaved: both are tried.
  std::exception_ptr first;
  for (bool apart : {false, true}) {
    try {
      Propagate(apart);
      FillBuckets(bucket_bytes);
      synchronizes_parts_ = AllReducesEndTooEarly();
      return;
    } catch (const Error&) {
      if (first) std::rethrow_exception(first);
      const bool choice = std::any_of(graph.inputs.begin(), graph.inputs.end(), [&](ValueId id) {
        return growing_[At(id)] >= 0 && graph_.value(id).shape[growing_[At(id)]] != batch_;
      });
      if (!choice) throw;
      first = std::current_exception();
    }
  }
}

void Replication::Propagate(bool apart) {
  wanted_.assign(growing_.size(), false);
  for (bool again = true; again;) {
    again = false;
    summed_.assign(growing_.size(), false);
    averaged_.assign(growing_.size(), false);
    combined_.assign(growing_.size(), false);
    means_.assign(graph_.nodes.size(), false);
    ShardInputs(apart);
    std::optional<Error> refused;
    std::set<std::string> related;                            // origins
    std::vector<bool> after_refused(growing_.size(), false);  // by value id
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      bool divides = !refused || std::none_of(node.inputs.begin(), node.inputs.end(),
                                              [&](ValueId id) { return id != kNoValue && after_refused[At(id)]; });
      try {
        if (divides) again |= ShardNode(i);
      } catch (const Error& error) {
        if (error.code() != ErrorCode::kUnsupported) throw;
        if (!refused) refused = error;
        related.insert(node.origin);
        divides = false;
      }
      for (ValueId id : node.outputs) {
        if (!divides && id != kNoValue) after_refused[At(id)] = true;
      }
    }
    if (refused) throw RelatedSamples(*refused, std::move(related));
    for (ValueId id : graph_.outputs) {
      if (!shards_[At(id)].steps.empty()) {
        throw Error(ErrorCode::kUnsupported,
                    "'" + Escaped(graph_.value(id).name) +
                        "' depends on sample indices, which each device counts for itself, and cannot be fetched",
                    "", "train on one device (name one in --devices)");
      }
      if (shards_[At(id)].partial()) again |= RequireWhole(id);
      if (shards_[At(id)].local()) {
        throw Error(
            ErrorCode::kUnsupported,
            "'" + Escaped(graph_.value(id).name) + "' is a statistic that each device computes over its own samples, and cannot be fetched",
            "", "--sync-bn computes batch statistics over all devices");
      }
    }
  }
}

// Everything is whole except feeds and the constants of the trunk.
void Replication::ShardInputs(bool apart) {
  shards_.assign(growing_.size(), {});
  differs_.assign(growing_.size(), false);
  for (const Value& value : graph_.values()) {
    const int axis = growing_[At(value.id)];
    if (axis < 0 || of_pairs_[At(value.id)]) continue;
    const auto known = inner_.find(value.id);
    if (value.role == Role::kInput) {
      const int64_t inner = known != inner_.end() ? known->second : apart ? 1 : value.shape[axis] / batch_;
      shards_[At(value.id)] = Shard::Split(axis, inner);
    }
    if (value.role != Role::kConst) continue;
    const int64_t places = dependence_.PositionsPerSample(value.id);
    Shard& shard = shards_[At(value.id)] = Shard::Split(axis, std::max<int64_t>(places, 0));
    if (places < 0) shard.steps = dependence_.StepsOf(value.id);
    if (!shard.steps.empty()) shard.inner = value.shape[axis] / batch_;
    differs_[At(value.id)] = places < 0 && shard.steps.empty();
  }
}

// Decides how the results of the node are divided. Returns whether a value before it turned out to be needed whole.
bool Replication::ShardNode(size_t at) {
  const Node& node = graph_.nodes[at];
  bool again = false;
  if (AddsToPart(graph_, node)) {
    // The accumulated sum is not combined here.
    const Shard& added = shards_[At(node.inputs[AddedOperand(graph_, node)])];
    return (added.local() || added.split()) && RequireWhole(node.inputs[AddedOperand(graph_, node)]);
  }
  // Values of the tail cover the whole batch, although their shapes depend on it.
  if (InTail(node) && !IsBoundary(node)) return false;
  std::vector<Shard> inputs;
  std::vector<int> growing;
  for (ValueId id : node.inputs) inputs.push_back(id == kNoValue ? Shard::Whole() : shards_[At(id)]);
  for (ValueId id : node.outputs) growing.push_back(id == kNoValue ? -1 : growing_[At(id)]);
  ShardQuery query(graph_, node, batch_, std::move(inputs), std::move(growing));
  for (const auto* ids : {&node.inputs, &node.outputs}) {
    for (ValueId id : *ids) {
      if (id == kNoValue || !of_pairs_[At(id)]) continue;
      query.Refuse("'" + Escaped(graph_.value(id).name) + "' " + graph_.value(id).shape.ToString() +
                   " has two axes that depend on the batch size");
    }
  }
  const auto bodies = bodies_.find(at);
  if (bodies != bodies_.end() && query.counts())
    query.Refuse("it reads sample indices, which each device counts from its own first sample");
  bodies != bodies_.end() ? bodies->second.InferShards(query) : InferShards(query);
  for (ValueId id : node.inputs) {
    if (id == kNoValue || !differs_[At(id)]) continue;
    query.Refuse("constant '" + Escaped(graph_.value(id).name) + "' " + graph_.value(id).shape.ToString() + " differs between samples");
  }
  if (!InTail(node)) Check(node, query.outputs());
  means_[at] = query.mean();
  for (int k : query.reduced()) again |= RequireWhole(node.inputs[static_cast<size_t>(k)]);
  for (size_t k = 0; k < node.outputs.size(); ++k) {
    const ValueId id = node.outputs[k];
    if (id == kNoValue) continue;
    Shard made = query.outputs()[k];
    if (IsBoundary(node) && made.split()) made.inner = InnerOfGathered(graph_.value(id).shape, made.inner);
    // A value that became whole through an earlier collective needs no other.
    summed_[At(id)] = wanted_[At(id)] && made.partial();
    averaged_[At(id)] = wanted_[At(id)] && made.local();
    combined_[At(id)] = query.combined();
    shards_[At(id)] = summed_[At(id)] || averaged_[At(id)] ? Shard::Whole() : made;
    if (graph_.value(id).next_of != kNoValue && (shards_[At(id)].partial() || shards_[At(id)].local())) again |= RequireWhole(id);
  }
  return again;
}

// A value that the tail returns is the gradient of a gathered one, and has its samples in the same order: that of the gathered values of
// this shape, or `otherwise` if they have several. With the wrong order the readers of the gradient refuse it.
int64_t Replication::InnerOfGathered(const Shape& shape, int64_t otherwise) const {
  std::set<int64_t> inner;
  for (ValueId id : gathered_) {
    if (graph_.value(id).shape != shape) continue;
    if (const Shard& gathered = shard(id); gathered.split()) inner.insert(gathered.InnerOf(shape[gathered.axis], batch_));
  }
  return inner.size() == 1 ? *inner.begin() : otherwise;
}

// Whether a node after the last collective may refuse the batch, so that devices would update their parts of states without learning of it.
// Summed gradients have their collectives after such nodes.
bool Replication::AllReducesEndTooEarly() const {
  const auto keeps = [&](const Node& node) { return AddsToPart(graph_, node) && graph_.value(node.outputs[0]).next_of != kNoValue; };
  if (std::none_of(graph_.nodes.begin(), graph_.nodes.end(), keeps)) return false;
  const std::vector<int> refusing = RefusingNodes(graph_);
  if (refusing.empty()) return false;
  // Each stage of the model has its own collectives.
  if (graph_.nodes[static_cast<size_t>(refusing.back())].device >= 0) return true;
  return std::none_of(graph_.nodes.begin() + refusing.back(), graph_.nodes.end(), [&](const Node& node) {
    return std::any_of(node.outputs.begin(), node.outputs.end(), [&](ValueId id) { return last_in_bucket_.contains(id); });
  });
}

bool Replication::RequireWhole(ValueId id) {
  if (wanted_[At(id)]) return false;
  wanted_[At(id)] = true;
  return true;
}

// Buckets follow the order of the whole graph, so they are equal on every device, including devices that lack some of its nodes. Each stage
// has its own buckets.
void Replication::FillBuckets(int64_t bucket_bytes) {
  struct Bucket {
    std::set<ValueId> values;
    ValueId last = kNoValue;
    int64_t bytes = 0;
  };
  std::map<int, Bucket> open;  // by stage
  const auto close = [&](Bucket& bucket) {
    if (bucket.last != kNoValue) last_in_bucket_.insert(bucket.last);
    bucket = {};
  };
  // A value that is read by anything but an update delays its reader, so it does not wait for later values of the bucket.
  std::vector<bool> urgent(growing_.size(), false);
  for (const Node& node : graph_.nodes) {
    if (node.phase != Phase::kUpdate) ForEachUse(node, [&](ValueId id) { urgent[At(id)] = true; });
  }
  for (const Node& node : graph_.nodes) {
    for (auto& [stage, bucket] : open) {
      if (std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) { return bucket.values.contains(id); })) close(bucket);
    }
    Bucket& bucket = open[node.device];
    bool now = false;
    for (ValueId id : node.outputs) {
      if (!NeedsAllReduce(id)) continue;
      const int64_t own = graph_.value(id).bytes();
      if (bucket.last != kNoValue && bucket.bytes + own > bucket_bytes) close(bucket);
      bucket.values.insert(id);
      bucket.last = id;
      bucket.bytes += own;
      now |= urgent[At(id)] || combined_[At(id)];
    }
    if (now) close(bucket);
  }
  for (auto& [stage, bucket] : open) close(bucket);
}

// Throws if an operator's sharding rule contradicts the shapes.
void Replication::Check(const Node& node, const std::vector<Shard>& made) const {
  for (size_t k = 0; k < made.size(); ++k) {
    const ValueId id = node.outputs[k];
    if (id == kNoValue) continue;
    const int axis = growing_[At(id)];
    if (made[k].split() ? axis == made[k].axis : axis < 0) continue;
    throw Error(ErrorCode::kUnsupported,
                "the batch cannot be divided over devices: the batch axis of '" + Escaped(graph_.value(id).name) +
                    "' does not grow with the batch size",
                Describe(node), "train on one device (name one in --devices)");
  }
}

// Sets the axis along which samples are gathered or scattered. A device without samples has nothing to send, but still takes part in the
// gather.
Node Replication::Boundary(Node node, int64_t samples) const {
  const Shard& divided = shard(InTail(node) ? node.inputs[0] : node.outputs[0]);
  if (divided.split()) {
    const int64_t extent = graph_.value(node.inputs[0]).shape[divided.axis];
    node.attributes.set("axis", int64_t{divided.axis});
    node.attributes.set("outer", extent / (batch_ * divided.InnerOf(extent, batch_)));
  }
  if (divided.split() && samples == 0 && InTail(node)) node.inputs[0] = kNoValue;
  return node;
}

// Adds `node` to a device's graph. A device without samples adds zeros, and takes part in the preceding collective like the others.
void Replication::AddToPart(DeviceGraph& device, Node node, int64_t samples) const {
  const ValueId added = node.inputs[AddedOperand(graph_, node)];
  ValueId own = added;
  if (samples == 0) own = device.builder().Zeros(device.graph().type(added));
  // A value that depends on no sample is the same on every device, and must count once.
  else if (shard(added).whole())
    own = device.Weighted(added);
  if (synchronizes_parts_) own = device.AfterAllReduce(own, node.device);
  std::replace(node.inputs.begin(), node.inputs.end(), added, own);
  device.Add(std::move(node), false);
}

// Gives the values of the trunk the shapes, and its constants the elements, that this number of samples has.
void Replication::ResizeValues(Graph& graph, int64_t samples) const {
  for (ValueId id = 0; id < graph_.num_values(); ++id) {
    if (of_tail_[At(id)]) continue;
    if (growing_[At(id)] >= 0) graph.value(id).shape = dependence_.ShapeAt(id, samples);
    if (graph.value(id).role == Role::kConst && graph.data(id) != nullptr && !numbers_.only_number(id)) {
      graph.set_data(id, dependence_.ConstantAt(id, samples, !shard(id).steps.empty()));
    }
  }
}

// Whether a device without samples has the value.
bool Replication::IsKept(const DeviceGraph& device, ValueId id) const { return id == kNoValue || (shard(id).whole() && !device.lacks(id)); }

// Whether a device without samples can run the node: it depends on no sample.
bool Replication::IsWhole(const DeviceGraph& device, const Node& node) const {
  const auto kept = [&](ValueId id) { return IsKept(device, id); };
  return std::all_of(node.inputs.begin(), node.inputs.end(), kept) && std::all_of(node.outputs.begin(), node.outputs.end(), kept) &&
         std::none_of(node.outputs.begin(), node.outputs.end(), [&](ValueId id) { return NeedsAllReduce(id); });
}

// Adds node `at` of the whole graph, whose outputs are the device's parts where devices combine them. `whole`: IsWhole(node).
void Replication::AddNode(DeviceGraph& device, size_t at, Node node, bool whole, int64_t samples) const {
  if (IsBoundary(node)) return device.Add(Boundary(std::move(node), samples), false);
  if (InTail(node)) return device.Add(std::move(node), false);
  if (AddsToPart(graph_, graph_.nodes[at])) return AddToPart(device, std::move(node), samples);
  if (samples > 0) {
    node.attributes = dependence_.AttributesAt(at, samples);
    numbers_.KeepNumbers(device.builder(), at, node);
  }
  // Devices that compute the same must compute the same bits.
  if (whole) node.attributes.erase("deterministic");
  if (samples == 0) return whole ? device.Add(std::move(node), false) : LeaveOut(device, node);
  if (const auto bodies = bodies_.find(at); bodies != bodies_.end()) bodies->second.ToDevice(node, device.builder(), samples);
  const ValueId out = graph_.nodes[at].outputs[0];
  const bool drawn = DrawsRandom(node) && out != kNoValue && shard(out).split();
  drawn ? device.AddRandom(std::move(node), graph_, shard(out)) : device.Add(std::move(node), means_[at]);
}

// Leaves out a node that depends on samples, on a device without any. Throws for the next value of a state: devices would differ in it.
void Replication::LeaveOut(DeviceGraph& device, const Node& node) const {
  for (ValueId id : node.outputs) {
    if (id == kNoValue || NeedsAllReduce(id)) continue;
    device.SetLacks(id);
    if (!shard(id).whole() || graph_.value(id).next_of == kNoValue) continue;
    throw Error(
        ErrorCode::kUnsupported,
        "the batch cannot be divided over devices: a device without samples would not compute '" + Escaped(graph_.value(id).name) + "'",
        Describe(node), "use at most as many devices as samples");
  }
}

// Combines the devices' values of `id`, a result of the node; `own` is the device's, kNoValue if it has no samples.
void Replication::Combine(DeviceGraph& device, const Node& node, ValueId id, ValueId own, int64_t samples) const {
  if (combined_[At(id)]) {
    const ValueId rows = device.AllGatherRow(id, own, each_, node.origin, node.device);
    device.EmitAllReduce(node.device);
    return device.Combine(node.op, rows, id);
  }
  ValueId part = own == kNoValue ? device.builder().Zeros(device.graph().type(id)) : own;
  if (averaged_[At(id)] && samples > 0) part = device.Weighted(part);
  const auto gradient = gradient_of_.find(id);
  device.AddToAllReduce(id, part, gradient == gradient_of_.end() ? "" : gradient->second, node.origin, node.device);
  if (last_in_bucket_.contains(id)) device.EmitAllReduce(node.device);
}

std::unique_ptr<Graph> Replication::ForDevice(int64_t samples) const {
  DeviceGraph device(graph_, batch_, samples, rules_);
  Graph& graph = device.graph();
  if (samples > 0) ResizeValues(graph, samples);
  size_t made = 0;  // number of nodes of the device
  for (size_t i = 0; i < graph_.nodes.size(); ++i) {
    Node& node = device.nodes()[i];
    device.builder().set_phase(node.phase);
    const bool whole = IsWhole(device, node);
    std::vector<std::pair<ValueId, ValueId>> parts;  // a value that devices combine, and this device's part of it
    for (ValueId& id : node.outputs) {
      if (!NeedsAllReduce(id)) continue;
      parts.emplace_back(id, samples > 0 ? device.Part(id) : kNoValue);
      if (samples > 0) id = parts.back().second;
    }
    AddNode(device, i, std::move(node), whole, samples);
    for (const auto& [id, own] : parts) Combine(device, graph_.nodes[i], id, own, samples);
    // Nodes that were added for the node are on its stage.
    for (; made < graph.nodes.size(); ++made) graph.nodes[made].device = graph_.nodes[i].device;
  }
  if (samples == 0) std::erase_if(graph.outputs, [&](ValueId id) { return !IsKept(device, id); });
  std::unique_ptr<Graph> taken = device.Take();
  ExpectTypesOf(*taken, rules_, samples);
  return taken;
}

}  // namespace gradloom
