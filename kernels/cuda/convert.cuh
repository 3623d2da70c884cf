// Conversion of one element between numeric types on the device, by the rules of runtime/base/convert.h.
#pragma once

#include <limits>
#include <type_traits>

#include "kernels/cuda/launch.cuh"
#include "kernels/reference/operands.h"

namespace gradloom::cuda {

// Floating-point to integer truncates, saturates, and maps NaN to 0. To bool: nonzero is true.
template <typename To, typename From>
GRADLOOM_DEVICE To Convert(From from) {
  if constexpr (std::is_same_v<To, From>) {
    return from;
  } else if constexpr (std::is_same_v<To, bool>) {
    return static_cast<Arithmetic<From>>(from) != 0;
  } else if constexpr (std::is_integral_v<To> && !std::is_integral_v<From>) {
    const auto value = static_cast<Arithmetic<From>>(from);
    using A = decltype(value);
    if (value != value) return 0;
    // A power of two is exact in every floating-point type; the largest integer is not.
    constexpr A kLow = static_cast<A>(std::numeric_limits<To>::min());
    constexpr A kPast = static_cast<A>(std::numeric_limits<To>::max() / 2 + 1) * 2;
    if (value <= kLow) return std::numeric_limits<To>::min();
    if (value >= kPast) return std::numeric_limits<To>::max();
    return static_cast<To>(value);
  } else if constexpr (kIsHalf<To>) {
    return To(static_cast<float>(from));
  } else {
    return static_cast<To>(from);
  }
}

// Loads element i of a tensor of any numeric type.
template <typename To>
GRADLOOM_DEVICE To LoadAs(const void* data, DType dtype, int64_t i) {
  switch (dtype) {
    case DType::kFloat32: return Convert<To>(static_cast<const float*>(data)[i]);
    case DType::kFloat64: return Convert<To>(static_cast<const double*>(data)[i]);
    case DType::kFloat16: return Convert<To>(static_cast<const Half*>(data)[i]);
    case DType::kBfloat16: return Convert<To>(static_cast<const Bfloat16*>(data)[i]);
    case DType::kInt8: return Convert<To>(static_cast<const int8_t*>(data)[i]);
    case DType::kInt16: return Convert<To>(static_cast<const int16_t*>(data)[i]);
    case DType::kInt32: return Convert<To>(static_cast<const int32_t*>(data)[i]);
    case DType::kInt64: return Convert<To>(static_cast<const int64_t*>(data)[i]);
    case DType::kUint8: return Convert<To>(static_cast<const uint8_t*>(data)[i]);
    case DType::kUint16: return Convert<To>(static_cast<const uint16_t*>(data)[i]);
    case DType::kUint32: return Convert<To>(static_cast<const uint32_t*>(data)[i]);
    case DType::kUint64: return Convert<To>(static_cast<const uint64_t*>(data)[i]);
    case DType::kBool: return Convert<To>(static_cast<const bool*>(data)[i]);
    default: return To{};
  }
}

// Stores the value as element i of a tensor of any numeric type.
template <typename From>
GRADLOOM_DEVICE void StoreAs(void* data, DType dtype, int64_t i, From value) {
  switch (dtype) {
    case DType::kFloat32: static_cast<float*>(data)[i] = Convert<float>(value); break;
    case DType::kFloat64: static_cast<double*>(data)[i] = Convert<double>(value); break;
    case DType::kFloat16: static_cast<Half*>(data)[i] = Convert<Half>(value); break;
    case DType::kBfloat16: static_cast<Bfloat16*>(data)[i] = Convert<Bfloat16>(value); break;
    case DType::kInt8: static_cast<int8_t*>(data)[i] = Convert<int8_t>(value); break;
    case DType::kInt16: static_cast<int16_t*>(data)[i] = Convert<int16_t>(value); break;
    case DType::kInt32: static_cast<int32_t*>(data)[i] = Convert<int32_t>(value); break;
    case DType::kInt64: static_cast<int64_t*>(data)[i] = Convert<int64_t>(value); break;
    case DType::kUint8: static_cast<uint8_t*>(data)[i] = Convert<uint8_t>(value); break;
    case DType::kUint16: static_cast<uint16_t*>(data)[i] = Convert<uint16_t>(value); break;
    case DType::kUint32: static_cast<uint32_t*>(data)[i] = Convert<uint32_t>(value); break;
    case DType::kUint64: static_cast<uint64_t*>(data)[i] = Convert<uint64_t>(value); break;
    case DType::kBool: static_cast<bool*>(data)[i] = Convert<bool>(value); break;
    default: break;
  }
}

}  // namespace gradloom::cuda
