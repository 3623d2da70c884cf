#include "compiler/graph/graph.h"

#include <utility>

namespace gradloom {
namespace {

// Returns a free number from 1 on; the smallest one if the taken numbers are contiguous. Uses a logarithmic number of queries: counting up
// for each of n values with the same name would take O(n^2).
template <typename Taken>
int64_t FirstFree(Taken taken) {
  int64_t below = 0, free = 1;
  while (taken(free)) {
    below = free;
    free *= 2;
  }
  while (free - below > 1) {
    const int64_t middle = below + (free - below) / 2;
    (taken(middle) ? below : free) = middle;
  }
  return free;
}

}  // namespace

ValueId Graph::AddValue(std::string name, DType dtype, Shape shape, Role role) {
  const ValueId id = static_cast<ValueId>(values_.size());
  std::string unique = name;
  if (unique.empty() || by_name_.contains(unique)) {
    const auto numbered = [&](int64_t i) { return name + "." + std::to_string(i); };
    unique = numbered(FirstFree([&](int64_t i) { return by_name_.contains(numbered(i)); }));
  }
  by_name_.emplace(unique, id);
  values_.push_back({.id = id, .name = std::move(unique), .dtype = dtype, .shape = std::move(shape), .role = role});
  return id;
}

ValueId Graph::AddData(std::string name, Tensor data, Role role) {
  const ValueId id = AddValue(std::move(name), data.dtype(), data.shape(), role);
  data_.emplace(id, std::move(data));
  return id;
}

Node& Graph::AddNode(Node node) {
  node.id = next_node_id_++;
  nodes.push_back(std::move(node));
  return nodes.back();
}

ValueId Graph::Find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? kNoValue : found->second;
}

const Tensor* Graph::data(ValueId id) const {
  const auto found = data_.find(id);
  return found == data_.end() ? nullptr : &found->second;
}

std::unique_ptr<Graph> Graph::Clone() const {
  auto copy = std::make_unique<Graph>(*this);
  for (Node& node : copy->nodes) {
    for (Region& region : node.regions) region.body = region.body->Clone();
  }
  return copy;
}

void ForEachUse(const Node& node, const std::function<void(ValueId)>& f) {
  for (ValueId id : node.inputs) {
    if (id != kNoValue) f(id);
  }
}

Uses::Uses(const Graph& graph) : producer(static_cast<size_t>(graph.num_values()), -1), consumers(static_cast<size_t>(graph.num_values())) {
  for (int i = 0; i < static_cast<int>(graph.nodes.size()); ++i) {
    const Node& node = graph.nodes[static_cast<size_t>(i)];
    for (ValueId id : node.outputs) {
      if (id != kNoValue) producer[static_cast<size_t>(id)] = i;
    }
    ForEachUse(node, [&](ValueId id) {
      auto& list = consumers[static_cast<size_t>(id)];
      if (list.empty() || list.back() != i) list.push_back(i);
    });
  }
}

std::string Describe(const Node& node) {
  const std::string op = node.domain.empty() ? node.op : node.domain + "." + node.op;
  return node.origin.empty() ? Escaped(op) : Escaped(op) + " '" + Escaped(node.origin) + "'";
}

}  // namespace gradloom
