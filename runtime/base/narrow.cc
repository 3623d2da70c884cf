#include "runtime/base/narrow.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "runtime/base/convert.h"
#include "runtime/base/error.h"

namespace gradloom {
namespace {

// What the codes past the largest number stand for.
enum class Past : uint8_t {
  kNothing,     // there are none
  kNan,         // the one code is NaN
  kInfinity,    // the first is infinity, others are NaN
  kSignedZero,  // there are none: the bits of a negative zero are the NaN
};

// A floating type: sign, exponent, mantissa. Codes are the bits without the sign.
struct Format {
  DType dtype;
  int exponent_bits, mantissa_bits, bias;
  int largest;  // the code of the largest number
  Past past;

  int sign() const { return 1 << (exponent_bits + mantissa_bits); }
};

constexpr Format kFormats[] = {
    {DType::kFloat8E4M3Fn, 4, 3, 7, 0x7E, Past::kNan},     {DType::kFloat8E4M3Fnuz, 4, 3, 8, 0x7F, Past::kSignedZero},
    {DType::kFloat8E5M2, 5, 2, 15, 0x7B, Past::kInfinity}, {DType::kFloat8E5M2Fnuz, 5, 2, 16, 0x7F, Past::kSignedZero},
    {DType::kFloat6E2M3, 2, 3, 1, 0x1F, Past::kNothing},   {DType::kFloat6E3M2, 3, 2, 3, 0x1F, Past::kNothing},
    {DType::kFloat4E2M1, 2, 1, 1, 0x7, Past::kNothing},
};

const Format* FormatOf(DType dtype) {
  for (const Format& format : kFormats) {
    if (format.dtype == dtype) return &format;
  }
  return nullptr;
}

double ValueOf(const Format& format, int element) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInfinity = std::numeric_limits<double>::infinity();
  const double sign = (element & format.sign()) != 0 ? -1.0 : 1.0;
  const int code = element & (format.sign() - 1);
  if (format.past == Past::kSignedZero && element == format.sign()) return kNan;
  if (code > format.largest) return format.past == Past::kInfinity && code == format.largest + 1 ? sign * kInfinity : kNan;
  const int exponent = code >> format.mantissa_bits, mantissa = code & ((1 << format.mantissa_bits) - 1);
  const int whole = exponent == 0 ? mantissa : mantissa + (1 << format.mantissa_bits);
  return sign * std::ldexp(whole, std::max(exponent, 1) - format.bias - format.mantissa_bits);
}

uint8_t ElementOf(const Format& format, double value, bool saturate) {
  const int sign = std::signbit(value) ? format.sign() : 0;
  // Types without NaN take it as their negative zero, as the conversions of others do.
  if (value != value) return static_cast<uint8_t>(format.past == Past::kNan || format.past == Past::kInfinity ? 0x7F : format.sign());
  int code = format.largest + 1;
  if (!std::isinf(value)) {
    int exponent = 0;
    std::frexp(value, &exponent);
    const int least = 1 - format.bias, used = value == 0 ? least : std::clamp(exponent - 1, least, 64);
    // Below the least exponent the steps stay as they are: subnormal numbers. A result that rounds up to the next power of two
    // carries into the exponent by itself.
    const double steps = std::nearbyint(std::ldexp(std::fabs(value), format.mantissa_bits - used));
    code = static_cast<int>(std::min(steps, 0x1p20)) + ((used - least) << format.mantissa_bits);
  }
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
uint8_t PowerOf(double value, NarrowRounding rounding) {
  const uint32_t bits = std::bit_cast<uint32_t>(static_cast<float>(value));
  const uint32_t exponent = bits >> 23 & 0xFF, mantissa = bits & 0x7FFFFF;
  if (exponent == 0xFF) return 0xFF;
  // Exponent 0 is 2^-127, which a float32 has as a subnormal number. A tie goes up.
  const uint32_t power = exponent == 0 ? 0x400000 : 0, half = exponent == 0 ? 0x600000 : 0x400000;
  bool up = false;
  if (rounding.power == NarrowRounding::Power::kUp) up = mantissa > power;
  if (rounding.power == NarrowRounding::Power::kNearest) up = mantissa >= half;
  if (exponent == 0xFE && rounding.saturate) up = false;
  return static_cast<uint8_t>(exponent + (up ? 1 : 0));
}

bool IsSigned(DType dtype) { return dtype == DType::kInt4 || dtype == DType::kInt2; }

}  // namespace

bool IsNarrowInteger(DType dtype) {
  return dtype == DType::kInt4 || dtype == DType::kUint4 || dtype == DType::kInt2 || dtype == DType::kUint2;
}

bool IsNarrow(DType dtype) { return IsNarrowInteger(dtype) || dtype == DType::kFloat8E8M0 || FormatOf(dtype) != nullptr; }

int NarrowBits(DType dtype) {
  if (dtype == DType::kInt2 || dtype == DType::kUint2) return 2;
  if (IsNarrowInteger(dtype)) return 4;
  const Format* format = FormatOf(dtype);
  return format == nullptr ? 8 : 1 + format->exponent_bits + format->mantissa_bits;
}

int NarrowLowest(DType dtype) { return IsSigned(dtype) ? -(1 << (NarrowBits(dtype) - 1)) : 0; }

int NarrowHighest(DType dtype) { return (1 << (NarrowBits(dtype) - (IsSigned(dtype) ? 1 : 0))) - 1; }

double NarrowValue(DType dtype, uint8_t element) {
  const int bits = NarrowBits(dtype), low = element & ((1 << bits) - 1);
  if (IsNarrowInteger(dtype)) return low > NarrowHighest(dtype) ? low - (1 << bits) : low;
  if (dtype == DType::kFloat8E8M0) return low == 0xFF ? std::numeric_limits<double>::quiet_NaN() : std::ldexp(1.0, low - 127);
  const Format* format = FormatOf(dtype);
  GRADLOOM_CHECK(format != nullptr);
  return ValueOf(*format, low);
}

uint8_t NarrowElement(DType dtype, double value, NarrowRounding rounding) {
  if (IsNarrowInteger(dtype)) {
    const auto whole = static_cast<uint64_t>(ConvertElement<int64_t>(value));
    return static_cast<uint8_t>(whole & ((1u << NarrowBits(dtype)) - 1));
  }
  if (dtype == DType::kFloat8E8M0) return PowerOf(value, rounding);
  const Format* format = FormatOf(dtype);
  GRADLOOM_CHECK(format != nullptr);
  return ElementOf(*format, value, rounding.saturate);
}

int64_t PackedBytes(DType dtype, int64_t elements) {
  const int bits = NarrowBits(dtype);
  // Without a product of all bits, which could overflow.
  return elements / 8 * bits + (elements % 8 * bits + 7) / 8;
}

void PackNarrow(DType dtype, std::span<const uint8_t> elements, uint8_t* packed) {
  const auto bits = static_cast<unsigned>(NarrowBits(dtype));
  unsigned held = 0, buffer = 0;
  for (uint8_t element : elements) {
    buffer |= (element & ((1u << bits) - 1)) << held;
    held += bits;
    for (; held >= 8; held -= 8, buffer >>= 8) *packed++ = static_cast<uint8_t>(buffer);
  }
  if (held > 0) *packed = static_cast<uint8_t>(buffer);
}

void UnpackNarrow(DType dtype, const uint8_t* packed, std::span<uint8_t> elements) {
  const auto bits = static_cast<unsigned>(NarrowBits(dtype));
  unsigned held = 0, buffer = 0;
  for (uint8_t& element : elements) {
    for (; held < bits; held += 8) buffer |= static_cast<unsigned>(*packed++) << held;
    element = static_cast<uint8_t>(buffer & ((1u << bits) - 1));
    buffer >>= bits;
    held -= bits;
  }
}

}  // namespace gradloom
