// Shared parts of the reference kernels: typed operands, the type to compute in, broadcasting.
#pragma once

#include <array>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "kernels/catalog/kernel.h"
#include "runtime/base/dispatch.h"
#include "runtime/base/error.h"
#include "runtime/base/tensor.h"

namespace gradloom {

template <typename T>
inline constexpr bool kIsHalf = std::is_same_v<T, Half> || std::is_same_v<T, Bfloat16>;

// The type of an expression over elements: float for 16-bit floating-point types.
template <typename T>
using Arithmetic = std::conditional_t<kIsHalf<T>, float, T>;

// The type of a long sum: double for floating-point elements. Integers wrap at 64 bits, and then at their own width.
template <typename T>
using Accumulator = std::conditional_t<kIsHalf<T> || std::is_floating_point_v<T>, double, uint64_t>;

// Converts `value` to an element. For integers, it is truncated towards zero, like a cast, and clamped to their range. Also used in device
// code.
template <typename T, typename V>
constexpr T Saturated(V value) {
  if constexpr (kIsHalf<T> || std::is_floating_point_v<T>) {
    return static_cast<T>(value);
  } else {
    if (value <= static_cast<double>(std::numeric_limits<T>::lowest())) return std::numeric_limits<T>::lowest();
    if (value >= static_cast<double>(std::numeric_limits<T>::max())) return std::numeric_limits<T>::max();
    return static_cast<T>(value);
  }
}

// Calls f(std::type_identity<T>{}) for the four floating-point types; other types throw Error(kType).
template <typename F>
decltype(auto) WithFloating(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kFloat32: return f(std::type_identity<float>{});
    case DType::kFloat64: return f(std::type_identity<double>{});
    case DType::kFloat16: return f(std::type_identity<Half>{});
    case DType::kBfloat16: return f(std::type_identity<Bfloat16>{});
    default: break;
  }
  throw Error(ErrorCode::kType, "expected floating-point elements, got " + std::string(DTypeName(dtype)));
}

// The same for the eight integer types.
template <typename F>
decltype(auto) WithInteger(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kInt8: return f(std::type_identity<int8_t>{});
    case DType::kInt16: return f(std::type_identity<int16_t>{});
    case DType::kInt32: return f(std::type_identity<int32_t>{});
    case DType::kInt64: return f(std::type_identity<int64_t>{});
    case DType::kUint8: return f(std::type_identity<uint8_t>{});
    case DType::kUint16: return f(std::type_identity<uint16_t>{});
    case DType::kUint32: return f(std::type_identity<uint32_t>{});
    case DType::kUint64: return f(std::type_identity<uint64_t>{});
    default: break;
  }
  throw Error(ErrorCode::kType, "expected integers, got " + std::string(DTypeName(dtype)));
}

// The same for floating-point and integer types, but not for bool, which has no arithmetic.
template <typename F>
decltype(auto) WithNumber(DType dtype, F&& f) {
  return IsFloating(dtype) ? WithFloating(dtype, f) : WithInteger(dtype, f);
}

// The same with an unsigned integer that is as wide as an element, which is enough to move elements.
template <typename F>
decltype(auto) WithBytes(DType dtype, F&& f) {
  switch (DTypeBytes(dtype)) {
    case 1: return f(std::type_identity<uint8_t>{});
    case 2: return f(std::type_identity<uint16_t>{});
    case 4: return f(std::type_identity<uint32_t>{});
    case 8: return f(std::type_identity<uint64_t>{});
    default: break;
  }
  throw Error(ErrorCode::kType, "elements of type " + std::string(DTypeName(dtype)) + " have no fixed size");
}

inline bool Has(const std::vector<OperandType>& operands, size_t i) { return i < operands.size() && operands[i].present(); }

// The elements of input or output i. The caller must know the dtype.
template <typename T>
const T* In(const void* const* inputs, size_t i) {
  return static_cast<const T*>(inputs[i]);
}
template <typename T>
T* Out(void* const* outputs, size_t i) {
  return static_cast<T*>(outputs[i]);
}

inline TensorView InputView(const KernelCall& call, const void* const* inputs, size_t i) {
  return {call.inputs[i].dtype, call.inputs[i].shape, inputs[i]};
}

// The integers of input i, or `absent` if it is absent.
std::vector<int64_t> InputInts(const KernelCall& call, const void* const* inputs, size_t i, std::vector<int64_t> absent = {});

// Converts `axis` to the range [0, rank). Throws Error(kAttr) with the operator.
int AxisOf(const KernelCall& call, int64_t axis, int rank);

// Converts an entry of an index operand in [-extent, extent) to the range [0, extent). Throws Error(kData) with the operator, the index and
// the extent.
int64_t CheckedIndex(const KernelCall& call, int64_t index, int64_t extent);

// The strides of `from` when it is broadcast to `to` as in numpy: 0 along repeated axes.
std::vector<int64_t> BroadcastStrides(const Shape& from, const Shape& to);

// A nest of loops over N operands. Merges axes where all operands allow it, and iterates over rows.
template <size_t N>
struct Nest {
  std::vector<int64_t> extents;
  std::array<std::vector<int64_t>, N> strides;

  Nest(const Shape& shape, std::array<std::vector<int64_t>, N> all) {
    for (int axis = 0; axis < shape.rank(); ++axis) {
      if (shape[axis] == 1) continue;
      bool merges = !extents.empty();
      for (size_t k = 0; k < N && merges; ++k) merges = strides[k].back() == all[k][static_cast<size_t>(axis)] * shape[axis];
      if (merges) {
        extents.back() *= shape[axis];
        for (size_t k = 0; k < N; ++k) strides[k].back() = all[k][static_cast<size_t>(axis)];
      } else {
        extents.push_back(shape[axis]);
        for (size_t k = 0; k < N; ++k) strides[k].push_back(all[k][static_cast<size_t>(axis)]);
      }
    }
  }

  // Calls f(n, offsets, steps) for each row, in row-major order: element j < n of operand k is at offsets[k] + j * steps[k].
  template <typename F>
  void ForEachRow(F&& f) const {
    std::array<int64_t, N> offsets{}, steps{};
    if (extents.empty()) {
      f(int64_t{1}, offsets, steps);
      return;
    }
    for (int64_t extent : extents) {
      if (extent == 0) return;
    }
    const size_t last = extents.size() - 1;
    for (size_t k = 0; k < N; ++k) steps[k] = strides[k][last];
    std::vector<int64_t> index(last, 0);
    while (true) {
      f(extents[last], offsets, steps);
      size_t axis = last;
      while (axis > 0) {
        --axis;
        for (size_t k = 0; k < N; ++k) offsets[k] += strides[k][axis];
        if (++index[axis] < extents[axis]) break;
        for (size_t k = 0; k < N; ++k) offsets[k] -= strides[k][axis] * extents[axis];
        index[axis] = 0;
        if (axis == 0) return;
      }
      if (last == 0) return;
    }
  }
};

// out[i] = f(a[i]).
template <typename A, typename O, typename F>
void Map(int64_t n, const A* a, O* out, F&& f) {
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<O>(f(static_cast<Arithmetic<A>>(a[i])));
}

// out[i] = f(a[i], b[i]) with inputs 0 and 1 broadcast to output 0.
template <typename A, typename B, typename O, typename F>
void MapBroadcast(const KernelCall& call, const void* const* inputs, void* const* outputs, F&& f) {
  const Shape& shape = call.outputs[0].shape;
  const A* a = In<A>(inputs, 0);
  const B* b = In<B>(inputs, 1);
  O* out = Out<O>(outputs, 0);
  const Nest<2> nest(shape, {BroadcastStrides(call.inputs[0].shape, shape), BroadcastStrides(call.inputs[1].shape, shape)});
  nest.ForEachRow([&](int64_t n, const auto& offsets, const auto& steps) {
    const A* x = a + offsets[0];
    const B* y = b + offsets[1];
    const int64_t sx = steps[0], sy = steps[1];
    for (int64_t j = 0; j < n; ++j) {
      out[j] = static_cast<O>(f(static_cast<Arithmetic<A>>(x[j * sx]), static_cast<Arithmetic<B>>(y[j * sy])));
    }
    out += n;
  });
}

}  // namespace gradloom
