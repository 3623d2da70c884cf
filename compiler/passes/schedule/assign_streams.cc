#include "compiler/passes/schedule/assign_streams.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "compiler/cost/cost_model.h"
#include "compiler/cost/shared_device.h"
#include "compiler/passes/schedule/node_order.h"
#include "compiler/passes/schedule/path_cover.h"

namespace gradloom {
namespace {

// More streams of a GPU must reduce the time of a step to this.
constexpr double kWorthStreams = 0.95;

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

// The makespan on a device whose streams share its rates.
double SharedMakespan(const Graph& graph, const Chains& chains, const std::vector<int>& stream, const std::vector<double>& seconds,
                      const DeviceCosts& costs) {
  struct Lane {
    std::vector<int> nodes;
    size_t next = 0;
    bool running = false;
  };
  int last = 0;
  for (int of_node : stream) last = std::max(last, of_node);
  std::vector<Lane> lanes(static_cast<size_t>(last + 1));
  for (size_t i = 0; i < stream.size(); ++i) {
    if (stream[i] >= 0) lanes[static_cast<size_t>(stream[i])].nodes.push_back(static_cast<int>(i));
  }
  constexpr double kNever = std::numeric_limits<double>::infinity();
  SharedDevice device(lanes.size());
  std::vector<double> ends(stream.size(), kNever);
  for (size_t i = 0; i < stream.size(); ++i) ends[i] = stream[i] < 0 ? 0 : kNever;
  double now = 0;
  const auto ready = [&](int node, int on) {
    double at = 0;
    for (int before : chains.dependencies[static_cast<size_t>(node)])
      at = std::max(at, ends[static_cast<size_t>(before)] + (stream[static_cast<size_t>(before)] != on ? costs.event_seconds : 0));
    return at;
  };
  for (double next = 0; next < kNever;) {
    now = next;
    device.AdvanceTo(now);
    next = kNever;
    for (size_t s = 0; s < lanes.size(); ++s) {
      Lane& lane = lanes[s];
      if (lane.running && !device.busy(s)) {
        ends[static_cast<size_t>(lane.nodes[lane.next++])] = now;
        lane.running = false;
      }
    }
    for (size_t s = 0; s < lanes.size(); ++s) {
      Lane& lane = lanes[s];
      if (lane.running || lane.next == lane.nodes.size()) continue;
      const double start = ready(lane.nodes[lane.next], static_cast<int>(s));
      if (start > now) {
        next = std::min(next, start);
        continue;
      }
      const auto node = static_cast<size_t>(lane.nodes[lane.next]);
      const double fixed = IsCollective(graph.nodes[node]) ? seconds[node] : std::min(seconds[node], costs.launch_seconds);
      device.Launch(s, fixed, seconds[node] - fixed);
      lane.running = true;
    }
    next = std::min(next, device.NextChange());
  }
  return now;
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
      const std::vector<double> seconds = SecondsOfNodes(graph, each, costs);
      const Assignment made = Assign(graph, chains, count, seconds, costs.event_seconds);
      const double makespan = costs.streams_share ? SharedMakespan(graph, chains, made.stream, seconds, costs) : made.makespan;
      // Streams keep buffers apart that could share memory, so a GPU, whose rates they do not increase, must gain from them.
      if (count > 1 && makespan >= best * (costs.streams_share ? kWorthStreams : 1)) continue;
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
