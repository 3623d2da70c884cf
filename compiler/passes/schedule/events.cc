#include "compiler/passes/schedule/events.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "compiler/passes/schedule/node_order.h"
#include "compiler/passes/schedule/path_cover.h"

namespace gradloom {

void InsertEvents(const Graph& graph, ProgramPlan& plan) {
  plan.waits.clear();
  if (plan.streams <= 1) return;
  const std::vector<std::vector<int>> dependencies = DependenciesOf(graph);
  for (size_t i = 0; i < dependencies.size(); ++i) {
    for (int before : dependencies[i]) {
      if (plan.stream[static_cast<size_t>(before)] != plan.stream[i]) plan.waits.push_back({static_cast<int>(i), before});
    }
  }
}

namespace {

// Counts the pairs on different streams in the transitive reduction of the required order together with the order within streams: nothing
// else orders these pairs. Counted independently of the choice of waits.
int WaitsBound(const Graph& graph, const ProgramPlan& plan, const std::vector<int>& previous) {
  std::vector<std::vector<int>> order = DependenciesOf(graph);
  for (size_t i = 0; i < order.size(); ++i) {
    if (previous[i] < 0 || std::find(order[i].begin(), order[i].end(), previous[i]) != order[i].end()) continue;
    order[i].insert(std::upper_bound(order[i].begin(), order[i].end(), previous[i]), previous[i]);
  }
  const std::vector<std::vector<int>> reduced = TransitiveReduction(order);
  int bound = 0;
  for (size_t i = 0; i < reduced.size(); ++i) {
    for (int before : reduced[i]) bound += plan.stream[static_cast<size_t>(before)] != plan.stream[i] ? 1 : 0;
  }
  return bound;
}

}  // namespace

void ElideEvents(const Graph& graph, ProgramPlan& plan) {
  if (plan.streams <= 1) return;
  // Removing implied waits does not change the order, so the order with all waits can answer for any of them.
  const NodeOrder order(graph, plan);
  std::vector<int> previous(graph.nodes.size(), -1), last(static_cast<size_t>(plan.streams), -1);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (plan.stream[i] < 0) continue;
    int& of_stream = last[static_cast<size_t>(plan.stream[i])];
    previous[i] = std::exchange(of_stream, static_cast<int>(i));
  }
  std::vector<Wait> kept;
  // By stream: the last node there that the current node waits for. It implies the others of its stream.
  std::vector<int> latest(static_cast<size_t>(plan.streams));
  for (auto begin = plan.waits.begin(); begin != plan.waits.end();) {
    const auto end = std::find_if(begin, plan.waits.end(), [&](const Wait& wait) { return wait.node != begin->node; });
    const int before = previous[static_cast<size_t>(begin->node)];
    std::fill(latest.begin(), latest.end(), -1);
    for (auto wait = begin; wait != end; ++wait) {
      int& of_stream = latest[static_cast<size_t>(order.stream(wait->after))];
      if (of_stream < 0 || order.place(wait->after) > order.place(of_stream)) of_stream = wait->after;
    }
    for (auto wait = begin; wait != end; ++wait) {
      if (latest[static_cast<size_t>(order.stream(wait->after))] != wait->after) continue;
      const bool by_stream = before >= 0 && order.Before(wait->after, before);
      const bool by_other = std::any_of(latest.begin(), latest.end(), [&](int other) {
        return other >= 0 && order.stream(other) != order.stream(wait->after) && order.Before(wait->after, other);
      });
      if (!by_stream && !by_other) kept.push_back(*wait);
    }
    begin = end;
  }
  plan.waits = std::move(kept);
  plan.waits_bound = WaitsBound(graph, plan, previous);
}

}  // namespace gradloom
