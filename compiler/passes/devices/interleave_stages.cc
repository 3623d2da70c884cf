#include "compiler/passes/devices/interleave_stages.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "compiler/cost/cost_model.h"
#include "compiler/ops/op.h"
#include "compiler/passes/schedule/node_order.h"

namespace gradloom {
namespace {

size_t At(int i) { return static_cast<size_t>(i); }

class Interleaver {
 public:
  Interleaver(const Graph& graph, int stages, const Recipe& recipe)
      : graph_(graph), stages_(stages), placed_(graph_.nodes.size(), false), ends_(graph_.nodes.size(), 0), free_(At(stages), 0) {
    const DeviceCosts costs = DefaultCosts(recipe.device);
    FindOperands();
    for (const Node& node : graph_.nodes) count_ = std::max(count_, node.micro_batch + 1);
    FindTurns();
    for (const Node& node : graph_.nodes)
      seconds_.push_back(IsView(node) || IsCollective(node) ? 0 : SecondsOf(CostOf(graph_, node), recipe.threads, costs));
  }

  // The positions of the nodes in their new order.
  std::vector<int> Run() {
    std::vector<std::vector<int>> orders(At(stages_));
    for (size_t i = 0; i < graph_.nodes.size(); ++i) orders[At(StageOf(static_cast<int>(i)))].push_back(static_cast<int>(i));
    for (std::vector<int>& order : orders)
      std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return PlaceOf(a) < PlaceOf(b); });
    std::vector<size_t> next(At(stages_), 0);
    while (order_.size() < graph_.nodes.size()) {
      int first = -1, waiting = -1;
      double begin = 0;
      for (int stage = 0; stage < stages_; ++stage) {
        const std::vector<int>& own = orders[At(stage)];
        size_t& at = next[At(stage)];
        while (at < own.size() && placed_[At(own[at])]) ++at;
        if (at == own.size()) continue;
        if (!IsReady(own[at])) {
          if (waiting < 0 || free_[At(stage)] < free_[At(StageOf(waiting))]) waiting = own[at];
          continue;
        }
        const double could = BeginOf(own[at]);
        if (first >= 0 && could >= begin) continue;
        first = own[at];
        begin = could;
      }
      first >= 0 ? Place(first) : PlaceWithOperands(waiting);
    }
    return std::move(order_);
  }

 private:
  int StageOf(int node) const { return std::max(graph_.nodes[At(node)].device, 0); }

  // By node: those that must precede it.
  void FindOperands() {
    const Uses uses(graph_);
    operands_.resize(graph_.nodes.size());
    int last = -1;  // all-reduce
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      ForEachUse(graph_.nodes[i], [&](ValueId id) {
        if (const int made = uses.ProducerOf(id); made >= 0) operands_[i].push_back(made);
      });
      if (!IsCollective(graph_.nodes[i])) continue;
      if (last >= 0) operands_[i].push_back(last);
      last = static_cast<int>(i);
    }
  }

  // A node's turn: the forward passes in the order of their micro-batches, and then the backward passes. What is common to all of them has
  // the turn of its last operand, or -1.
  void FindTurns() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      int turn = -1;
      for (int operand : operands_[i]) turn = std::max(turn, turns_[At(operand)]);
      const Node& node = graph_.nodes[i];
      if (node.micro_batch >= 0) turn = node.micro_batch + (node.phase == Phase::kForward ? 0 : count_);
      turns_.push_back(turn);
    }
  }

  // When a node has its turn among those of its stage.
  int PlaceOf(int node) const {
    const int turn = turns_[At(node)];
    if (turn < 0) return turn;
    const int before = std::min(count_, stages_ - StageOf(node));  // forward passes before the first backward pass
    if (turn < count_) return turn < before ? turn : 2 * turn - before + 1;
    const int backward = turn - count_;
    return before + 2 * std::min(backward, count_ - before) + std::max(backward - (count_ - before), 0);
  }

  bool IsReady(int node) const {
    return std::all_of(operands_[At(node)].begin(), operands_[At(node)].end(), [&](int operand) { return placed_[At(operand)]; });
  }

  double BeginOf(int node) const {
    double begin = free_[At(StageOf(node))];
    for (int operand : operands_[At(node)]) begin = std::max(begin, ends_[At(operand)]);
    return begin;
  }

  void Place(int node) {
    double& end = ends_[At(node)];
    end = BeginOf(node) + seconds_[At(node)];
    // A device computes on while it communicates.
    if (!IsCollective(graph_.nodes[At(node)])) free_[At(StageOf(node))] = end;
    placed_[At(node)] = true;
    order_.push_back(node);
  }

  // Places what the node depends on, in the order of the list, and the node.
  void PlaceWithOperands(int node) {
    std::vector<int> open{node}, wanted;
    std::vector<bool> seen(graph_.nodes.size(), false);
    seen[At(node)] = true;
    while (!open.empty()) {
      const int at = open.back();
      open.pop_back();
      wanted.push_back(at);
      for (int operand : operands_[At(at)]) {
        if (placed_[At(operand)] || seen[At(operand)]) continue;
        seen[At(operand)] = true;
        open.push_back(operand);
      }
    }
    std::sort(wanted.begin(), wanted.end());
    for (int at : wanted) Place(at);
  }

  const Graph& graph_;
  const int stages_;
  int count_ = 0;                           // of micro-batches
  std::vector<std::vector<int>> operands_;  // by node
  std::vector<int> turns_;                  // by node
  std::vector<double> seconds_;             // by node
  std::vector<bool> placed_;                // by node
  std::vector<double> ends_;                // by node: when it has ended
  std::vector<double> free_;                // by stage: when it has ended all that has been placed
  std::vector<int> order_;
};

}  // namespace

void InterleaveStages(Graph& graph, int stages, const Recipe& recipe) {
  std::vector<Node> nodes;
  for (const int at : Interleaver(graph, stages, recipe).Run()) nodes.push_back(std::move(graph.nodes[At(at)]));
  graph.nodes = std::move(nodes);
}

}  // namespace gradloom
