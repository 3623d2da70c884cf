#include "runtime/base/narrow.h"

namespace gradloom {

int64_t PackedBytes(DType dtype, int64_t elements) {
  const int bits = NarrowBits(dtype);
  // Avoids the product of elements and bits, which could overflow.
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
