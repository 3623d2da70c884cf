#include "compiler/passes/gradient/differentiate_regions.h"

#include <algorithm>
#include <memory>
#include <set>
#include <string>

#include "compiler/passes/simplify.h"

namespace gradloom {
namespace {

// A trip bound above this is not meant literally by the file.
constexpr int64_t kMaxRecordedIterations = int64_t{1} << 24;

// Returns a copy of the body in the backward phase, which recomputes its values for the gradient.
std::unique_ptr<Graph> Again(const Graph& body) {
  std::unique_ptr<Graph> again = body.Clone();
  for (Node& node : again->nodes) node.phase = Phase::kBackward;
  again->outputs.clear();
  return again;
}

ValueId AddInput(Graph& graph, const std::string& name, const ValueType& type) {
  const ValueId id = graph.AddValue(name, type.dtype, type.shape, Role::kInput);
  graph.inputs.push_back(id);
  return id;
}

Node NodeLike(const Node& node, const std::string& op) {
  Node made{.op = op, .domain = std::string(kGradloomDomain), .phase = Phase::kBackward};
  made.origin = node.origin;
  return made;
}

// Appends the node, with outputs of these types.
std::vector<ValueId> Append(Graph& graph, Node node, const std::vector<ValueType>& types) {
  for (const ValueType& type : types)
    node.outputs.push_back(graph.AddValue(node.origin + "/" + node.op, type.dtype, type.shape, Role::kGradient));
  return graph.AddNode(std::move(node)).outputs;
}

GraphBuilder BackwardBuilder(Graph& body, const TypeRules& rules, const std::string& origin) {
  GraphBuilder builder(body, rules);
  builder.set_phase(Phase::kBackward);
  builder.set_origin(origin);
  return builder;
}

// Adds to an existing seed: a value that is an output twice gets the sum of both gradients.
void AddSeed(GraphBuilder& builder, Gradients& seeds, ValueId value, ValueId gradient) {
  const auto [at, fresh] = seeds.emplace(value, gradient);
  if (!fresh) at->second = builder.Add(at->second, gradient);
}

class IfGradient {
 public:
  IfGradient(GraphBuilder& builder, const Node& node, const std::vector<ValueId>& output_gradients, const std::vector<bool>& needed,
             const Backpropagation& backpropagate)
      : b_(builder), node_(node), output_gradients_(output_gradients), needed_(needed), backpropagate_(backpropagate) {}

  std::vector<ValueId> Run() {
    Node made = NodeLike(node_, "If");
    made.inputs = node_.inputs;
    for (ValueId id : output_gradients_) {
      if (id != kNoValue) made.inputs.push_back(id);
    }
    std::vector<ValueType> types;
    for (size_t i = 1; i < needed_.size(); ++i) {
      if (needed_[i]) types.push_back(b_.graph().type(node_.inputs[i]));
    }
    for (const Region& region : node_.regions) made.regions.push_back({region.attribute, Branch(*region.body)});
    const std::vector<ValueId> gradients = Append(b_.graph(), std::move(made), types);
    std::vector<ValueId> result(node_.inputs.size(), kNoValue);
    size_t next = 0;
    for (size_t i = 1; i < needed_.size(); ++i) {
      if (needed_[i]) result[i] = gradients[next++];
    }
    return result;
  }

 private:
  std::shared_ptr<Graph> Branch(const Graph& body) {
    std::shared_ptr<Graph> graph = Again(body);
    GraphBuilder inner = BackwardBuilder(*graph, b_.rules(), node_.origin);
    Gradients seeds;
    for (size_t i = 0; i < output_gradients_.size(); ++i) {
      if (output_gradients_[i] == kNoValue) continue;
      AddSeed(inner, seeds, body.outputs[i], AddInput(*graph, "gradient", b_.graph().type(output_gradients_[i])));
    }
    std::vector<ValueId> wanted;
    for (size_t i = 0; i < body.inputs.size(); ++i) {
      if (needed_[i + 1]) wanted.push_back(body.inputs[i]);
    }
    const Gradients gradients = backpropagate_(inner, seeds, wanted);
    for (ValueId id : wanted) {
      const auto found = gradients.find(id);
      graph->outputs.push_back(found != gradients.end() ? found->second : inner.Zeros(graph->type(id)));
    }
    RemoveDeadNodes(*graph);
    return graph;
  }

  GraphBuilder& b_;
  const Node& node_;
  const std::vector<ValueId>& output_gradients_;
  const std::vector<bool>& needed_;
  const Backpropagation& backpropagate_;
};

// Builds the gradient of a loop, which is a loop through the iterations backwards. The inputs of its body are, in this order: the iteration
// number; the gradients of loop-carried values; the accumulated gradients of values that the loop only reads; and then inputs that are only
// read: the kept rows, and what the original loop only read.
class LoopGradient {
 public:
  LoopGradient(GraphBuilder& builder, size_t position, const std::vector<ValueId>& output_gradients, const std::vector<bool>& needed,
               const Backpropagation& backpropagate)
      : b_(builder),
        position_(position),
        node_(builder.graph().nodes[position]),
        body_(*node_.regions[0].body),
        output_gradients_(output_gradients),
        needed_(needed),
        backpropagate_(backpropagate),
        carried_(static_cast<size_t>(node_.attributes.Int("carried", 0))),
        bound_(node_.attributes.Int("trip_bound", 0)) {
    if (bound_ > kMaxRecordedIterations) bound_ = node_.attributes.Int("kept_bound", 0);
  }

  std::vector<ValueId> Run() {
    FindActive();
    MakeBody();
    RecordIterations();
    return MakeLoop();
  }

 private:
  Graph& graph() { return b_.graph(); }
  ValueId operand(size_t input) const { return node_.inputs[input + 1]; }

  // Determines which of the body's inputs have a gradient: the wanted ones, and loop-carried values that depend on one that has.
  void FindActive() {
    active_.assign(body_.inputs.size(), false);
    for (size_t i = 0; i < active_.size(); ++i) active_[i] = needed_[i + 1];
    for (bool grows = true; grows;) {
      grows = false;
      std::set<ValueId> depends;
      for (size_t i = 0; i < active_.size(); ++i) {
        if (active_[i]) depends.insert(body_.inputs[i]);
      }
      for (const Node& node : body_.nodes) {
        bool any = false;
        ForEachUse(node, [&](ValueId id) { any |= depends.contains(id); });
        if (any) depends.insert(node.outputs.begin(), node.outputs.end());
      }
      for (size_t i = 0; i < carried_; ++i) {
        if (active_[i] || !depends.contains(body_.outputs[i]) || !IsFloating(body_.value(body_.inputs[i]).dtype)) continue;
        active_[i] = grows = true;
      }
    }
  }

  void MakeBody() {
    result_ = Again(body_);
    result_->inputs.clear();
    GraphBuilder inner = BackwardBuilder(*result_, b_.rules(), node_.origin);
    round_ = AddInput(*result_, "round", {DType::kInt64, {}});
    Gradients seeds;
    std::vector<ValueId> wanted, sums;
    for (size_t i = 0; i < carried_; ++i) {
      if (!active_[i]) continue;
      AddSeed(inner, seeds, body_.outputs[i], AddInput(*result_, "gradient", body_.type(body_.inputs[i])));
      wanted.push_back(body_.inputs[i]);
    }
    const size_t num_carried = wanted.size();
    for (size_t i = carried_; i < active_.size(); ++i) {
      if (!active_[i]) continue;
      sums.push_back(AddInput(*result_, "sum", body_.type(body_.inputs[i])));
      wanted.push_back(body_.inputs[i]);
    }
    const Gradients gradients = backpropagate_(inner, seeds, wanted);
    const auto gradient_of = [&](ValueId id) {
      const auto found = gradients.find(id);
      return found == gradients.end() ? kNoValue : found->second;
    };
    result_->outputs = {inner.Sub(round_, inner.Constant(Tensor::Scalar<int64_t>(1)))};
    for (size_t k = 0; k < wanted.size(); ++k) {
      const ValueId gradient = gradient_of(wanted[k]);
      if (k >= num_carried) {
        result_->outputs.push_back(gradient == kNoValue ? sums[k - num_carried] : Summed(inner, sums[k - num_carried], gradient));
      } else {
        result_->outputs.push_back(gradient != kNoValue ? gradient : inner.Zeros(result_->type(wanted[k])));
      }
    }
    RemoveDeadNodes(*result_);
  }

  // If each iteration reads its own row of a value, the gradient of a row comes from one iteration: it is written to that row, and the
  // other rows stay unchanged.
  ValueId Summed(GraphBuilder& inner, ValueId sum, ValueId gradient) {
    const auto found = std::find_if(result_->nodes.begin(), result_->nodes.end(),
                                    [&](const Node& node) { return !node.outputs.empty() && node.outputs[0] == gradient; });
    if (found == result_->nodes.end()) return inner.Add(sum, gradient);
    const Node node = *found;
    if (node.op == "Add" && node.domain.empty() && inner.shape(node.inputs[0]) == inner.shape(gradient) &&
        inner.shape(node.inputs[1]) == inner.shape(gradient)) {
      return Summed(inner, Summed(inner, sum, node.inputs[0]), node.inputs[1]);
    }
    const bool row = node.op == "GatherGrad" && node.attributes.Int("axis", 0) == 0 && inner.shape(node.inputs[0]).rank() == 0 &&
                     inner.dtype(node.inputs[0]) == DType::kInt64;
    if (!row) return inner.Add(sum, gradient);
    const ValueId place = node.inputs[0], before = inner.Op("Gather", {sum, place}, {{"axis", int64_t{0}}});
    return inner.Own("SetRow", {sum, place, inner.Add(before, node.inputs[1])});
  }

  // Makes the loop keep the values at the start of each iteration that the gradient reads, one row per iteration, and count its iterations.
  void RecordIterations() {
    std::vector<bool> read(static_cast<size_t>(result_->num_values()));
    for (const Node& node : result_->nodes) ForEachUse(node, [&](ValueId id) { read[static_cast<size_t>(id)] = true; });
    for (ValueId id : result_->outputs) read[static_cast<size_t>(id)] = true;
    const std::shared_ptr<Graph> counting = body_.Clone();
    Node loop = node_;
    loop.regions[0].body = counting;
    const size_t before = graph().nodes.size();
    const Phase phase = b_.phase();
    b_.set_phase(Phase::kForward);
    std::vector<ValueId> inner_inputs, operands, results;
    std::vector<Node> reads;  // of the gradient's body
    bool keeps = false;
    const auto carry = [&](ValueId start, ValueId inside, ValueId next) {
      operands.push_back(start);
      inner_inputs.push_back(inside);
      results.push_back(next);
      const Value& value = counting->value(inside);
      loop.outputs.push_back(graph().AddValue(node_.origin + "/kept", value.dtype, value.shape, Role::kActivation));
      return loop.outputs.back();
    };
    GraphBuilder counter(*counting, b_.rules());
    counter.set_origin(node_.origin);
    const ValueId count = counting->AddValue("count", DType::kInt64, {}, Role::kInput);
    trips_ = carry(b_.Constant(Tensor::Scalar<int64_t>(0)), count, kNoValue);
    for (size_t i = 0; i < carried_; ++i) {
      const ValueId id = body_.inputs[i];
      if (!read[static_cast<size_t>(id)]) continue;
      ValueType type = body_.type(id);
      std::vector<int64_t> dims{bound_};
      keeps = true;
      dims.insert(dims.end(), type.shape.begin(), type.shape.end());
      type.shape = Shape(dims);
      const ValueId rows = counting->AddValue("kept", type.dtype, type.shape, Role::kInput);
      kept_.push_back(carry(b_.Zeros(type), rows, counter.Own("SetRow", {rows, count, id})));
      // The body of the gradient reads the kept row.
      Node gather{.op = "Gather", .inputs = {AddInput(*result_, "kept", type), round_}, .outputs = {id}, .phase = Phase::kBackward};
      gather.attributes.set("axis", int64_t{0});
      gather.origin = node_.origin;
      reads.push_back(std::move(gather));
    }
    results[0] = counter.Add(count, counter.Constant(Tensor::Scalar<int64_t>(1)));
    for (size_t i = carried_; i < body_.inputs.size(); ++i) {
      if (!read[static_cast<size_t>(body_.inputs[i])]) continue;
      result_->inputs.push_back(body_.inputs[i]);
      only_read_.push_back(operand(i));
    }
    for (const Node& node : reads) result_->value(node.outputs[0]).role = Role::kActivation;
    result_->nodes.insert(result_->nodes.begin(), reads.begin(), reads.end());
    const auto at = [&](auto& list) { return list.begin() + static_cast<std::ptrdiff_t>(carried_); };
    loop.inputs.insert(at(loop.inputs) + 1, operands.begin(), operands.end());
    counting->inputs.insert(at(counting->inputs), inner_inputs.begin(), inner_inputs.end());
    counting->outputs.insert(counting->outputs.end(), results.begin(), results.end());
    loop.attributes.set("carried", static_cast<int64_t>(carried_ + operands.size()));
    if (keeps) loop.attributes.set("trip_bound", bound_);
    b_.set_phase(phase);
    graph().nodes[position_] = std::move(loop);
    // The initial values of the rows must come before the loop.
    std::rotate(graph().nodes.begin() + static_cast<std::ptrdiff_t>(position_), graph().nodes.begin() + static_cast<std::ptrdiff_t>(before),
                graph().nodes.end());
  }

  std::vector<ValueId> MakeLoop() {
    Node loop = NodeLike(node_, "Loop");
    const ValueId one = b_.Constant(Tensor::Scalar<int64_t>(1));
    loop.inputs = {trips_, b_.Sub(trips_, one)};
    std::vector<ValueType> types{{DType::kInt64, {}}};
    std::vector<size_t> of;
    for (size_t i = 0; i < active_.size(); ++i) {
      if (!active_[i]) continue;
      const ValueType type = body_.type(body_.inputs[i]);
      const ValueId given = i < carried_ ? output_gradients_[i] : kNoValue;
      loop.inputs.push_back(given != kNoValue ? given : b_.Zeros(type));
      types.push_back(type);
      of.push_back(i);
    }
    loop.inputs.insert(loop.inputs.end(), kept_.begin(), kept_.end());
    loop.inputs.insert(loop.inputs.end(), only_read_.begin(), only_read_.end());
    loop.attributes = {{"carried", static_cast<int64_t>(types.size())},
                       {"conditional", int64_t{0}},
                       {"trip_bound", node_.attributes.Int("trip_bound", 0)},
                       {"kept_bound", bound_}};
    loop.regions.push_back({"body", std::move(result_)});
    const std::vector<ValueId> made = Append(graph(), std::move(loop), types);
    std::vector<ValueId> result(node_.inputs.size(), kNoValue);
    for (size_t k = 0; k < of.size(); ++k) result[of[k] + 1] = made[k + 1];
    return result;
  }

  GraphBuilder& b_;
  const size_t position_;
  const Node node_;  // the loop before this pass
  const Graph& body_;
  const std::vector<ValueId>& output_gradients_;
  const std::vector<bool>& needed_;
  const Backpropagation& backpropagate_;
  const size_t carried_;
  int64_t bound_;             // iterations to keep
  std::vector<bool> active_;  // by input of the body
  std::shared_ptr<Graph> result_;
  ValueId round_ = kNoValue;               // in the gradient's body
  ValueId trips_ = kNoValue;               // the number of iterations that ran
  std::vector<ValueId> kept_, only_read_;  // values that the gradient's loop reads
};

}  // namespace

std::vector<ValueId> DifferentiateRegions(GraphBuilder& builder, size_t position, const std::vector<ValueId>& output_gradients,
                                          const std::vector<bool>& needed, const Backpropagation& backpropagate) {
  const Node node = builder.graph().nodes[position];
  builder.set_origin(node.origin);
  if (node.op == "If") return IfGradient(builder, node, output_gradients, needed, backpropagate).Run();
  return LoopGradient(builder, position, output_gradients, needed, backpropagate).Run();
}

}  // namespace gradloom
