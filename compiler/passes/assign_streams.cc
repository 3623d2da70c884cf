#include "compiler/passes/assign_streams.h"

#include <algorithm>
#include <vector>

#include "compiler/cost/cost_model.h"
#include "compiler/passes/node_order.h"
#include "compiler/passes/path_cover.h"

namespace gradloom {
namespace {

// The inputs of the choice, which do not depend on the number of streams.
struct Chains {
  explicit Chains(const Graph& graph)
      : dependencies(TransitiveReduction(DependenciesOf(graph))), predecessor(MinimumPathCover(dependencies)) {}
  std::vector<std::vector<int>> dependencies;
  std::vector<int> predecessor;
};

std::vector<double> SecondsOfNodes(const Graph& graph, int threads, const DeviceCosts& costs) {
  std::vector<double> seconds;
  // Input copies are finished when the step begins.
  for (const Node& node : graph.nodes) {
    seconds.push_back(IsView(node) || IsInputCopy(node) ? 0 : SecondsOf(CostOf(graph, node), threads, costs));
  }
  return seconds;
}

// The stream of each node, and the time at which the last stream ends.
struct Assignment {
  std::vector<int> stream;
  double makespan = 0;
};

Assignment Assign(const Graph& graph, const Chains& chains, int streams, const std::vector<double>& seconds, double event_seconds) {
  Assignment made{std::vector<int>(graph.nodes.size(), -1)};
  // The stream of collectives comes after the compute streams, then the stream of input copies.
  const bool any_collective = std::any_of(graph.nodes.begin(), graph.nodes.end(), IsCollective);
  std::vector<double> ends(graph.nodes.size(), 0), free(static_cast<size_t>(streams) + 2, 0);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (IsView(graph.nodes[i])) continue;
    const int before = chains.predecessor[i];
    const int home = before < 0 ? -1 : made.stream[static_cast<size_t>(before)];
    int best = -1;
    double best_start = 0;
    const int only = IsCollective(graph.nodes[i]) ? streams : IsInputCopy(graph.nodes[i]) ? streams + (any_collective ? 1 : 0) : -1;
    for (int s = std::max(only, 0); s < (only < 0 ? streams : only + 1); ++s) {
      double start = free[static_cast<size_t>(s)];
      for (int dependency : chains.dependencies[i]) {
        const bool waits = made.stream[static_cast<size_t>(dependency)] != s;
        start = std::max(start, ends[static_cast<size_t>(dependency)] + (waits ? event_seconds : 0));
      }
      if (best < 0 || start < best_start || (start == best_start && s == home)) {
        best = s;
        best_start = start;
      }
    }
    made.stream[i] = best;
    ends[i] = best_start + seconds[i];
    free[static_cast<size_t>(best)] = ends[i];
    made.makespan = std::max(made.makespan, ends[i]);
  }
  return made;
}

}  // namespace

void ChooseStreams(const Graph& graph, int streams, int threads, ProgramPlan& plan) {
  plan.streams = std::clamp(streams, 1, kMaxStreams);
  if (streams == 0) {
    const Chains chains(graph);
    const DeviceCosts costs = DefaultCosts(plan.device);
    double best = 0;
    for (int count : {1, 2, 4}) {
      if (plan.device == DeviceKind::kCpu && count > threads) break;
      const int each = plan.device == DeviceKind::kCpu ? threads / count : threads;
      const double makespan = Assign(graph, chains, count, SecondsOfNodes(graph, each, costs), costs.event_seconds).makespan;
      if (count > 1 && makespan >= best) continue;
      best = makespan;
      plan.streams = count;
    }
  }
  plan.threads = std::max(1, threads / plan.streams);
  if (std::any_of(graph.nodes.begin(), graph.nodes.end(), IsCollective)) plan.comm_stream = plan.streams++;
  if (std::any_of(graph.nodes.begin(), graph.nodes.end(), IsInputCopy)) plan.copy_stream = plan.streams++;
}

void AssignStreams(const Graph& graph, ProgramPlan& plan) {
  plan.stream.clear();
  if (plan.streams <= 1) return;
  const DeviceCosts costs = DefaultCosts(plan.device);
  const int compute = plan.streams - (plan.comm_stream >= 0 ? 1 : 0) - (plan.copy_stream >= 0 ? 1 : 0);
  plan.stream = Assign(graph, Chains(graph), compute, SecondsOfNodes(graph, plan.threads, costs), costs.event_seconds).stream;
}

}  // namespace gradloom
