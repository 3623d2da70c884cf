#include "compiler/passes/loss/fuse_loss_gradient.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compiler/passes/graph_match.h"
#include "compiler/passes/schedule/node_order.h"
#include "compiler/passes/schedule/refusals.h"
#include "compiler/passes/simplify.h"
#include "runtime/base/ignored_class.h"

namespace gradloom {
namespace {

// The outputs of a loss: the sums of losses and of weights, and what it keeps for its gradient.
enum Output : size_t { kLoss, kWeights, kKept };

// A loss and its gradient, by their positions. The gradient's operands after what the loss keeps are the labels, the class weights and the
// upstream gradient.
struct Pair {
  int loss = -1, gradient = -1;
  ValueId upstream = kNoValue;
  std::set<int> moved;  // nodes after the loss that compute the upstream gradient
};

class LossGradientFuser {
 public:
  explicit LossGradientFuser(GraphBuilder& builder) : b_(builder), graph_(builder.graph()) {}

  void Run() {
    // Positions change with every replacement, after which nodes that two pairs wanted to move may already precede both.
    for (std::map<int, Pair> pairs = FindPairs(); !pairs.empty(); pairs = FindPairs()) Fuse(pairs);
    DropUnread();
  }

 private:
  // Log-probabilities that nothing reads are not computed.
  void DropUnread() {
    const GraphMatch match(graph_);
    for (Node& loss : graph_.nodes) {
      if (loss.domain != kGradloomDomain || loss.op != "CrossEntropy" || Is16BitFloat(b_.dtype(loss.inputs[0]))) continue;
      const ValueId kept = loss.outputs.size() > kKept ? loss.outputs[kKept] : kNoValue;
      if (kept == kNoValue || match.IsKept(kept) || match.num_readers(kept) > 0) continue;
      loss.op = "CrossEntropyLogSum";
      const Value log_prob = graph_.value(kept);
      loss.outputs[kKept] = graph_.AddValue(log_prob.name + "/log_sum", log_prob.dtype, Shape{log_prob.shape[0]}, Role::kActivation);
    }
  }

  const Node& NodeAt(int at) const { return graph_.nodes[static_cast<size_t>(at)]; }

  // Returns pairs without common nodes, by the positions of their losses; none if there are no pairs.
  std::map<int, Pair> FindPairs() const {
    const GraphMatch match(graph_);
    std::map<int, Pair> pairs;
    std::set<int> taken;
    for (int at = 0; at < static_cast<int>(graph_.nodes.size()); ++at) {
      std::optional<Pair> pair = PairOf(match, at);
      if (!pair) continue;
      std::set<int> nodes = pair->moved;
      nodes.insert({pair->loss, pair->gradient});
      if (std::any_of(nodes.begin(), nodes.end(), [&](int node) { return taken.contains(node); })) continue;
      taken.insert(nodes.begin(), nodes.end());
      pairs.emplace(at, *std::move(pair));
    }
    return pairs;
  }

  // The number of the gradient's first operands that are not those of the loss: what the loss keeps, after the scores if these are not
  // contained in it; 0 if it is not the gradient of this loss.
  size_t NumKept(const Node& loss, const Node& gradient) const {
    if (gradient.domain != kGradloomDomain || gradient.op != loss.op + "Grad") return 0;
    const std::vector<ValueId>& in = gradient.inputs;
    if (loss.op == "CrossEntropy") return in[0] == loss.outputs[kKept] ? 1 : 0;
    return in[0] == loss.inputs[0] && in[1] == loss.outputs[kKept] ? 2 : 0;
  }

  static bool SameRule(const Attributes& a, const Attributes& b) {
    return IgnoredClassOf(a) == IgnoredClassOf(b) && a.Float("label_smoothing", 0) == b.Float("label_smoothing", 0);
  }

  std::optional<Pair> PairOf(const GraphMatch& match, int at) const {
    const Node& loss = NodeAt(at);
    if (loss.domain != kGradloomDomain || (loss.op != "CrossEntropy" && loss.op != "CrossEntropyLogSum")) return std::nullopt;
    // The sums of the fused operator never have 16 bits.
    if (loss.op == "CrossEntropy" && Is16BitFloat(b_.dtype(loss.inputs[0]))) return std::nullopt;
    const ValueId kept_value = loss.outputs.size() > kKept ? loss.outputs[kKept] : kNoValue;
    const Node* const gradient = kept_value == kNoValue ? nullptr : match.OnlyReader(kept_value);
    const size_t kept = gradient == nullptr ? 0 : NumKept(loss, *gradient);
    if (kept == 0 || !SameRule(loss.attributes, gradient->attributes)) return std::nullopt;
    const auto weight = [](const Node& node, size_t i) { return i < node.inputs.size() ? node.inputs[i] : kNoValue; };
    if (gradient->inputs[kept] != loss.inputs[1] || gradient->inputs[kept + 1] != weight(loss, 2)) return std::nullopt;
    Pair pair;
    pair.loss = at;
    pair.gradient = match.Producer(gradient->outputs[0]);
    pair.upstream = gradient->inputs[kept + 2];
    return IsKnownBefore(match, pair) ? std::optional(std::move(pair)) : std::nullopt;
  }

  // Whether the upstream gradient can be computed before the loss. Sets `moved`.
  bool IsKnownBefore(const GraphMatch& match, Pair& pair) const {
    const Node& loss = NodeAt(pair.loss);
    std::vector<ValueId> open = {pair.upstream};
    while (!open.empty()) {
      const ValueId id = open.back();
      open.pop_back();
      const int at = match.Producer(id);
      if (at < pair.loss) continue;
      if (at == pair.loss) {
        if (id != loss.outputs[kWeights]) return false;
        continue;
      }
      const Node& node = NodeAt(at);
      // What another device sends after the loss may depend on it, and all devices run their collectives in one order.
      if (IsCollective(node) || WritesState(graph_, node)) return false;
      if (pair.moved.insert(at).second) ForEachUse(node, [&](ValueId used) { open.push_back(used); });
    }
    return true;
  }

  void Fuse(const std::map<int, Pair>& pairs) {
    std::vector<Node> nodes = std::exchange(graph_.nodes, {});
    std::set<int> gone;
    for (const auto& [loss, pair] : pairs) {
      gone.insert(pair.gradient);
      gone.insert(pair.moved.begin(), pair.moved.end());
    }
    for (int at = 0; at < static_cast<int>(nodes.size()); ++at) {
      if (const auto pair = pairs.find(at); pair != pairs.end()) {
        AddFused(pair->second, nodes);
      } else if (!gone.contains(at)) {
        graph_.nodes.push_back(std::move(nodes[static_cast<size_t>(at)]));
      }
    }
    RemoveDeadNodes(graph_);
  }

  // Appends what replaces the loss.
  void AddFused(const Pair& pair, std::vector<Node>& nodes) {
    const Node &loss = nodes[static_cast<size_t>(pair.loss)], &gradient = nodes[static_cast<size_t>(pair.gradient)];
    const ValueId target = loss.inputs[1], weight = gradient.inputs[gradient.inputs.size() - 2];
    const auto append = [&](Node node) {
      node.domain = kGradloomDomain;
      node.phase = loss.phase;
      node.device = loss.device;
      node.origin = loss.origin;
      graph_.AddNode(std::move(node));
    };
    if (const ValueId weights = loss.outputs[kWeights]; weights != kNoValue) {
      Node node{.op = "LabelWeights", .inputs = {target, weight}, .outputs = {weights}};
      node.attributes = {{"ignore_index", IgnoredClassOf(loss.attributes)}, {"to", static_cast<int64_t>(b_.dtype(weights))}};
      append(std::move(node));
    }
    // The gradient does not wait for the backward pass, so values that the upstream gradient needs are not kept for that.
    for (const int at : pair.moved) {
      Node& node = nodes[static_cast<size_t>(at)];
      node.phase = loss.phase;
      graph_.nodes.push_back(std::move(node));
    }
    Node node{.op = "CrossEntropyTraining", .inputs = {loss.inputs[0], target, weight, pair.upstream}};
    node.outputs = {loss.outputs[kLoss], gradient.outputs[0]};
    node.attributes = loss.attributes;
    append(std::move(node));
  }

  GraphBuilder& b_;
  Graph& graph_;
};

}  // namespace

void FuseLossGradient(GraphBuilder& builder) { LossGradientFuser(builder).Run(); }

}  // namespace gradloom
