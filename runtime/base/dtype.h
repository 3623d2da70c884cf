// Element types of tensors. The numbers are those of ONNX's TensorProto.DataType, so files need no table.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace gradloom {

enum class DType : uint8_t {
  kUndefined = 0,
  kFloat32 = 1,
  kUint8 = 2,
  kInt8 = 3,
  kUint16 = 4,
  kInt16 = 5,
  kInt32 = 6,
  kInt64 = 7,
  kString = 8,
  kBool = 9,  // one byte per element, 0 or 1
  kFloat16 = 10,
  kFloat64 = 11,
  kUint32 = 12,
  kUint64 = 13,
  kBfloat16 = 16,
  // Narrow types (narrow.h): one byte per element.
  kFloat8E4M3Fn = 17,
  kFloat8E4M3Fnuz = 18,
  kFloat8E5M2 = 19,
  kFloat8E5M2Fnuz = 20,
  kUint4 = 21,
  kInt4 = 22,
  kFloat4E2M1 = 23,
  kFloat8E8M0 = 24,
  kUint2 = 25,
  kInt2 = 26,
  kFloat6E2M3 = 27,
  kFloat6E3M2 = 28,
};

// One past the largest number of a type.
inline constexpr int kDTypes = 29;

// "float32", "int64", ... and "undefined".
std::string_view DTypeName(DType dtype);

// The inverse of DTypeName.
std::optional<DType> DTypeFromName(std::string_view name);

// Bytes of one element; 0 for kUndefined and kString, which have no fixed size.
int64_t DTypeBytes(DType dtype);

// float16, bfloat16, float32, float64: the floating-point types for computation, without the narrow ones.
bool IsFloating(DType dtype);

// float16 and bfloat16.
bool Is16BitFloat(DType dtype);

// The eight integer types of whole bytes, without bool.
bool IsInteger(DType dtype);

// DTypeOf<float>::value == DType::kFloat32, for the C++ types that a tensor's elements can have.
template <typename T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::kFloat32;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::kFloat64;
};
template <>
struct DTypeOf<int8_t> {
  static constexpr DType value = DType::kInt8;
};
template <>
struct DTypeOf<int16_t> {
  static constexpr DType value = DType::kInt16;
};
template <>
struct DTypeOf<int32_t> {
  static constexpr DType value = DType::kInt32;
};
template <>
struct DTypeOf<int64_t> {
  static constexpr DType value = DType::kInt64;
};
template <>
struct DTypeOf<uint8_t> {
  static constexpr DType value = DType::kUint8;
};
template <>
struct DTypeOf<uint16_t> {
  static constexpr DType value = DType::kUint16;
};
template <>
struct DTypeOf<uint32_t> {
  static constexpr DType value = DType::kUint32;
};
template <>
struct DTypeOf<uint64_t> {
  static constexpr DType value = DType::kUint64;
};
template <>
struct DTypeOf<bool> {
  static constexpr DType value = DType::kBool;
};

}  // namespace gradloom
