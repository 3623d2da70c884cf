// Elements of at most eight bits, which only casts, quantization and data movement support: float8, float6, float4, and integers of four
// and two bits. In memory each is a byte whose low bits hold it and whose other bits are zero; files pack them. What is constexpr here is
// device code, too.
#pragma once

#include <bit>
#include <cstdint>
#include <span>

#include "runtime/base/dtype.h"

namespace gradloom {

// A floating-point type: sign, exponent, mantissa. Codes are the bits without the sign.
struct NarrowFormat {
  // The meaning of codes beyond the largest number.
  enum class Past : uint8_t {
    kNothing,     // there are none
    kNan,         // the one code is NaN
    kInfinity,    // the first is infinity, others are NaN
    kSignedZero,  // there are none; the bits of negative zero mean NaN
  };
  int exponent_bits = 0, mantissa_bits = 0, bias = 0;  // no exponent bits: no such type
  int largest = 0;                                     // the code of the largest number
  Past past = Past::kNothing;

  constexpr int sign() const { return 1 << (exponent_bits + mantissa_bits); }
};

constexpr NarrowFormat NarrowFormatOf(DType dtype) {
  using Past = NarrowFormat::Past;
  switch (dtype) {
    case DType::kFloat8E4M3Fn: return {4, 3, 7, 0x7E, Past::kNan};
    case DType::kFloat8E4M3Fnuz: return {4, 3, 8, 0x7F, Past::kSignedZero};
    case DType::kFloat8E5M2: return {5, 2, 15, 0x7B, Past::kInfinity};
    case DType::kFloat8E5M2Fnuz: return {5, 2, 16, 0x7F, Past::kSignedZero};
    case DType::kFloat6E2M3: return {2, 3, 1, 0x1F, Past::kNothing};
    case DType::kFloat6E3M2: return {3, 2, 3, 0x1F, Past::kNothing};
    case DType::kFloat4E2M1: return {2, 1, 1, 0x7, Past::kNothing};
    default: return {};
  }
}

// int4, uint4, int2, uint2.
constexpr bool IsNarrowInteger(DType dtype) {
  return dtype == DType::kInt4 || dtype == DType::kUint4 || dtype == DType::kInt2 || dtype == DType::kUint2;
}

// The narrow integers and floating-point types.
constexpr bool IsNarrow(DType dtype) {
  return IsNarrowInteger(dtype) || dtype == DType::kFloat8E8M0 || NarrowFormatOf(dtype).exponent_bits > 0;
}

// Bits of a narrow element.
constexpr int NarrowBits(DType dtype) {
  if (dtype == DType::kInt2 || dtype == DType::kUint2) return 2;
  if (IsNarrowInteger(dtype)) return 4;
  const NarrowFormat format = NarrowFormatOf(dtype);
  return format.exponent_bits == 0 ? 8 : 1 + format.exponent_bits + format.mantissa_bits;
}

// The smallest and the largest number of a narrow integer type.
constexpr int NarrowLowest(DType dtype) { return dtype == DType::kInt4 || dtype == DType::kInt2 ? -(1 << (NarrowBits(dtype) - 1)) : 0; }
constexpr int NarrowHighest(DType dtype) { return (1 << (NarrowBits(dtype) - (NarrowLowest(dtype) < 0 ? 1 : 0))) - 1; }

// How numbers are rounded that a narrow type cannot represent.
struct NarrowRounding {
  // Floating-point types: numbers that are too large become the largest number; if false, infinity or NaN if the type has one. Types
  // without either always saturate.
  bool saturate = true;
  // float8e8m0, which only has powers of two: to the next one above, below, or the nearest. Other types round to nearest, ties to even.
  enum class Power : uint8_t { kUp, kDown, kNearest } power = Power::kUp;
};

namespace narrow_internal {

constexpr double kNan = std::bit_cast<double>(uint64_t{0x7FF8} << 48);
constexpr double kInfinity = std::bit_cast<double>(uint64_t{0x7FF0} << 48);

// 2^exponent, for normal numbers.
constexpr double PowerOfTwo(int exponent) { return std::bit_cast<double>(static_cast<uint64_t>(1023 + exponent) << 52); }

constexpr double ValueOf(const NarrowFormat& format, int element) {
  using Past = NarrowFormat::Past;
  const double sign = (element & format.sign()) != 0 ? -1.0 : 1.0;
  const int code = element & (format.sign() - 1);
  if (format.past == Past::kSignedZero && element == format.sign()) return kNan;
  if (code > format.largest) return format.past == Past::kInfinity && code == format.largest + 1 ? sign * kInfinity : kNan;
  const int exponent = code >> format.mantissa_bits, mantissa = code & ((1 << format.mantissa_bits) - 1);
  const int whole = exponent == 0 ? mantissa : mantissa + (1 << format.mantissa_bits);
  return sign * whole * PowerOfTwo((exponent > 1 ? exponent : 1) - format.bias - format.mantissa_bits);
}

// The code nearest to |value|. Below the smallest exponent the steps stay constant: subnormal numbers. A result that rounds up to the next
// power of two carries into the exponent by itself.
constexpr int CodeOf(const NarrowFormat& format, uint64_t magnitude) {
  constexpr int kFar = 1 << 20;  // beyond all numbers of all formats
  const int exponent = static_cast<int>(magnitude >> 52) - 1023, least = 1 - format.bias;
  if (exponent > 64) return kFar;
  const int used = exponent > least ? exponent : least, shift = 52 - format.mantissa_bits + used - exponent;
  if (shift > 53) return 0;  // less than half a step; also subnormal numbers of double
  const uint64_t mantissa = (magnitude & ((uint64_t{1} << 52) - 1)) | uint64_t{1} << 52, half = uint64_t{1} << (shift - 1);
  const uint64_t whole = mantissa >> shift, rest = mantissa & (2 * half - 1);
  const bool up = rest > half || (rest == half && (whole & 1) != 0);
  return static_cast<int>(whole) + (up ? 1 : 0) + ((used - least) << format.mantissa_bits);
}

constexpr uint8_t ElementOf(const NarrowFormat& format, double value, bool saturate) {
  using Past = NarrowFormat::Past;
  const uint64_t bits = std::bit_cast<uint64_t>(value), magnitude = bits & ~(uint64_t{1} << 63);
  const int sign = magnitude != bits ? format.sign() : 0;
  // Types without NaN represent it as negative zero, like other libraries' conversions.
  if (value != value) return static_cast<uint8_t>(format.past == Past::kNan || format.past == Past::kInfinity ? 0x7F : format.sign());
  int code = CodeOf(format, magnitude);
  if (code > format.largest) {
    if (saturate || format.past == Past::kNothing) {
      code = format.largest;
    } else if (format.past == Past::kSignedZero) {
      return static_cast<uint8_t>(format.sign());
    } else {
      code = format.largest + 1;
    }
  }
  return static_cast<uint8_t>(code == 0 && format.past == Past::kSignedZero ? 0 : code | sign);
}

// float8e8m0: the exponent of a float32; 255 is NaN.
constexpr uint8_t PowerOf(double value, NarrowRounding rounding) {
  const uint32_t bits = std::bit_cast<uint32_t>(static_cast<float>(value));
  const uint32_t exponent = bits >> 23 & 0xFF, mantissa = bits & 0x7FFFFF;
  if (exponent == 0xFF) return 0xFF;
  // Exponent 0 is 2^-127, a subnormal number of float32. A tie goes up.
  const uint32_t power = exponent == 0 ? 0x400000 : 0, half = exponent == 0 ? 0x600000 : 0x400000;
  bool up = false;
  if (rounding.power == NarrowRounding::Power::kUp) up = mantissa > power;
  if (rounding.power == NarrowRounding::Power::kNearest) up = mantissa >= half;
  if (exponent == 0xFE && rounding.saturate) up = false;
  return static_cast<uint8_t>(exponent + (up ? 1 : 0));
}

// Truncated toward zero and clamped to the range of int64; 0 for NaN.
constexpr int64_t WholeOf(double value) {
  constexpr double kPast = 9223372036854775808.0;  // 2^63
  if (value != value) return 0;
  if (value <= -kPast) return INT64_MIN;
  return value >= kPast ? INT64_MAX : static_cast<int64_t>(value);
}

}  // namespace narrow_internal

// The number that an element of a narrow type represents, exactly.
constexpr double NarrowValue(DType dtype, uint8_t element) {
  using namespace narrow_internal;
  const int bits = NarrowBits(dtype), low = element & ((1 << bits) - 1);
  if (IsNarrowInteger(dtype)) return low > NarrowHighest(dtype) ? low - (1 << bits) : low;
  if (dtype == DType::kFloat8E8M0) return low == 0xFF ? kNan : PowerOfTwo(low - 127);
  return ValueOf(NarrowFormatOf(dtype), low);
}

// The element that represents a number. Integers are truncated toward zero and keep their low bits, as in ONNX's Cast.
constexpr uint8_t NarrowElement(DType dtype, double value, NarrowRounding rounding = {}) {
  using namespace narrow_internal;
  if (IsNarrowInteger(dtype)) return static_cast<uint8_t>(static_cast<uint64_t>(WholeOf(value)) & ((1u << NarrowBits(dtype)) - 1));
  if (dtype == DType::kFloat8E8M0) return PowerOf(value, rounding);
  return ElementOf(NarrowFormatOf(dtype), value, rounding.saturate);
}

// Bytes that `elements` elements take in a file: their bits one after the other, from the lowest bit of the first byte on.
int64_t PackedBytes(DType dtype, int64_t elements);
void PackNarrow(DType dtype, std::span<const uint8_t> elements, uint8_t* packed);
void UnpackNarrow(DType dtype, const uint8_t* packed, std::span<uint8_t> elements);

}  // namespace gradloom
