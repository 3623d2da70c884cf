// Resize and its gradient: both apply the maps of the axes, one axis after the other.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/reference/axis_maps.h"
#include "kernels/reference/families.h"
#include "kernels/reference/operands.h"

namespace gradloom {
namespace {

// Applies one axis's map, or its transpose, to [outer, extent, inner].
template <bool kTranspose, typename A>
std::vector<A> ApplyAxis(const AxisMap& map, int64_t outer, int64_t inner, const std::vector<A>& from) {
  const int64_t from_extent = kTranspose ? map.out : map.in, to_extent = kTranspose ? map.in : map.out;
  std::vector<A> to(static_cast<size_t>(outer * to_extent * inner));
  for (int64_t i = 0; i < outer; ++i) {
    const A* source = from.data() + i * from_extent * inner;
    A* target = to.data() + i * to_extent * inner;
    for (int64_t o = 0; o < map.out; ++o) {
      for (size_t k = map.starts[static_cast<size_t>(o)]; k < map.starts[static_cast<size_t>(o) + 1]; ++k) {
        const A weight = static_cast<A>(map.weights[k]);
        const A* x = source + (kTranspose ? o : map.indices[k]) * inner;
        A* y = target + (kTranspose ? map.indices[k] : o) * inner;
        for (int64_t j = 0; j < inner; ++j) y[j] += weight * x[j];
      }
    }
  }
  return to;
}

template <bool kTranspose, typename A>
std::vector<A> ApplyAll(const std::vector<AxisMap>& maps, Shape shape, std::vector<A> values) {
  for (int step = 0; step < shape.rank(); ++step) {
    const int axis = kTranspose ? shape.rank() - 1 - step : step;
    const AxisMap& map = maps[static_cast<size_t>(axis)];
    if (map.identity) continue;
    values = ApplyAxis<kTranspose>(map, Product(shape, 0, axis), Product(shape, axis + 1, shape.rank()), values);
    shape[axis] = kTranspose ? map.in : map.out;
  }
  return values;
}

// Sets the outputs that are outside along any axis.
template <typename A>
void Extrapolate(const std::vector<AxisMap>& maps, const Shape& shape, A value, std::vector<A>& values) {
  const std::vector<int64_t> strides = shape.strides();
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const std::vector<bool>& outside = maps[static_cast<size_t>(axis)].outside;
    if (std::find(outside.begin(), outside.end(), true) == outside.end()) continue;
    const int64_t stride = strides[static_cast<size_t>(axis)];
    for (size_t i = 0; i < values.size(); ++i) {
      if (outside[static_cast<size_t>(static_cast<int64_t>(i) / stride % shape[axis])]) values[i] = value;
    }
  }
}

template <typename T>
using Sum = std::conditional_t<kIsHalf<T> || std::is_same_v<T, float>, float, double>;

template <typename T>
std::vector<Sum<T>> Loaded(const T* from, int64_t n) {
  std::vector<Sum<T>> values(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) values[static_cast<size_t>(i)] = static_cast<Sum<T>>(from[i]);
  return values;
}

void Resize(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  const Shape &from = call.inputs[0].shape, &to = call.outputs[0].shape;
  const std::vector<AxisMap> maps = ResizeMaps(call, inputs, from, to);
  WithType(call.inputs[0].dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    std::vector<Sum<T>> values = ApplyAll<false>(maps, from, Loaded(In<T>(inputs, 0), from.elements()));
    double outside = call.attributes.Float("extrapolation_value", 0);
    // As in QuantizeLinear, NaN becomes the lowest integer.
    if (std::isnan(outside) && IsInteger(call.inputs[0].dtype)) outside = -std::numeric_limits<double>::infinity();
    Extrapolate(maps, to, static_cast<Sum<T>>(outside), values);
    for (size_t i = 0; i < values.size(); ++i) Out<T>(outputs, 0)[i] = Saturated<T>(values[i]);
  });
}

// Input 0 is the gradient of Y.
void ResizeGrad(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  const Shape &from = call.outputs[0].shape, &to = call.inputs[0].shape;
  const std::vector<AxisMap> maps = ResizeMaps(call, inputs, from, to);
  WithFloating(call.inputs[0].dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const std::vector<Sum<T>> values = ApplyAll<true>(maps, to, Loaded(In<T>(inputs, 0), to.elements()));
    for (size_t i = 0; i < values.size(); ++i) Out<T>(outputs, 0)[i] = static_cast<T>(values[i]);
  });
}

constexpr ReferenceKernel kKernels[] = {
    {"Resize", "", Resize},
    {"ResizeGrad", "gradloom", ResizeGrad},
};

}  // namespace

std::span<const ReferenceKernel> ReferenceResize() { return kKernels; }

}  // namespace gradloom
