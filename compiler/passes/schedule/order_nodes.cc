#include "compiler/passes/schedule/order_nodes.h"

#include <algorithm>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "compiler/cost/cost_model.h"
#include "compiler/ops/op.h"
#include "compiler/passes/schedule/node_order.h"
#include "compiler/passes/schedule/refusals.h"

namespace gradloom {
namespace {

// Whether the node may move within the list.
bool Moves(const Node& node) { return node.phase == Phase::kUpdate && !IsCollective(node); }

// Returns, by value id, the last position that reads the value or a view of it, without nodes that move.
std::vector<int> LastFixedRead(const Graph& graph) {
  std::vector<int> last(static_cast<size_t>(graph.num_values()), -1);
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    if (Moves(node)) continue;
    ForEachUse(node, [&](ValueId id) { last[static_cast<size_t>(id)] = std::max(last[static_cast<size_t>(id)], static_cast<int>(i)); });
    if (IsView(node)) {
      int& of_input = last[static_cast<size_t>(node.inputs[0])];
      of_input = std::max(of_input, last[static_cast<size_t>(node.outputs[0])]);
    }
  }
  return last;
}

// Returns, by position of a collective, the position at which it has most likely finished, assuming that other nodes continue and that
// collectives run one after the other.
std::map<int, int> EstimatedCollectiveEnds(const Graph& graph, DeviceKind device, int threads) {
  const DeviceCosts costs = DefaultCosts(device);
  std::map<int, int> ends;
  std::deque<std::pair<double, int>> open;  // end time and position
  double now = 0, free = 0;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    if (IsCollective(node)) {
      free = std::max(now, free) + costs.collective_seconds + CostOf(graph, node).bytes / costs.link_bytes_per_second;
      open.emplace_back(free, static_cast<int>(i));
    } else if (!IsView(node) && node.phase != Phase::kUpdate) {
      now += SecondsOf(CostOf(graph, node), threads, costs);
    }
    for (; !open.empty() && open.front().first <= now; open.pop_front()) ends.emplace(open.front().second, static_cast<int>(i));
  }
  for (const auto& [time, collective] : open) ends.emplace(collective, static_cast<int>(graph.nodes.size()) - 1);
  return ends;
}

// Returns, for each node that moves, the position before which it must run, because a node that does not move depends on it.
std::vector<int> Deadlines(const Graph& graph) {
  const int never = static_cast<int>(graph.nodes.size());
  std::vector<int> of_value(static_cast<size_t>(graph.num_values()), never), of_node(graph.nodes.size(), never);
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    int& deadline = of_node[i];
    for (ValueId id : node.outputs) deadline = id == kNoValue ? deadline : std::min(deadline, of_value[static_cast<size_t>(id)]);
    const int needed = Moves(node) ? deadline : static_cast<int>(i);
    ForEachUse(node, [&](ValueId id) { of_value[static_cast<size_t>(id)] = std::min(of_value[static_cast<size_t>(id)], needed); });
  }
  return of_node;
}

// Returns the position after which nothing refuses the batch, on this device or, as the next collective tells, on another one; -1 if
// nothing can.
int LastRefusal(const Graph& graph, const std::map<int, int>& ends) {
  const std::vector<int> refusing = RefusingNodes(graph);
  if (const int collective = FirstCollectiveAfter(graph, refusing); collective >= 0) return ends.at(collective);
  return refusing.empty() ? -1 : refusing.back();
}

}  // namespace

void OrderNodes(Graph& graph, DeviceKind device, int threads) {
  const std::vector<int> last_read = LastFixedRead(graph);
  const std::map<int, int> ends = EstimatedCollectiveEnds(graph, device, threads);
  const std::vector<int> deadlines = Deadlines(graph);
  const int last_refusal = LastRefusal(graph, ends);
  // The position after which each value is available; inputs and data are available before the first node.
  std::vector<int> ready(static_cast<size_t>(graph.num_values()), -1);
  std::vector<std::pair<int, size_t>> keys;  // (position to run after, original position)
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    int after = static_cast<int>(i);
    if (Moves(node)) {
      after = WritesState(graph, node) ? last_refusal : -1;
      ForEachUse(node, [&](ValueId id) { after = std::max(after, ready[static_cast<size_t>(id)]); });
      for (ValueId id : node.outputs) {
        if (id != kNoValue && graph.value(id).next_of != kNoValue)
          after = std::max(after, last_read[static_cast<size_t>(graph.value(id).next_of)]);
      }
      after = std::min(after, deadlines[i] - 1);
    }
    for (ValueId id : node.outputs) {
      if (id == kNoValue) continue;
      const auto end = ends.find(static_cast<int>(i));
      ready[static_cast<size_t>(id)] = end == ends.end() ? after : end->second;
    }
    keys.emplace_back(after, i);
  }
  // Stable: updates that may run after position p follow the node at p, in their original order.
  std::stable_sort(keys.begin(), keys.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Node> ordered;
  ordered.reserve(graph.nodes.size());
  for (const auto& [after, i] : keys) ordered.push_back(std::move(graph.nodes[i]));
  graph.nodes = std::move(ordered);
}

}  // namespace gradloom
