#include "compiler/oracle/interpreter.h"

#include <algorithm>
#include <utility>

#include "compiler/graph/dependencies.h"
#include "kernels/reference/reference.h"

namespace gradloom {
namespace {

OperandType OperandOf(const Graph& graph, ValueId id) {
  if (id == kNoValue) return {};
  return {graph.value(id).dtype, graph.value(id).shape, Layout{}};
}

std::vector<Tensor> RunBody(const Graph& body, std::span<const Tensor> inputs) {
  std::map<ValueId, Tensor> feeds;
  for (size_t i = 0; i < body.inputs.size(); ++i) feeds.emplace(body.inputs[i], inputs[i]);
  return Interpret(body, feeds, body.outputs);
}

// Runs a branch or a loop (compiler/ops/control_flow.cc).
std::vector<Tensor> Decide(const Node& node, const std::vector<Tensor>& inputs) {
  std::vector<Tensor> operands(inputs.begin() + 1, inputs.end());
  if (node.op == "If") return RunBody(*node.regions[inputs[0].as<bool>()[0] ? 0 : 1].body, operands);
  const auto carried = node.attributes.Int("carried", 0);
  const bool conditional = node.attributes.Int("conditional", 0) != 0;
  for (int64_t trip = 0; !inputs[0].defined() || trip < inputs[0].as<int64_t>()[0]; ++trip) {
    if (conditional && !operands[0].as<bool>()[0]) break;
    if (trip >= node.attributes.Int("trip_bound", 0)) throw Error(ErrorCode::kData, "a loop ran past its trip bound", Describe(node));
    std::vector<Tensor> next = RunBody(*node.regions[0].body, operands);
    std::move(next.begin(), next.end(), operands.begin());
  }
  operands.resize(static_cast<size_t>(carried));
  return operands;
}

}  // namespace

std::vector<Tensor> Interpret(const Graph& graph, const std::map<ValueId, Tensor>& feeds, std::span<const ValueId> wanted) {
  std::vector<Tensor> values(static_cast<size_t>(graph.num_values()));
  for (const Value& value : graph.values()) {
    if (const Tensor* data = graph.data(value.id)) {
      values[static_cast<size_t>(value.id)] = *data;
    } else if (value.role == Role::kState && value.next_of == kNoValue) {
      values[static_cast<size_t>(value.id)] = Tensor(value.dtype, value.shape);
    }
  }
  for (const auto& [id, tensor] : feeds) values[static_cast<size_t>(id)] = tensor;
  for (const Value& value : graph.values()) {
    if (value.rounded_of == kNoValue || feeds.contains(value.id)) continue;
    const Tensor& parameter = values[static_cast<size_t>(value.rounded_of)];
    if (parameter.defined()) values[static_cast<size_t>(value.id)] = Converted(parameter.view(), value.dtype);
  }

  const Dependencies needed(graph, wanted);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (!needed.nodes[i]) continue;
    const Node& node = graph.nodes[i];
    KernelCall call{.op = node.op, .domain = node.domain, .attributes = node.attributes, .inputs = {}, .outputs = {}};
    std::vector<Tensor> inputs;
    for (ValueId id : node.inputs) {
      call.inputs.push_back(OperandOf(graph, id));
      inputs.push_back(id == kNoValue ? Tensor() : values[static_cast<size_t>(id)]);
      if (id != kNoValue && !inputs.back().defined()) {
        throw Error(ErrorCode::kInternal, "value '" + Escaped(graph.value(id).name) + "' has neither data nor a feed", Describe(node));
      }
    }
    for (ValueId id : node.outputs) call.outputs.push_back(OperandOf(graph, id));
    std::vector<Tensor> outputs = node.regions.empty() ? RunReference(call, inputs) : Decide(node, inputs);
    for (size_t k = 0; k < outputs.size(); ++k) {
      if (node.outputs[k] != kNoValue) values[static_cast<size_t>(node.outputs[k])] = std::move(outputs[k]);
    }
  }

  std::vector<Tensor> results;
  for (ValueId id : wanted) {
    if (!values[static_cast<size_t>(id)].defined()) {
      throw Error(ErrorCode::kInternal, "value '" + Escaped(graph.value(id).name) + "' is not computed");
    }
    results.push_back(values[static_cast<size_t>(id)]);
  }
  return results;
}

std::unique_ptr<Graph> InDouble(const Graph& graph) {
  auto copy = graph.Clone();
  for (int id = 0; id < copy->num_values(); ++id) {
    Value& value = copy->value(id);
    if (value.dtype == DType::kFloat32) value.dtype = DType::kFloat64;
    const Tensor* data = copy->data(id);
    if (data != nullptr && data->dtype() == DType::kFloat32) copy->set_data(id, Converted(data->view(), DType::kFloat64));
  }
  for (Node& node : copy->nodes) {
    for (Region& region : node.regions) region.body = InDouble(*region.body);
    for (const char* name : {"to", "dtype", "stash_type"}) {
      if (node.attributes.has(name) && node.attributes.Int(name, 0) == static_cast<int64_t>(DType::kFloat32)) {
        node.attributes.set(name, static_cast<int64_t>(DType::kFloat64));
      }
    }
    for (const auto& [name, attribute] : Attributes(node.attributes)) {
      const Tensor* tensor = std::get_if<Tensor>(&attribute);
      if (tensor != nullptr && tensor->dtype() == DType::kFloat32) node.attributes.set(name, Converted(tensor->view(), DType::kFloat64));
    }
  }
  return copy;
}

}  // namespace gradloom
