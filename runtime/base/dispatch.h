// Calls a template with the C++ type of a dtype that is known only at run time.
#pragma once

#include <string>
#include <type_traits>
#include <utility>

#include "runtime/base/dtype.h"
#include "runtime/base/error.h"
#include "runtime/base/half.h"

namespace gradloom {

// Calls f(std::type_identity<T>{}) with the C++ type of `dtype`, for every fixed-size type except the narrow ones.
template <typename F>
decltype(auto) WithType(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kFloat32: return f(std::type_identity<float>{});
    case DType::kFloat64: return f(std::type_identity<double>{});
    case DType::kFloat16: return f(std::type_identity<Half>{});
    case DType::kBfloat16: return f(std::type_identity<Bfloat16>{});
    case DType::kInt8: return f(std::type_identity<int8_t>{});
    case DType::kInt16: return f(std::type_identity<int16_t>{});
    case DType::kInt32: return f(std::type_identity<int32_t>{});
    case DType::kInt64: return f(std::type_identity<int64_t>{});
    case DType::kUint8: return f(std::type_identity<uint8_t>{});
    case DType::kUint16: return f(std::type_identity<uint16_t>{});
    case DType::kUint32: return f(std::type_identity<uint32_t>{});
    case DType::kUint64: return f(std::type_identity<uint64_t>{});
    case DType::kBool: return f(std::type_identity<bool>{});
    default: break;
  }
  throw Error(ErrorCode::kType, "elements of type " + std::string(DTypeName(dtype)) + " have no numeric value");
}

// The same for float32 and float64 only; others throw Error(kType).
template <typename F>
decltype(auto) WithFloat(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kFloat32: return f(std::type_identity<float>{});
    case DType::kFloat64: return f(std::type_identity<double>{});
    default: break;
  }
  throw Error(ErrorCode::kType, "expected float32 or float64, got " + std::string(DTypeName(dtype)));
}

}  // namespace gradloom
