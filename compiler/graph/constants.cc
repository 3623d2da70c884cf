#include "compiler/graph/constants.h"

#include <algorithm>
#include <cmath>

namespace gradloom {
namespace {

bool CanCount(DType dtype) { return dtype == DType::kInt64 || dtype == DType::kInt32 || dtype == DType::kFloat32; }

double NumberAt(const Tensor& data, int64_t i) {
  return IsFloating(data.dtype()) ? ElementAsDouble(data.view(), i) : static_cast<double>(ElementAsInt(data.view(), i));
}

// The number of parts along the axis, the elements of a part, and the extent of the last axis (1 if it is the same axis).
struct Parts {
  int64_t count, elements, width;

  Parts(const Shape& shape, int axis, int64_t parts)
      : count(parts),
        elements(shape[axis] / parts * shape.strides()[static_cast<size_t>(axis)]),
        width(axis == shape.rank() - 1 ? 1 : shape[shape.rank() - 1]) {}
};

template <typename T>
void CountOn(const Tensor& data, const Parts& from, const std::vector<int64_t>& steps, const Parts& to, Tensor& made) {
  const auto source = data.as<T>();
  const auto result = made.as<T>();
  for (int64_t i = 0; i < made.elements(); ++i) {
    const int64_t block = i / to.elements, sample = block % to.count, outer = block / to.count;
    const auto step = steps[steps.size() == 1 ? 0 : static_cast<size_t>(i % to.width)];
    result[static_cast<size_t>(i)] =
        static_cast<T>(source[static_cast<size_t>(outer * from.count * from.elements + i % to.elements)] + static_cast<T>(sample * step));
  }
}

}  // namespace

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

std::vector<int64_t> StepsAlong(const Tensor& data, int axis, int64_t count) {
  constexpr double kMax = 1e12;
  if (count < 2 || !CanCount(data.dtype()) || data.elements() == 0 || data.shape()[axis] % count != 0) return {};
  const Parts parts(data.shape(), axis, count);
  std::vector<int64_t> steps;
  for (int64_t k = 0; k < parts.width; ++k) {
    const double step = NumberAt(data, parts.elements + k) - NumberAt(data, k);
    if (step != std::floor(step) || std::abs(step) > kMax) return {};
    steps.push_back(static_cast<int64_t>(step));
  }
  for (int64_t i = 0; i < data.elements(); ++i) {
    const int64_t part = i / parts.elements % count;
    const double more = static_cast<double>(part * steps[static_cast<size_t>(i % parts.width)]);
    if (NumberAt(data, i) != NumberAt(data, i - part * parts.elements) + more) return {};
  }
  if (std::all_of(steps.begin(), steps.end(), [&](int64_t step) { return step == steps[0]; })) steps.resize(1);
  return steps;
}

Tensor CountedAlong(const Tensor& data, int axis, int64_t parts, const std::vector<int64_t>& steps, int64_t count) {
  Shape shape = data.shape();
  const Parts from(shape, axis, parts);
  shape[axis] = shape[axis] / parts * count;
  Tensor made(data.dtype(), shape);
  const Parts to(shape, axis, count);
  if (data.dtype() == DType::kInt64) CountOn<int64_t>(data, from, steps, to, made);
  if (data.dtype() == DType::kInt32) CountOn<int32_t>(data, from, steps, to, made);
  if (data.dtype() == DType::kFloat32) CountOn<float>(data, from, steps, to, made);
  return made;
}

}  // namespace gradloom
