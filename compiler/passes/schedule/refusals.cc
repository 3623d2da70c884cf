#include "compiler/passes/schedule/refusals.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "compiler/passes/schedule/choose_kernels.h"
#include "kernels/catalog/data_checks.h"

namespace gradloom {
namespace {

// Finds the value that a chain of views shows, and its producer.
class Origins {
 public:
  explicit Origins(const Graph& graph)
      : graph_(graph), shown_(static_cast<size_t>(graph.num_values())), producer_(static_cast<size_t>(graph.num_values()), nullptr) {
    std::iota(shown_.begin(), shown_.end(), 0);
    for (const Node& node : graph.nodes) {
      if (IsView(node)) {
        shown_[static_cast<size_t>(node.outputs[0])] = of(node.inputs[0]);
        continue;
      }
      for (ValueId id : node.outputs) {
        if (id != kNoValue) producer_[static_cast<size_t>(id)] = &node;
      }
    }
  }

  ValueId of(ValueId id) const { return shown_[static_cast<size_t>(id)]; }

  // Whether the elements pass the check for every batch. A failing constant is not the fault of a batch, so constants pass.
  bool Passes(const DataCheck& check, ValueId origin) const {
    if (graph_.value(origin).role == Role::kConst) return true;
    const Node* const producer = producer_[static_cast<size_t>(origin)];
    if (producer == nullptr || !producer->regions.empty()) return false;
    const auto output = std::find(producer->outputs.begin(), producer->outputs.end(), origin) - producer->outputs.begin();
    return check.AcceptsIndicesBelow(IndicesBelow(CallOf(graph_, *producer, {}), static_cast<size_t>(output)));
  }

  // Calls f(check, origin) for each data check of a node without bodies that may fail.
  template <typename F>
  void ForEachDataCheck(const Node& node, F&& f) const {
    if (!node.regions.empty() || !MayRefuseData(node.domain, node.op)) return;
    for (const DataCheck& check : DataChecksOf(CallOf(graph_, node, {}))) {
      if (check.input >= node.inputs.size() || node.inputs[check.input] == kNoValue) continue;
      const ValueId origin = of(node.inputs[check.input]);
      if (!Passes(check, origin)) f(check, origin);
    }
  }

 private:
  const Graph& graph_;
  std::vector<ValueId> shown_;
  std::vector<const Node*> producer_;  // by value id; null: an input, a constant or a state
};

bool BodyMayRefuse(const Graph& body);

// Whether a branch or a loop may refuse the batch: in a body, or because a loop exceeds its trip bound.
bool DecisionMayRefuse(const Graph& graph, const Node& node) {
  if (node.op == "Loop") {
    const ValueId trips = node.inputs[0];
    if (node.attributes.Int("conditional", 0) != 0 || (trips != kNoValue && graph.value(trips).role != Role::kConst)) return true;
  }
  return std::any_of(node.regions.begin(), node.regions.end(), [](const Region& region) { return BodyMayRefuse(*region.body); });
}

bool BodyMayRefuse(const Graph& body) {
  const Origins origins(body);
  return std::any_of(body.nodes.begin(), body.nodes.end(), [&](const Node& node) {
    bool refuses = !node.regions.empty() && DecisionMayRefuse(body, node);
    origins.ForEachDataCheck(node, [&](const DataCheck&, ValueId) { refuses = true; });
    return refuses;
  });
}

}  // namespace

bool WritesState(const Graph& graph, const Node& node) {
  return std::any_of(node.outputs.begin(), node.outputs.end(),
                     [&](ValueId id) { return id != kNoValue && graph.value(id).next_of != kNoValue; });
}

std::vector<int> RefusingNodes(const Graph& graph, const NodeOrder* order) {
  struct CheckedValue {
    DataCheck check;
    int node;
  };
  const Origins origins(graph);
  std::map<ValueId, std::vector<CheckedValue>> first;  // by origin
  std::vector<int> refusing;
  for (int i = 0; i < static_cast<int>(graph.nodes.size()); ++i) {
    const Node& node = graph.nodes[static_cast<size_t>(i)];
    bool refuses = !node.regions.empty() && DecisionMayRefuse(graph, node);
    origins.ForEachDataCheck(node, [&](const DataCheck& check, ValueId origin) {
      std::vector<CheckedValue>& earlier = first[origin];
      const bool known = std::any_of(earlier.begin(), earlier.end(), [&](const CheckedValue& checked) {
        return check.ImpliedBy(checked.check) && (order == nullptr || order->Before(checked.node, i));
      });
      if (known) return;
      earlier.push_back({check, i});
      refuses = true;
    });
    if (refuses) refusing.push_back(i);
  }
  return refusing;
}

std::vector<bool> CheckedValues(const Graph& graph) {
  const Origins origins(graph);
  std::vector<bool> checked(static_cast<size_t>(graph.num_values()));
  for (const Node& node : graph.nodes) {
    origins.ForEachDataCheck(node, [&](const DataCheck& check, ValueId origin) {
      checked[static_cast<size_t>(origin)] = true;
      if (check.kind != DataCheck::Kind::kOther) return;
      for (ValueId id : node.outputs) {
        if (id != kNoValue) checked[static_cast<size_t>(id)] = true;
      }
    });
  }
  return checked;
}

int FirstCollectiveAfter(const Graph& graph, const std::vector<int>& refusing) {
  if (refusing.empty()) return -1;
  const auto first = graph.nodes.begin() + refusing.back() + 1;
  for (const char* op : {"AllReduce", "Recv"}) {
    const auto informs = std::find_if(first, graph.nodes.end(), [&](const Node& node) { return IsCollective(node) && node.op == op; });
    if (informs != graph.nodes.end()) return static_cast<int>(informs - graph.nodes.begin());
  }
  return -1;
}

}  // namespace gradloom
