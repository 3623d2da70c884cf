#include "compiler/passes/update/stored_vectors.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <string>
#include <vector>

#include "compiler/ops/op.h"

namespace gradloom {
namespace {

// "onnx::Add_12", "val_3", "view", "unsqueeze_1", "const_fold_opt__66"; "act.weight/val_3" if the import has restored it.
bool IsGenerated(const std::string& full_name) {
  const std::string name = full_name.substr(full_name.rfind('/') + 1);
  static const std::set<std::string> made = {"const_fold_opt", "expand", "reshape", "unsqueeze", "val", "view"};
  if (name.starts_with("onnx::")) return true;
  size_t end = name.size();
  while (end > 0 && std::isdigit(static_cast<unsigned char>(name[end - 1])) != 0) --end;
  while (end > 0 && name[end - 1] == '_') --end;
  return made.contains(name.substr(0, end));
}

bool IsRecurrentVector(const Node& node, size_t operand) {
  return (node.op == "LSTM" && (operand == 3 || operand == 7)) || ((node.op == "GRU" || node.op == "RNN") && operand == 3);
}

bool IsScaleOrBias(const Node& node, size_t operand) {
  static const std::set<std::string> pointwise = {"Add", "Div", "Mul", "Sub", "Sum"};
  return pointwise.contains(node.op) || (node.op == "PRelu" && operand == 1);
}

// Whether `accepts` holds for every use of the value, directly or after data movement, and there is one.
template <typename F>
bool AllUses(const Graph& graph, const Uses& uses, ValueId id, F accepts) {
  // Not a recursion: a file may have any number of moves after each other.
  std::vector<ValueId> open = {id};
  while (!open.empty()) {
    const ValueId value = open.back();
    open.pop_back();
    const std::vector<int>& readers = uses.consumers[static_cast<size_t>(value)];
    if (readers.empty()) return false;
    for (int position : readers) {
      const Node& node = graph.nodes[static_cast<size_t>(position)];
      if (ForwardsElements(node) && node.inputs[0] == value) {
        open.push_back(node.outputs[0]);
        continue;
      }
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        if (node.inputs[i] == value && !(node.domain.empty() && accepts(node, i))) return false;
      }
      if (!node.regions.empty()) return false;
    }
  }
  return true;
}

}  // namespace

std::set<ValueId> StoredVectors(const Graph& graph, std::span<const ValueId> parameters) {
  const Uses uses(graph);
  std::set<ValueId> vectors;
  for (ValueId id : parameters) {
    const Value& value = graph.value(id);
    if (value.shape.rank() < 2) continue;
    const auto long_axes = std::count_if(value.shape.begin(), value.shape.end(), [](int64_t extent) { return extent > 1; });
    const bool broadcast = long_axes < 2 && IsGenerated(value.name) && AllUses(graph, uses, id, IsScaleOrBias);
    if (broadcast || AllUses(graph, uses, id, IsRecurrentVector)) vectors.insert(id);
  }
  return vectors;
}

}  // namespace gradloom
