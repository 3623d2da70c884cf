#include "compiler/passes/fusion/fuse_pointwise.h"

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "compiler/ops/op.h"
#include "compiler/passes/schedule/choose_kernels.h"
#include "kernels/catalog/pointwise.h"

namespace gradloom {
namespace {

// Each value that is alive needs a tile; this many tiles fit into an L1 cache.
constexpr int kMaxGroupInputs = 12;
constexpr int kMaxGroupInstructions = 48;

struct FusionGroup {
  std::vector<int> members;  // positions in graph.nodes
  Shape shape;
  Phase phase = Phase::kForward;
  int micro_batch = -1;
  int instructions = 0;
  bool sealed = false;  // a node outside has read one of its values
};

// Returns the function that rounds the result of a node to its 16-bit type, as a store to memory would; nullopt if the type is wider or no
// rounding is needed.
std::optional<PointwiseOp> RoundingOf(const Graph& graph, const Node& node, const PointwiseProgram& program) {
  const DType dtype = graph.value(node.outputs[0]).dtype;
  if (dtype != DType::kFloat16 && dtype != DType::kBfloat16) return std::nullopt;
  const bool exact = std::all_of(program.instructions.begin(), program.instructions.end(), [](const auto& i) { return IsExact(i.op); }) &&
                     std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) {
                       return id == kNoValue || !IsFloating(graph.value(id).dtype) || graph.value(id).dtype == dtype;
                     });
  if (exact) return std::nullopt;
  return dtype == DType::kFloat16 ? PointwiseOp::kToFloat16 : PointwiseOp::kToBfloat16;
}

// Returns the number of functions of a node if it can be a member of a group.
std::optional<int> FunctionsOf(const Graph& graph, const Node& node) {
  const Op* op = FindOp(node.domain, node.op);
  if (op == nullptr || !op->has(kPointwise) || KeepsElements(node) || node.outputs.size() != 1) return std::nullopt;
  const auto program = PointwiseProgramOf(CallOf(graph, node, {}));
  if (!program) return std::nullopt;
  return static_cast<int>(program->instructions.size()) + (RoundingOf(graph, node, *program) ? 1 : 0);
}

class Grouping {
 public:
  explicit Grouping(const Graph& graph) : graph_(graph), group_of_(static_cast<size_t>(graph.num_values()), -1) {
    for (int i = 0; i < static_cast<int>(graph.nodes.size()); ++i) Visit(i);
  }

  const std::vector<FusionGroup>& groups() const { return groups_; }

 private:
  void Visit(int position) {
    const Node& node = graph_.nodes[static_cast<size_t>(position)];
    auto functions = FunctionsOf(graph_, node);
    // A sum of many operands is too large for a group.
    if (functions > kMaxGroupInstructions) functions.reset();
    std::vector<int> joined;
    ForEachUse(node, [&](ValueId id) {
      const int group = Find(group_of_[static_cast<size_t>(id)]);
      if (group < 0) return;
      if (functions && Fits(groups_[static_cast<size_t>(group)], node)) {
        if (std::find(joined.begin(), joined.end(), group) == joined.end()) joined.push_back(group);
      } else {
        groups_[static_cast<size_t>(group)].sealed = true;
      }
    });
    if (!functions) return;
    // The node reads the values of a group that it does not join from memory, so that group must not grow.
    while (!joined.empty() && !Small(joined, position, *functions)) {
      groups_[static_cast<size_t>(joined.back())].sealed = true;
      joined.pop_back();
    }
    const int group = joined.empty() ? NewGroup(node) : joined.front();
    for (size_t k = 1; k < joined.size(); ++k) Merge(joined[k], group);
    groups_[static_cast<size_t>(group)].members.push_back(position);
    if (node.micro_batch >= 0) groups_[static_cast<size_t>(group)].micro_batch = node.micro_batch;
    groups_[static_cast<size_t>(group)].instructions += *functions;
    group_of_[static_cast<size_t>(node.outputs[0])] = group;
  }

  bool Fits(const FusionGroup& group, const Node& node) const {
    const bool apart = group.micro_batch >= 0 && node.micro_batch >= 0 && group.micro_batch != node.micro_batch;
    return !group.sealed && group.shape == graph_.value(node.outputs[0]).shape && group.phase == node.phase && !apart;
  }

  int NewGroup(const Node& node) {
    FusionGroup group;
    group.shape = graph_.value(node.outputs[0]).shape;
    group.phase = node.phase;
    groups_.push_back(std::move(group));
    parent_.push_back(static_cast<int>(groups_.size()) - 1);
    return parent_.back();
  }

  void Merge(int from, int into) {
    FusionGroup &a = groups_[static_cast<size_t>(from)], &b = groups_[static_cast<size_t>(into)];
    b.members.insert(b.members.end(), a.members.begin(), a.members.end());
    std::sort(b.members.begin(), b.members.end());
    b.instructions += a.instructions;
    b.micro_batch = std::max(a.micro_batch, b.micro_batch);
    a.members.clear();
    parent_[static_cast<size_t>(from)] = into;
  }

  int Find(int group) {
    while (group >= 0 && parent_[static_cast<size_t>(group)] != group) group = parent_[static_cast<size_t>(group)];
    return group;
  }

  // Whether the groups and the node together stay within the limits.
  bool Small(const std::vector<int>& joined, int position, int functions) const {
    for (int group : joined) functions += groups_[static_cast<size_t>(group)].instructions;
    if (functions > kMaxGroupInstructions) return false;
    std::vector<ValueId> made, read;
    const auto add = [&](int at) {
      const Node& node = graph_.nodes[static_cast<size_t>(at)];
      made.push_back(node.outputs[0]);
      ForEachUse(node, [&](ValueId id) { read.push_back(id); });
    };
    for (int group : joined) {
      for (int at : groups_[static_cast<size_t>(group)].members) add(at);
    }
    add(position);
    std::sort(read.begin(), read.end());
    read.erase(std::unique(read.begin(), read.end()), read.end());
    const auto inside = [&](ValueId id) { return std::find(made.begin(), made.end(), id) != made.end(); };
    const auto inputs = std::count_if(read.begin(), read.end(), [&](ValueId id) { return !inside(id); });
    return inputs <= kMaxGroupInputs;
  }

  const Graph& graph_;
  std::vector<FusionGroup> groups_;
  std::vector<int> parent_;
  std::vector<int> group_of_;  // the group that computes a value, by value id
};

// The program of a group, member by member.
class Composition {
 public:
  explicit Composition(const Graph& graph) : graph_(graph) {}

  void Add(const Node& node) {
    const PointwiseProgram part = *PointwiseProgramOf(CallOf(graph_, node, {}));
    std::vector<Operand> operands;
    for (ValueId id : node.inputs) operands.push_back(id == kNoValue ? Operand{} : OperandOf(id));
    for (float constant : part.constants) operands.push_back(Constant(constant));
    for (const auto& [op, numbers] : part.instructions) {
      Step step{op, {}};
      for (size_t k = 0; k < 3; ++k) {
        if (numbers[k] >= 0) step.operands[k] = operands[static_cast<size_t>(numbers[k])];
      }
      operands.push_back({Operand::kResult, static_cast<int>(steps_.size())});
      steps_.push_back(step);
    }
    Operand& result = memo_[node.outputs[0]] = operands[static_cast<size_t>(part.outputs[0])];
    if (const auto rounding = RoundingOf(graph_, node, part)) {
      steps_.push_back({*rounding, {result}});
      result = {Operand::kResult, static_cast<int>(steps_.size()) - 1};
    }
  }

  const std::vector<ValueId>& inputs() const { return inputs_; }

  PointwiseProgram Finish(const std::vector<ValueId>& results) const {
    PointwiseProgram program;
    program.num_inputs = static_cast<int>(inputs_.size());
    program.constants = constants_;
    const auto number = [&](const Operand& operand) {
      switch (operand.kind) {
        case Operand::kNone: return -1;
        case Operand::kInput: return operand.index;
        case Operand::kConstant: return program.num_inputs + operand.index;
        case Operand::kResult: return program.first_result() + operand.index;
      }
      return -1;
    };
    for (const Step& step : steps_) program.Emit(step.op, number(step.operands[0]), number(step.operands[1]), number(step.operands[2]));
    for (ValueId id : results) program.outputs.push_back(number(memo_.at(id)));
    return program;
  }

 private:
  struct Operand {
    enum Kind : uint8_t { kNone, kInput, kConstant, kResult } kind = kNone;
    int index = 0;
  };
  struct Step {
    PointwiseOp op;
    std::array<Operand, 3> operands;
  };

  Operand Constant(float value) {
    // Compared bitwise: 0 and -0 are different constants, and equal NaNs are one.
    for (size_t i = 0; i < constants_.size(); ++i) {
      if (std::bit_cast<uint32_t>(constants_[i]) == std::bit_cast<uint32_t>(value)) return {Operand::kConstant, static_cast<int>(i)};
    }
    constants_.push_back(value);
    return {Operand::kConstant, static_cast<int>(constants_.size()) - 1};
  }

  Operand OperandOf(ValueId id) {
    if (const auto found = memo_.find(id); found != memo_.end()) return found->second;
    const Value& value = graph_.value(id);
    const Tensor* data = value.role == Role::kConst ? graph_.data(id) : nullptr;
    if (data != nullptr && IsFloating(value.dtype) && value.shape.elements() == 1)
      return Constant(static_cast<float>(ElementAsDouble(data->view(), 0)));
    const auto known = std::find(inputs_.begin(), inputs_.end(), id);
    if (known == inputs_.end()) inputs_.push_back(id);
    return {Operand::kInput, static_cast<int>(std::find(inputs_.begin(), inputs_.end(), id) - inputs_.begin())};
  }

  const Graph& graph_;
  std::vector<ValueId> inputs_;
  std::vector<float> constants_;
  std::vector<Step> steps_;
  std::map<ValueId, Operand> memo_;
};

// Returns the results of the group that are used outside, in the order in which they are computed.
std::vector<ValueId> ResultsOf(const Graph& graph, const FusionGroup& group, const Uses& uses, const std::vector<bool>& is_output) {
  std::vector<ValueId> results;
  for (int at : group.members) {
    const ValueId id = graph.nodes[static_cast<size_t>(at)].outputs[0];
    const auto& readers = uses.consumers[static_cast<size_t>(id)];
    const bool outside = std::any_of(readers.begin(), readers.end(),
                                     [&](int reader) { return !std::binary_search(group.members.begin(), group.members.end(), reader); });
    if (outside || is_output[static_cast<size_t>(id)] || graph.value(id).next_of != kNoValue) results.push_back(id);
  }
  return results;
}

std::optional<Node> FusedNode(const Graph& graph, const FusionGroup& group, const Uses& uses, const std::vector<bool>& is_output) {
  const std::vector<ValueId> results = ResultsOf(graph, group, uses, is_output);
  if (results.empty() || results.size() > static_cast<size_t>(PointwiseProgram::kMaxOutputs)) return std::nullopt;
  Composition program(graph);
  for (int at : group.members) program.Add(graph.nodes[static_cast<size_t>(at)]);
  // The inputs must broadcast to the shape of the results. A constant, which is part of the program, contributes no shape.
  Shape shape;
  for (ValueId id : program.inputs()) shape = Broadcast(shape, graph.value(id).shape).value_or(Shape{});
  if (shape != group.shape) return std::nullopt;
  Node node;
  node.op = "Fused";
  node.domain = kGradloomDomain;
  node.inputs = program.inputs();
  node.outputs = results;
  node.attributes = program.Finish(results).ToAttributes();
  std::vector<int64_t> dtypes;
  for (ValueId id : results) dtypes.push_back(static_cast<int64_t>(graph.value(id).dtype));
  node.attributes.set("dtypes", dtypes);
  const Node& last = graph.nodes[static_cast<size_t>(group.members.back())];
  node.phase = last.phase;
  node.device = last.device;
  node.origin = last.origin;
  return node;
}

}  // namespace

void FusePointwise(Graph& graph) {
  const Grouping grouping(graph);
  const Uses uses(graph);
  std::vector<bool> is_output(static_cast<size_t>(graph.num_values()));
  for (ValueId id : graph.outputs) is_output[static_cast<size_t>(id)] = true;
  std::vector<bool> gone(graph.nodes.size());
  std::map<int, Node> fused;  // by position of the last member
  for (const FusionGroup& group : grouping.groups()) {
    if (group.members.size() < 2) continue;
    auto node = FusedNode(graph, group, uses, is_output);
    if (!node) continue;
    for (int at : group.members) gone[static_cast<size_t>(at)] = true;
    fused.emplace(group.members.back(), std::move(*node));
  }
  std::vector<Node> old = std::move(graph.nodes);
  graph.nodes.clear();
  for (size_t i = 0; i < old.size(); ++i) {
    if (const auto found = fused.find(static_cast<int>(i)); found != fused.end()) {
      graph.AddNode(std::move(found->second));
    } else if (!gone[i]) {
      graph.nodes.push_back(std::move(old[i]));
    }
  }
}

bool CanFuse(const Graph& graph, const Node& node) { return FunctionsOf(graph, node).has_value(); }

}  // namespace gradloom
