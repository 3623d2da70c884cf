#include "compiler/passes/devices/replicate_bodies.h"

#include <algorithm>
#include <string>
#include <utility>

#include "compiler/passes/devices/batch_numbers.h"
#include "compiler/passes/devices/place_devices.h"
#include "compiler/passes/schedule/program_plan.h"
#include "compiler/passes/update/step_params.h"
#include "runtime/base/error.h"

namespace gradloom {
namespace {

size_t At(ValueId id) { return static_cast<size_t>(id); }

// Returns the sharding of a value that is `one` or `other` at run time, so that devices can bring it into the same form in both cases.
Shard Either(const ShardQuery& query, Shard one, Shard other, DType dtype) {
  if (one.local() || other.local()) query.Refuse("it produces a statistic that each device computes over its own samples");
  if (one == other) return one;
  if (!one.partial() && !other.partial()) return Joined(query, one, other);
  if (one.split() || other.split()) query.Refuse("its result is per sample in one branch or iteration, and a sum over samples in another");
  if (!IsFloating(dtype))
    query.Refuse("its result is an integer that is a sum over samples in one branch or iteration, and not in another");
  return Shard::Partial();
}

}  // namespace

// One body, and how its values are sharded.
class ReplicatedBody {
 public:
  ReplicatedBody(const Graph& graph, const BatchDependence& dependence, int64_t batch, const TypeRules& rules)
      : graph_(graph), dependence_(dependence), numbers_(graph, dependence, rules), batch_(batch), rules_(rules) {
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      if (!graph.nodes[i].regions.empty()) nested_.emplace(i, ReplicatedBodies(graph.nodes[i], i, dependence, batch, rules));
    }
  }

  // Propagates the sharding of the inputs to the outputs. Returns false if partial inputs must be summed before.
  bool Walk(const std::vector<Shard>& inputs, std::vector<Shard>& outputs) {
    shards_.assign(static_cast<size_t>(graph_.num_values()), {});
    means_.assign(graph_.nodes.size(), false);
    apart_.assign(graph_.nodes.size(), {});
    for (const Value& value : graph_.values()) {
      const int axis = dependence_.growing(value.id);
      if (axis < 0 || value.role != Role::kConst) continue;
      shards_[At(value.id)] = Shard::Split(axis, std::max<int64_t>(dependence_.PositionsPerSample(value.id), 0));
    }
    for (size_t i = 0; i < inputs.size(); ++i) shards_[At(graph_.inputs[i])] = inputs[i];
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (Step(i)) continue;
      if (std::any_of(inputs.begin(), inputs.end(), [](const Shard& shard) { return shard.partial(); })) return false;
      QueryOf(i).Refuse("it needs a sum over the samples of all devices inside a branch or a loop");
    }
    outputs.clear();
    for (ValueId id : graph_.outputs) outputs.push_back(shards_[At(id)]);
    return true;
  }

  std::shared_ptr<Graph> ForDevice(int64_t samples, const std::vector<bool>& apart) const {
    std::shared_ptr<Graph> made = graph_.Clone();
    std::vector<Node> nodes = std::exchange(made->nodes, {});
    GraphBuilder builder(*made, rules_);
    for (ValueId id = 0; id < graph_.num_values(); ++id) {
      if (dependence_.growing(id) >= 0) made->value(id).shape = dependence_.ShapeAt(id, samples);
      if (made->value(id).role == Role::kConst && made->data(id) != nullptr && !numbers_.only_number(id))
        made->set_data(id, dependence_.ConstantAt(id, samples));
    }
    for (size_t i = 0; i < nodes.size(); ++i) {
      nodes[i].attributes = dependence_.AttributesAt(i, samples);
      numbers_.KeepNumbers(builder, i, nodes[i]);
      for (size_t k : apart_[i]) nodes[i].inputs[k] = DeviceShareOf(builder, nodes[i].inputs[k], samples, batch_);
      if (const auto bodies = nested_.find(i); bodies != nested_.end()) bodies->second.ToDevice(nodes[i], builder, samples);
      const ValueId out = graph_.nodes[i].outputs[0];
      if (DrawsRandom(nodes[i]) && out != kNoValue && shards_[At(out)].split())
        DrawForSamples(graph_, *made, nodes[i], shards_[At(out)], samples, batch_);
      means_[i] ? AddPartOfMean(builder, std::move(nodes[i]), samples, batch_) : void(made->AddNode(std::move(nodes[i])));
    }
    for (size_t k = 0; k < apart.size(); ++k) {
      if (apart[k]) made->outputs[k] = DeviceShareOf(builder, made->outputs[k], samples, batch_);
    }
    ExpectTypesOf(*made, rules_, samples);
    return made;
  }

  const Graph& graph() const { return graph_; }

 private:
  ShardQuery QueryOf(size_t i) const {
    const Node& node = graph_.nodes[i];
    std::vector<Shard> inputs;
    std::vector<int> growing;
    for (ValueId id : node.inputs) inputs.push_back(id == kNoValue ? Shard::Whole() : shards_[At(id)]);
    for (size_t k : apart_[i]) inputs[k] = Shard::Partial();
    for (ValueId id : node.outputs) growing.push_back(id == kNoValue ? -1 : dependence_.growing(id));
    return {graph_, node, batch_, std::move(inputs), std::move(growing)};
  }

  // Returns the whole operands of a node whose other operands are partial sums. Each device adds its share of them, since a body cannot sum
  // over devices.
  std::vector<size_t> WholeAddends(const Node& node) const {
    const bool row = node.op == "SetRow" && node.domain == kGradloomDomain;
    if (!row && (!node.domain.empty() || (node.op != "Add" && node.op != "Sub" && node.op != "Sum"))) return {};
    std::vector<size_t> whole;
    bool partial = false;
    for (size_t k = 0; k < node.inputs.size(); ++k) {
      if (row && k == 1) continue;
      const Shard shard = shards_[At(node.inputs[k])];
      if (!shard.partial() && (!shard.whole() || !IsFloating(graph_.value(node.inputs[k]).dtype))) return {};
      if (shard.whole()) whole.push_back(k);
      partial |= shard.partial();
    }
    return partial ? whole : std::vector<size_t>();
  }

  // Propagates through node i. Returns false if the node needs a sum over devices.
  bool Step(size_t i) {
    const Node& node = graph_.nodes[i];
    apart_[i] = WholeAddends(node);
    ShardQuery query = QueryOf(i);
    const auto bodies = nested_.find(i);
    bodies != nested_.end() ? bodies->second.InferShards(query) : InferShards(query);
    if (!query.reduced().empty() || query.combined()) return false;
    means_[i] = query.mean();
    for (size_t k = 0; k < node.outputs.size(); ++k) {
      if (node.outputs[k] == kNoValue) continue;
      const Shard made = query.outputs()[k];
      if (made.split() != (query.growing(static_cast<int>(k)) >= 0) || (made.split() && made.axis != query.growing(static_cast<int>(k))))
        query.Refuse("the batch axis of its result does not grow with the batch size");
      shards_[At(node.outputs[k])] = made;
    }
    return true;
  }

  const Graph& graph_;
  const BatchDependence& dependence_;
  BatchNumbers numbers_;
  const int64_t batch_;
  const TypeRules& rules_;
  std::map<size_t, ReplicatedBodies> nested_;  // by position in graph.nodes
  std::vector<Shard> shards_;                  // by value id
  std::vector<bool> means_;                    // by position in graph.nodes: a mean over samples
  std::vector<std::vector<size_t>> apart_;     // by position: operands of which a device takes its share
};

ReplicatedBodies::ReplicatedBodies(const Node& node, size_t position, const BatchDependence& around, int64_t batch, const TypeRules& rules)
    : loop_(node.op == "Loop"), batch_(batch), start_becomes_partial_(static_cast<size_t>(node.attributes.Int("carried", 0))) {
  for (size_t r = 0; r < node.regions.size(); ++r) {
    const Graph& body = *node.regions[r].body;
    bodies_.emplace_back(body, around.body(position, r), batch, rules);
    result_becomes_partial_.emplace_back(body.outputs.size());
  }
}
ReplicatedBodies::ReplicatedBodies(ReplicatedBodies&&) noexcept = default;
ReplicatedBodies::~ReplicatedBodies() = default;

// Returns the sharding by body and output. Inputs that a body needs whole become whole.
std::vector<std::vector<Shard>> ReplicatedBodies::Walk(ShardQuery& query, std::vector<Shard>& inputs) {
  std::vector<std::vector<Shard>> results(bodies_.size());
  for (size_t r = 0; r < bodies_.size(); ++r) {
    if (bodies_[r].Walk(inputs, results[r])) continue;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!inputs[i].partial()) continue;
      const int operand = static_cast<int>(i) + 1;
      if (!query.given(operand).partial() || query.reduced().contains(operand))
        query.Refuse("an iteration needs the sum over all devices of a result of earlier iterations");
      inputs[i] = query.in(operand);
    }
    return Walk(query, inputs);
  }
  return results;
}

void ReplicatedBodies::InferShards(ShardQuery& query) {
  if (query.has(0)) query.ExpectWhole(0);
  std::vector<Shard> inputs;
  for (int i = 1; i < query.num_inputs(); ++i) inputs.push_back(query.given(i).local() ? query.in(i) : query.given(i));
  std::vector<std::vector<Shard>> results = Walk(query, inputs);
  std::vector<Shard> made = results[0];
  const Graph& body = bodies_[0].graph();
  const auto dtype = [&](size_t k) { return body.value(body.outputs[k]).dtype; };
  if (!loop_) {
    for (size_t k = 0; k < made.size(); ++k) made[k] = Either(query, results[0][k], results[1][k], dtype(k));
  }
  // A loop-carried value must have the same sharding before the first iteration and after each one.
  for (bool again = loop_; again;) {
    again = false;
    for (size_t k = 0; k < made.size(); ++k) {
      made[k] = Either(query, inputs[k], results[0][k], dtype(k));
      again |= made[k] != inputs[k];
      inputs[k] = made[k];
    }
    if (again) results = Walk(query, inputs);
  }
  if (loop_ && query.attributes().Int("conditional", 0) != 0 && !made[0].whole())
    query.Refuse("its condition depends on the samples of each device");
  for (size_t k = 0; k < made.size(); ++k) {
    query.set(static_cast<int>(k), made[k]);
    if (loop_) start_becomes_partial_[k] = made[k].partial() && !query.given(static_cast<int>(k) + 1).partial();
    for (size_t r = 0; r < bodies_.size(); ++r) result_becomes_partial_[r][k] = made[k].partial() && !results[r][k].partial();
  }
}

void ReplicatedBodies::ToDevice(Node& node, GraphBuilder& builder, int64_t samples) const {
  for (size_t k = 0; k < start_becomes_partial_.size(); ++k) {
    if (start_becomes_partial_[k]) node.inputs[k + 1] = DeviceShareOf(builder, node.inputs[k + 1], samples, batch_);
  }
  bool draws = false;
  for (size_t r = 0; r < bodies_.size(); ++r) {
    node.regions[r].body = bodies_[r].ForDevice(samples, result_becomes_partial_[r]);
    draws = draws || node.regions[r].body->Find(kStepFirst) != kNoValue;
  }
  if (!draws) return;
  // All bodies have the same inputs.
  for (Region& region : node.regions) StepParam(*region.body, kStepFirst);
  node.inputs.push_back(StepParam(builder.graph(), kStepFirst));
}

bool DrawsRandom(const Node& node) {
  const Op* op = FindOp(node.domain, node.op);
  return op != nullptr && op->has(kRandom);
}

void DrawForSamples(const Graph& whole, Graph& graph, Node& node, const Shard& shard, int64_t samples, int64_t batch) {
  const Op& op = *FindOp(node.domain, node.op);
  const Shape drawn = op.drawn != nullptr ? op.drawn(whole, node) : whole.value(node.outputs[0]).shape;
  int64_t together = shard.InnerOf(drawn[shard.axis], batch);
  for (int i = shard.axis + 1; i < drawn.rank(); ++i) together *= drawn[i];
  node.attributes.set("samples", std::vector<int64_t>{batch, samples, together});
  while (node.inputs.back() == kNoValue) node.inputs.pop_back();
  node.inputs.push_back(StepParam(graph, kStepFirst));
}

namespace {

Node CastNode(ValueId from, ValueId to, DType dtype, Phase phase, const std::string& origin) {
  Node cast{.op = "Cast", .inputs = {from}, .outputs = {to}, .phase = phase, .origin = origin};
  cast.attributes.set("to", static_cast<int64_t>(dtype));
  return cast;
}

}  // namespace

void AddPartOfMean(GraphBuilder& builder, Node node, int64_t samples, int64_t batch) {
  Graph& graph = builder.graph();
  const Value out = graph.value(node.outputs[0]);
  const int64_t here = graph.value(node.inputs[0]).shape.elements() / std::max<int64_t>(out.shape.elements(), 1);
  const double count = static_cast<double>(here) / static_cast<double>(samples) * static_cast<double>(batch);
  // A sum over many elements may be beyond what 16 bits hold, while the mean is not.
  const bool narrow = Is16BitFloat(out.dtype);
  const DType dtype = narrow ? DType::kFloat32 : out.dtype;
  const ValueId sum = graph.AddValue(out.name + "/sum", dtype, out.shape, out.role);
  const ValueId result = node.outputs[0];
  const Phase phase = node.phase;
  const std::string origin = node.origin;
  if (narrow) {
    const Value in = graph.value(node.inputs[0]);
    const ValueId wide = graph.AddValue(in.name + "/wide", dtype, in.shape, in.role);
    graph.AddNode(CastNode(node.inputs[0], wide, dtype, phase, origin));
    node.inputs[0] = wide;
  }
  node.op = "ReduceSum";
  node.outputs = {sum};
  graph.AddNode(std::move(node));
  const ValueId share = narrow ? graph.AddValue(out.name + "/share", dtype, out.shape, out.role) : result;
  Node scaled{.op = "Mul", .inputs = {sum, builder.Scalar(1 / count, dtype)}, .outputs = {share}, .phase = phase, .origin = origin};
  graph.AddNode(std::move(scaled));
  if (narrow) graph.AddNode(CastNode(share, result, out.dtype, phase, origin));
}

ValueId DeviceShareOf(GraphBuilder& builder, ValueId whole, int64_t samples, int64_t batch) {
  return builder.Scale(whole, static_cast<double>(samples) / static_cast<double>(batch));
}

void ExpectTypesOf(const Graph& graph, const TypeRules& rules, int64_t samples) {
  for (const Node& node : graph.nodes) {
    if (IsBoundary(node)) continue;
    const std::vector<ValueType> types = rules.Infer(graph, node);
    for (size_t k = 0; k < node.outputs.size(); ++k) {
      if (node.outputs[k] == kNoValue || types[k] == graph.type(node.outputs[k])) continue;
      throw Error(ErrorCode::kUnsupported,
                  "the batch cannot be divided over devices: with " + std::to_string(samples) + " samples '" +
                      Escaped(graph.value(node.outputs[k]).name) + "' is " + types[k].ToString() + ", not " +
                      graph.type(node.outputs[k]).ToString(),
                  Describe(node), "train on one device (name one in --devices)");
    }
  }
}

}  // namespace gradloom
