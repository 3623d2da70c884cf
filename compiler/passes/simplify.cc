#include "compiler/passes/simplify.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compiler/graph/constants.h"
#include "compiler/ops/op.h"
#include "compiler/passes/node_key.h"
#include "compiler/passes/region_bodies.h"
#include "compiler/passes/schedule/choose_kernels.h"
#include "kernels/reference/reference.h"

namespace gradloom {
namespace {

constexpr int64_t kMaxFoldedBytes = 64 << 10;

class Simplifier {
 public:
  Simplifier(Graph& graph, bool merges) : graph_(graph), merges_(merges) {
    for (ValueId id : graph.outputs) pinned_.insert(id);
    for (const Value& value : graph.values()) {
      if (value.next_of != kNoValue) pinned_.insert(value.id);
    }
  }

  void Run() {
    std::vector<Node> nodes = std::move(graph_.nodes);
    graph_.nodes.clear();
    for (Node& node : nodes) {
      for (ValueId& id : node.inputs) id = Current(id);
      if (!node.regions.empty()) SinkConstants(graph_, node);
      for (Region& region : node.regions) merges_ ? Simplify(*region.body) : FoldConstants(*region.body);
      ReducePower(node);
      if (!Fold(node) && !DropNeutral(node) && !(merges_ && MergeEqual(node))) graph_.nodes.push_back(std::move(node));
    }
  }

 private:
  // Returns the value that replaces `id`: itself, or an equal one.
  ValueId Current(ValueId id) {
    if (id == kNoValue) return id;
    if (const auto found = replaced_.find(id); found != replaced_.end()) return found->second;
    const Tensor* data = graph_.data(id);
    if (!merges_ || data == nullptr || graph_.value(id).role != Role::kConst || data->bytes() > kMaxComparedBytes) return id;
    const auto [at, fresh] = constants_.emplace(KeyOf(*data), id);
    replaced_.emplace(id, at->second);
    return at->second;
  }

  bool Pinned(const Node& node) const {
    return std::any_of(node.outputs.begin(), node.outputs.end(), [&](ValueId id) { return pinned_.contains(id); });
  }

  // Random nodes are never merged or folded.
  bool IsRandom(const Node& node) const {
    const Op* op = FindOp(node.domain, node.op);
    return op == nullptr || op->has(kRandom) || op->has(kCollective);
  }

  bool Fold(const Node& node) {
    if (Pinned(node) || IsRandom(node) || !node.regions.empty() || FindReference(node.domain, node.op) == nullptr) return false;
    std::vector<Tensor> inputs;
    for (ValueId id : node.inputs) {
      if (id != kNoValue && graph_.value(id).role != Role::kConst) return false;
      inputs.push_back(id == kNoValue ? Tensor() : *graph_.data(id));
    }
    for (ValueId id : node.outputs) {
      if (id != kNoValue && graph_.value(id).bytes() > kMaxFoldedBytes) return false;
    }
    const std::vector<Tensor> outputs = RunReference(CallOf(graph_, node, {}), inputs);
    for (size_t i = 0; i < outputs.size(); ++i) {
      const ValueId id = node.outputs[i];
      if (id == kNoValue) continue;
      graph_.value(id).role = Role::kConst;
      graph_.value(id).derived = true;
      graph_.set_data(id, outputs[i]);
    }
    return true;
  }

  // Replaces x^2, x^3 and x^0.5 by products and a square root, which take a tenth of the time. A cube in 16 bits would round its square, so
  // it stays.
  void ReducePower(Node& node) {
    if (node.op != "Pow" || !node.domain.empty() || graph_.type(node.inputs[0]) != graph_.type(node.outputs[0])) return;
    const ValueId x = node.inputs[0];
    const DType dtype = graph_.value(x).dtype;
    const std::optional<double> exponent = Uniform(node.inputs[1]);
    if (!exponent || !IsFloating(dtype)) return;
    ValueId factor = x;
    if (*exponent == 3 && DTypeBytes(dtype) >= 4) {
      Node square = node;
      square.op = "Mul";
      square.inputs = {x, x};
      factor = graph_.AddValue(graph_.value(node.outputs[0]).name + "/square", dtype, graph_.value(x).shape, Role::kActivation);
      square.outputs = {factor};
      graph_.AddNode(std::move(square));
    } else if (*exponent == 0.5) {
      node.op = "Sqrt";
      node.inputs = {x};
      return;
    } else if (*exponent != 2) {
      return;
    }
    node.op = "Mul";
    node.inputs = {factor, x};
  }

  // Returns the value of a constant whose elements are all equal.
  std::optional<double> Uniform(ValueId id) const {
    const Tensor* data = ConstantData(graph_, id);
    return data == nullptr || data->bytes() > kMaxComparedBytes ? std::nullopt : UniformConstant(graph_, id);
  }

  // Returns the input that the node's output equals, or kNoValue.
  ValueId Neutral(const Node& node) const {
    if (node.op == "Copy" && node.domain == kGradloomDomain) return node.inputs[0];
    if (!node.domain.empty() || node.inputs.empty()) return kNoValue;
    const ValueId a = node.inputs[0], b = node.inputs.size() > 1 ? node.inputs[1] : kNoValue;
    if (node.op == "Identity" || (node.op == "Cast" && graph_.value(a).dtype == graph_.value(node.outputs[0]).dtype)) return a;
    if (node.op == "Mul" && Uniform(b) == 1.0) return a;
    if (node.op == "Mul" && Uniform(a) == 1.0) return b;
    if (node.op == "Div" && Uniform(b) == 1.0) return a;
    // x + 0 turns -0 into 0, which only a division by it could distinguish.
    if ((node.op == "Add" || node.op == "Sub") && Uniform(b) == 0.0) return a;
    if (node.op == "Add" && Uniform(a) == 0.0) return b;
    if (node.op == "Expand" || node.op == "Reshape") return a;
    return kNoValue;
  }

  bool DropNeutral(const Node& node) {
    const ValueId same = Neutral(node);
    if (same == kNoValue || Pinned(node) || node.outputs.size() != 1) return false;
    if (graph_.type(same) != graph_.type(node.outputs[0])) return false;
    replaced_.emplace(node.outputs[0], same);
    return true;
  }

  bool MergeEqual(const Node& node) {
    if (IsRandom(node) || !node.regions.empty()) return false;
    const auto [at, fresh] = seen_.emplace(KeyOf(node), node.outputs);
    if (fresh || Pinned(node)) return false;
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] != kNoValue) replaced_.emplace(node.outputs[i], at->second[i]);
    }
    return true;
  }

  Graph& graph_;
  bool merges_;
  std::set<ValueId> pinned_;  // outputs and next values, which are kept
  std::map<ValueId, ValueId> replaced_;
  std::map<std::string, ValueId> constants_;
  std::map<std::string, std::vector<ValueId>> seen_;
};

}  // namespace

void RemoveDeadNodes(Graph& graph) {
  std::vector<bool> wanted(static_cast<size_t>(graph.num_values()));
  for (ValueId id : graph.outputs) wanted[static_cast<size_t>(id)] = true;
  for (const Value& value : graph.values()) {
    if (value.next_of != kNoValue) wanted[static_cast<size_t>(value.id)] = true;
  }
  std::vector<Node> kept;
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    Node& node = graph.nodes[i];
    const Op* op = FindOp(node.domain, node.op);
    // Other devices take part in a collective whether this device needs its result or not.
    const bool collective = op != nullptr && op->has(kCollective);
    if (!collective && std::none_of(node.outputs.begin(), node.outputs.end(),
                                    [&](ValueId id) { return id != kNoValue && wanted[static_cast<size_t>(id)]; }))
      continue;
    if (!node.regions.empty()) TrimBodies(node, wanted);
    ForEachUse(node, [&](ValueId id) { wanted[static_cast<size_t>(id)] = true; });
    kept.push_back(std::move(node));
  }
  std::reverse(kept.begin(), kept.end());
  graph.nodes = std::move(kept);
}

void Simplify(Graph& graph) {
  RemoveDeadNodes(graph);
  Simplifier(graph, true).Run();
  RemoveDeadNodes(graph);
}

void FoldConstants(Graph& graph) {
  RemoveDeadNodes(graph);
  Simplifier(graph, false).Run();
  RemoveDeadNodes(graph);
}

}  // namespace gradloom
