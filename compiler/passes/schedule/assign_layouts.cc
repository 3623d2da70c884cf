#include "compiler/passes/schedule/assign_layouts.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compiler/ops/op.h"
#include "compiler/passes/memory/place_state.h"
#include "compiler/passes/schedule/choose_kernels.h"
#include "compiler/passes/schedule/node_order.h"
#include "kernels/catalog/physical.h"

namespace gradloom {
namespace {

bool IsStateInput(const Value& value) { return (value.role == Role::kParam || value.role == Role::kState) && value.next_of == kNoValue; }

// Returns the simplest layout that places the elements in the same way.
Layout Simplest(const Layout& layout, const Shape& shape) { return SameMemoryOrder(layout, {}, shape) ? Layout{} : layout; }

// What a float32 parameter and its 16-bit copy can both have of a layout: the order of dimensions, and padding of the innermost one.
// Kernels choose other blocks by the size of the elements.
Layout Shareable(const Layout& layout, const Shape& shape) {
  const int innermost = layout.order.empty() ? shape.rank() - 1 : layout.order.back();
  const bool pads = layout.blocks.size() == 1 && layout.blocks[0].dim == innermost;
  return Simplest({.order = layout.order, .blocks = pads ? layout.blocks : std::vector<Layout::Block>{}}, shape);
}

// Whether any kernel of the operators in the graph asks for a layout.
bool AnyPreference(const Graph& graph, DeviceKind device) {
  std::set<std::pair<std::string_view, std::string_view>> preferring;
  for (const KernelRow* row : KernelRows(device)) {
    if (row->prefers != nullptr) preferring.emplace(row->domain, row->op);
  }
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) { return preferring.contains({node.domain, node.op}); });
}

// The layout of a view of other dimensions over a value whose last dimension alone is padded, if the view has the same last dimension.
std::optional<Layout> PaddedView(const Layout& layout, const Shape& from, const Shape& to) {
  if (!layout.order.empty() || layout.blocks.size() != 1 || to.rank() == 0) return std::nullopt;
  const Layout::Block& block = layout.blocks.front();
  if (block.dim != from.rank() - 1 || from[block.dim] != to[to.rank() - 1]) return std::nullopt;
  return Layout{.order = {}, .blocks = {{to.rank() - 1, block.size}}};
}

class LayoutAssigner {
 public:
  LayoutAssigner(Graph& graph, const Plan& whole, ProgramPlan& plan) : graph_(graph), plan_(plan) {
    plan_.layouts.assign(static_cast<size_t>(graph.num_values()), {});
    std::map<std::string, const StateTensor*> known;
    for (const StateTensor& state : whole.state) known.emplace(state.name, &state);
    for (const Value& value : graph.values()) {
      if (value.rounded_of != kNoValue) pairs_.insert({{value.id, value.rounded_of}, {value.rounded_of, value.id}});
      const auto found = IsStateInput(value) ? known.find(StateName(value)) : known.end();
      if (found == known.end()) continue;
      layout(value.id) = found->second->layout;
      decided_.insert(value.id);
    }
  }

  void Run() {
    std::vector<Node> nodes = std::exchange(graph_.nodes, {});
    DecideByCopies(nodes);
    for (Node& node : nodes) {
      Visit(node);
      if (!IsInputCopy(node)) {
        for (ValueId id : node.outputs) phases_[id] = node.phase;
      }
      graph_.nodes.push_back(std::move(node));
    }
    reader_ = nullptr;
    KeepStates();
    for (ValueId& id : graph_.outputs) id = In(id, {});
  }

 private:
  Layout& layout(ValueId id) { return plan_.layouts[static_cast<size_t>(id)]; }

  // If a state has a 16-bit copy, or its first reader converts it to another type, the state takes the order of dimensions that the first
  // reader with a preferred layout wants for the copy. The 16-bit copy of a weight is then made in its kernel's order, or can be divided
  // into its blocks without a transposition, and the gradient arrives in this order. A copy that is state is padded as well, since its
  // update passes over padding; a cast does not.
  void DecideByCopies(const std::vector<Node>& nodes) {
    std::set<ValueId> read;
    std::map<ValueId, ValueId> copied;  // the state, by copy
    for (const auto& [id, other] : pairs_) {
      if (graph_.value(id).rounded_of != kNoValue && !decided_.contains(id) && !decided_.contains(other)) copied.emplace(id, id);
    }
    for (const Node& node : nodes) {
      const bool copies = node.op == "Cast" && node.domain.empty() && IsStateInput(graph_.value(node.inputs[0]));
      if (copies && !read.contains(node.inputs[0]) && !decided_.contains(node.inputs[0])) copied.emplace(node.outputs[0], node.inputs[0]);
      if (node.regions.empty()) DecideByPreference(node, copied);
      ForEachUse(node, [&](ValueId id) { read.insert(id); });
    }
  }

  void DecideByPreference(const Node& node, std::map<ValueId, ValueId>& copied) {
    if (std::none_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) { return copied.contains(id); })) return;
    KernelCall preferred = PlainCall(node);
    const KernelRow* const row = ChooseKernel(plan_.device, preferred);
    if (row == nullptr || row->prefers == nullptr || !row->prefers(preferred)) return;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const auto found = copied.find(node.inputs[i]);
      if (found == copied.end() || preferred.inputs[i].layout.plain()) continue;
      const auto& [dtype, shape, layout] = preferred.inputs[i];
      const bool kept = found->first == found->second;
      Decide(found->second, kept ? Shareable(layout, shape) : Simplest({.order = layout.order, .blocks = {}}, shape));
      copied.erase(found);
    }
  }

  // Sets the layout of a state. A parameter and its copy have one layout, in which the update passes over both.
  void Decide(ValueId id, Layout wanted) {
    decided_.insert(id);
    if (const auto pair = pairs_.find(id); pair != pairs_.end()) {
      const ValueId other = pair->second;
      wanted = decided_.insert(other).second ? Shareable(wanted, graph_.value(id).shape) : layout(other);
      layout(other) = wanted;
    }
    layout(id) = wanted;
  }

  void Visit(Node& node) {
    reader_ = &node;
    const Op* op = FindOp(node.domain, node.op);
    if (!node.regions.empty()) return Apply(node, PlainCall(node));
    if (KeepsElements(node)) {
      const ValueId in = node.inputs[0], out = node.outputs[0];
      const Shape &from = graph_.value(in).shape, &to = graph_.value(out).shape;
      if (from == to) {
        layout(out) = layout(in);
      } else if (const auto padded = PaddedView(layout(in), from, to)) {
        layout(out) = *padded;
      } else {
        node.inputs[0] = In(in, {});
      }
      return;
    }
    if (op != nullptr && op->has(kCollective)) return SharesStates(node) ? AssignShared(node) : Apply(node, PlainCall(node));
    KernelCall call = PlainCall(node);
    if (const KernelRow* row = ChooseKernel(plan_.device, call); row != nullptr && row->prefers != nullptr) {
      KernelCall preferred = call;
      if (row->prefers(preferred)) return Apply(node, preferred);
    }
    const bool updates = op != nullptr && op->has(kUpdate);
    for (const auto& [candidate, shape] : Candidates(node, updates)) {
      KernelCall uniform = Uniform(call, candidate, shape);
      if (ChooseKernel(plan_.device, uniform) == nullptr) continue;
      // Other operands are padded only if fewer bytes would have to be moved otherwise.
      if (updates || candidate.blocks.empty() || ReorderedBytes(node, uniform) <= ReorderedBytes(node, call)) return Apply(node, uniform);
    }
    Apply(node, call);
  }

  // Every device must send the same bytes, whatever its share of the batch: in the parameter's layout, or row-major.
  static bool SharesStates(const Node& node) { return IsAllReduce(node) || IsReduce(node) || IsBroadcast(node); }
  void AssignShared(Node& node) {
    const std::vector<std::string> states = node.attributes.Strings("states");
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId state = graph_.Find(states.at(i));
      const bool has_layout = state != kNoValue && graph_.value(state).shape == graph_.value(node.inputs[i]).shape;
      const Layout wanted = has_layout ? layout(state) : Layout{};
      node.inputs[i] = In(node.inputs[i], wanted);
      if (node.outputs[i] != kNoValue) layout(node.outputs[i]) = wanted;
    }
  }

  KernelCall PlainCall(const Node& node) const {
    const ProgramPlan plain{.device = plan_.device, .threads = plan_.threads};
    return CallOf(graph_, node, plain);
  }

  // The layouts of the node's inputs that are not plain, with their shapes: first those of states, which do not change, then by size. An
  // update uses the parameter's layout even if it is plain: this reorders one gradient instead of two states back and forth.
  std::vector<std::pair<Layout, Shape>> Candidates(const Node& node, bool updates) {
    std::vector<ValueId> inputs;
    for (ValueId id : node.inputs) {
      if (id == kNoValue) continue;
      if (!layout(id).plain() || (updates && decided_.contains(id))) inputs.push_back(id);
    }
    const auto rank = [&](ValueId id) { return std::pair(IsStateInput(graph_.value(id)), graph_.value(id).shape.elements()); };
    std::stable_sort(inputs.begin(), inputs.end(), [&](ValueId a, ValueId b) { return rank(a) > rank(b); });
    std::vector<std::pair<Layout, Shape>> candidates;
    for (ValueId id : inputs) {
      const std::pair<Layout, Shape> candidate(layout(id), graph_.value(id).shape);
      if (std::find(candidates.begin(), candidates.end(), candidate) == candidates.end()) candidates.push_back(candidate);
    }
    return candidates;
  }

  // Gives the layout to every operand that can have it: those of the same rank, and for blocked layouts those of the same shape.
  static KernelCall Uniform(KernelCall call, const Layout& layout, const Shape& shape) {
    for (auto* operands : {&call.inputs, &call.outputs}) {
      for (OperandType& operand : *operands) {
        if (!operand.present()) continue;
        const bool fits = layout.blocks.empty() ? operand.shape.rank() == shape.rank() : operand.shape == shape;
        if (fits) operand.layout = Simplest(layout, operand.shape);
      }
    }
    return call;
  }

  // The bytes of the inputs that the call expects in layouts in which they do not exist yet.
  int64_t ReorderedBytes(const Node& node, const KernelCall& call) {
    int64_t bytes = 0;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId id = node.inputs[i];
      if (id == kNoValue || (IsStateInput(graph_.value(id)) && !decided_.contains(id))) continue;
      const auto& [dtype, shape, wanted] = call.inputs[i];
      const Layout simplest = Simplest(wanted, shape);
      if (layout(id) != simplest && !reordered_.contains({id, simplest.ToString()})) bytes += shape.elements() * DTypeBytes(dtype);
    }
    return bytes;
  }

  // Reorders the inputs into the call's layouts and assigns the layouts of the outputs.
  void Apply(Node& node, const KernelCall& call) {
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] != kNoValue) node.inputs[i] = In(node.inputs[i], Simplest(call.inputs[i].layout, call.inputs[i].shape));
    }
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] != kNoValue) layout(node.outputs[i]) = Simplest(call.outputs[i].layout, call.outputs[i].shape);
    }
  }

  // Returns the value in this layout: itself, or a reordered copy.
  ValueId In(ValueId id, const Layout& wanted) {
    if (IsStateInput(graph_.value(id)) && !decided_.contains(id)) Decide(id, wanted);
    if (layout(id) == wanted) return id;
    const auto [known, fresh] = reordered_.emplace(std::pair(id, wanted.ToString()), kNoValue);
    if (fresh) {
      // Reordering between blocks that do not nest goes through the plain order.
      const bool direct = ChooseKernel(plan_.device, ReorderCall(id, wanted)) != nullptr || layout(id).plain() || wanted.plain();
      known->second = Reordered(direct ? id : In(id, {}), wanted);
    }
    return known->second;
  }

  KernelCall ReorderCall(ValueId id, const Layout& wanted) {
    const Value& value = graph_.value(id);
    return {.op = "Reorder",
            .domain = std::string(kGradloomDomain),
            .attributes = {},
            .inputs = {{value.dtype, value.shape, layout(id)}},
            .outputs = {{value.dtype, value.shape, wanted}},
            .threads = plan_.threads};
  }

  ValueId Reordered(ValueId id, const Layout& wanted) {
    const Value value = graph_.value(id);
    const Role role = value.role == Role::kGradient ? Role::kGradient : Role::kActivation;
    const ValueId made = graph_.AddValue(value.name + "@" + wanted.ToString(), value.dtype, value.shape, role);
    plan_.layouts.push_back(wanted);
    Node node{.op = "Reorder", .domain = std::string(kGradloomDomain), .inputs = {id}, .outputs = {made}};
    // Later readers may be of an earlier phase than the one that it is made for.
    const auto found = phases_.find(id);
    node.phase = phases_[made] = found == phases_.end() ? Phase::kForward : found->second;
    node.origin = reader_ != nullptr ? reader_->origin : value.name;
    graph_.AddNode(std::move(node));
    return made;
  }

  // Reorders the next value of each state into the state's layout.
  void KeepStates() {
    const int count = graph_.num_values();
    for (ValueId id = 0; id < count; ++id) {
      const ValueId old = graph_.value(id).next_of;
      if (old == kNoValue || layout(id) == layout(old)) continue;
      const ValueId kept = In(id, layout(old));
      graph_.value(kept).role = graph_.value(id).role;
      graph_.value(kept).next_of = old;
      graph_.value(id).next_of = kNoValue;
    }
  }

  Graph& graph_;
  ProgramPlan& plan_;
  const Node* reader_ = nullptr;      // the node that a reorder serves
  std::map<ValueId, Phase> phases_;   // of the nodes that compute values in the step
  std::set<ValueId> decided_;         // states whose layout is decided
  std::map<ValueId, ValueId> pairs_;  // a parameter's copy, and the parameter of a copy
  std::map<std::pair<ValueId, std::string>, ValueId> reordered_;
};

// Whether a kernel reorders values of this type and shape.
bool CanReorder(const Value& value, const Layout& from, const Layout& to, const ProgramPlan& plan) {
  const KernelCall call{.op = "Reorder",
                        .domain = std::string(kGradloomDomain),
                        .attributes = {},
                        .inputs = {{value.dtype, value.shape, from}},
                        .outputs = {{value.dtype, value.shape, to}},
                        .threads = plan.threads};
  return HasOwnKernel(call, plan.device);
}

// Makes a cast write the layout into which its result, which nothing else reads, is reordered, where a kernel does both. The cast's operand
// must be an input of the step, or be cast just before the reorder, so that it is not kept longer. Where no kernel does both, a cast to a
// wider type comes after the reorder, which then moves fewer bytes.
void CastIntoLayouts(Graph& graph, ProgramPlan& plan) {
  const Uses uses(graph);
  const std::set<ValueId> outputs(graph.outputs.begin(), graph.outputs.end());
  std::set<size_t> gone;
  for (size_t at = 0; at < graph.nodes.size(); ++at) {
    Node& reorder = graph.nodes[at];
    if (reorder.op != "Reorder" || reorder.domain != kGradloomDomain) continue;
    const ValueId result = reorder.inputs[0];
    const int made = uses.ProducerOf(result);
    if (made < 0 || uses.consumers[static_cast<size_t>(result)].size() != 1 || outputs.contains(result)) continue;
    const Node& cast = graph.nodes[static_cast<size_t>(made)];
    if (cast.op != "Cast" || !cast.domain.empty() || graph.value(reorder.outputs[0]).next_of != kNoValue) continue;
    const ValueId operand = cast.inputs[0];
    if (static_cast<size_t>(operand) >= uses.producer.size()) continue;  // made here
    const bool next = static_cast<size_t>(made) + 1 == at;
    if (uses.ProducerOf(operand) >= 0 && !next) continue;
    Node both = cast;
    both.outputs = reorder.outputs;
    if (HasOwnKernel(CallOf(graph, both, plan), plan.device)) {
      gone.insert(static_cast<size_t>(made));
      reorder = std::move(both);
      continue;
    }
    const Value value = graph.value(operand);
    const Layout to = plan.layout(reorder.outputs[0]);
    const bool widens = DTypeBytes(value.dtype) < DTypeBytes(graph.value(result).dtype);
    if (!next || !widens || !CanReorder(value, plan.layout(operand), to, plan)) continue;
    const ValueId reordered = graph.AddValue(value.name + "@" + to.ToString(), value.dtype, value.shape, Role::kActivation);
    plan.layouts.push_back(to);
    both.inputs[0] = reordered;
    Node first = std::exchange(reorder, std::move(both));
    first.inputs[0] = operand;
    first.outputs[0] = reordered;
    graph.nodes[static_cast<size_t>(made)] = std::move(first);
  }
  std::vector<Node> nodes = std::exchange(graph.nodes, {});
  for (size_t at = 0; at < nodes.size(); ++at) {
    if (!gone.contains(at)) graph.nodes.push_back(std::move(nodes[at]));
  }
}

}  // namespace

void AssignLayouts(Graph& graph, const Plan& whole, ProgramPlan& plan) {
  const bool given = std::any_of(whole.state.begin(), whole.state.end(), [](const StateTensor& s) { return !s.layout.plain(); });
  if (!given && !AnyPreference(graph, plan.device)) return;
  LayoutAssigner(graph, whole, plan).Run();
  CastIntoLayouts(graph, plan);
}

}  // namespace gradloom
