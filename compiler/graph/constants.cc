#include "compiler/graph/constants.h"

namespace gradloom {

const Tensor* ConstantData(const Graph& graph, ValueId id) {
  return id == kNoValue || graph.value(id).role != Role::kConst ? nullptr : graph.data(id);
}

std::optional<std::vector<int64_t>> ConstantInts(const Graph& graph, const Node& node, size_t input) {
  const Tensor* data = ConstantData(graph, input < node.inputs.size() ? node.inputs[input] : kNoValue);
  if (data == nullptr || (data->dtype() != DType::kInt64 && data->dtype() != DType::kInt32)) return std::nullopt;
  return IntValues(data->view());
}

std::optional<double> UniformConstant(const Graph& graph, ValueId id) {
  const Tensor* data = ConstantData(graph, id);
  if (data == nullptr || data->elements() == 0) return std::nullopt;
  const double first = ElementAsDouble(data->view(), 0);
  for (int64_t i = 1; i < data->elements(); ++i) {
    if (ElementAsDouble(data->view(), i) != first) return std::nullopt;
  }
  return first;
}

}  // namespace gradloom
