#include "compiler/passes/memory/kept_values.h"

#include <algorithm>

#include "compiler/passes/memory/plan_memory.h"
#include "compiler/passes/schedule/node_order.h"

namespace gradloom {
namespace {

// A larger result must not have many more bytes than the operands: padding is kept, weights in another type are not.
constexpr int64_t kSmallBytes = 64 << 10;
bool IsMuchMore(int64_t bytes, int64_t than) { return bytes - than > than / 4; }

int64_t StoredBytes(const Graph& graph, const ProgramPlan& plan, const std::vector<ValueId>& ids) {
  int64_t bytes = 0;
  for (const ValueId id : ids) {
    if (id != kNoValue) bytes += plan.layout(id).elements(graph.value(id).shape) * DTypeBytes(graph.value(id).dtype);
  }
  return bytes;
}

// By value: whether it is fetched, or is a view of the same bytes as a fetched value.
std::vector<bool> FetchedValues(const Graph& graph) {
  std::vector<bool> fetched(static_cast<size_t>(graph.num_values()));
  for (const ValueId id : graph.outputs) fetched[static_cast<size_t>(id)] = true;
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    if (IsView(node) && fetched[static_cast<size_t>(node.outputs[0])]) fetched[static_cast<size_t>(node.inputs[0])] = true;
  }
  return fetched;
}

}  // namespace

std::vector<bool> WeightsAlone(const Graph& graph, const ProgramPlan& plan) {
  std::vector<bool> settled(static_cast<size_t>(graph.num_values()));
  for (const Value& value : graph.values()) {
    settled[static_cast<size_t>(value.id)] =
        value.next_of == kNoValue && (value.role == Role::kConst || value.role == Role::kParam || value.role == Role::kState);
  }
  for (const Value& value : graph.values()) {
    if (value.next_of != kNoValue) settled[static_cast<size_t>(value.next_of)] = false;
  }
  const std::vector<bool> fetched = FetchedValues(graph);
  for (const Node& node : graph.nodes) {
    bool all = node.regions.empty() && !IsCollective(node) && !IsInputCopy(node);
    ForEachUse(node, [&](ValueId id) { all = all && settled[static_cast<size_t>(id)]; });
    for (const ValueId id : node.outputs) {
      if (id != kNoValue && (fetched[static_cast<size_t>(id)] || graph.value(id).next_of != kNoValue)) all = false;
    }
    if (all && !IsView(node)) {
      const int64_t made = StoredBytes(graph, plan, node.outputs);
      all = made <= kSmallBytes || !IsMuchMore(made, StoredBytes(graph, plan, node.inputs));
    }
    for (const ValueId id : node.outputs) {
      if (id != kNoValue) settled[static_cast<size_t>(id)] = all;
    }
  }
  return settled;
}

std::vector<bool> KeptValues(const Graph& graph, const ProgramPlan& plan) {
  const std::vector<bool> settled = WeightsAlone(graph, plan);
  std::vector<bool> kept(settled.size()), computed(settled.size());
  std::vector<ValueId> viewed(settled.size());  // what a value is a view of
  for (size_t id = 0; id < viewed.size(); ++id) viewed[id] = static_cast<ValueId>(id);
  for (const Node& node : graph.nodes) {
    if (IsView(node)) {
      viewed[static_cast<size_t>(node.outputs[0])] = viewed[static_cast<size_t>(node.inputs[0])];
      continue;
    }
    bool has_settled = false;
    for (const ValueId id : node.outputs) {
      if (id == kNoValue || !settled[static_cast<size_t>(id)]) continue;
      has_settled = computed[static_cast<size_t>(id)] = true;
    }
    if (has_settled) continue;
    ForEachUse(node, [&](ValueId id) {
      const auto shown = static_cast<size_t>(viewed[static_cast<size_t>(id)]);
      if (computed[shown]) kept[shown] = true;
    });
  }
  // A loop overwrites its initial values.
  for (const Node& node : graph.nodes) {
    if (node.op != "Loop") continue;
    ForEachUse(node, [&](ValueId id) { kept[static_cast<size_t>(viewed[static_cast<size_t>(id)])] = false; });
  }
  return kept;
}

bool PlanMemoryKeeping(const Graph& graph, const Plan& whole, ProgramPlan& plan, std::vector<bool> kept, int64_t limit_bytes) {
  std::vector<ValueId> ids;
  for (size_t id = 0; id < kept.size(); ++id) {
    if (kept[id]) ids.push_back(static_cast<ValueId>(id));
  }
  std::stable_sort(ids.begin(), ids.end(),
                   [&](ValueId a, ValueId b) { return StoredBytes(graph, plan, {a}) < StoredBytes(graph, plan, {b}); });
  const auto fits = [&](size_t count) {
    kept.assign(kept.size(), false);
    for (size_t i = 0; i < count; ++i) kept[static_cast<size_t>(ids[i])] = true;
    PlanMemory(graph, whole, plan, kept);
    return plan.transient_bytes + 2 * plan.input_bytes <= limit_bytes;
  };
  if (fits(ids.size())) return !ids.empty();
  if (ids.empty() || !fits(0)) return false;
  // So many fit, and so many do not.
  size_t fit = 0, excess = ids.size();
  while (fit + 1 < excess) {
    const size_t middle = fit + (excess - fit) / 2;
    (fits(middle) ? fit : excess) = middle;
  }
  fits(fit);
  return fit > 0;
}

}  // namespace gradloom
