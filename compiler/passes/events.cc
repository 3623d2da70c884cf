#include "compiler/passes/events.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "compiler/passes/node_order.h"

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

void ElideEvents(const Graph& graph, ProgramPlan& plan) {
  if (plan.streams <= 1) return;
  // The order with all waits is the order without those that are implied, so it can be asked about any of them.
  const NodeOrder order(graph, plan);
  std::vector<int> previous(graph.nodes.size(), -1), last(static_cast<size_t>(plan.streams), -1);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (plan.stream[i] < 0) continue;
    int& of_stream = last[static_cast<size_t>(plan.stream[i])];
    previous[i] = std::exchange(of_stream, static_cast<int>(i));
  }
  std::vector<Wait> kept;
  for (auto begin = plan.waits.begin(); begin != plan.waits.end();) {
    const auto end = std::find_if(begin, plan.waits.end(), [&](const Wait& wait) { return wait.node != begin->node; });
    const int before = previous[static_cast<size_t>(begin->node)];
    for (auto wait = begin; wait != end; ++wait) {
      const bool by_stream = before >= 0 && order.Before(wait->after, before);
      const bool by_other = std::any_of(begin, end, [&](const Wait& other) {
        return other.after != wait->after &&
               (order.stream(other.after) == order.stream(wait->after) ? order.place(other.after) > order.place(wait->after)
                                                                       : order.Before(wait->after, other.after));
      });
      if (!by_stream && !by_other) kept.push_back(*wait);
    }
    begin = end;
  }
  plan.waits = std::move(kept);
}

}  // namespace gradloom
