// Which element Pad copies. The functions are constexpr, so that device code can call them.
#pragma once

#include <cstdint>

namespace gradloom::scalar {

enum class PadMode : uint8_t { kConstant, kEdge, kReflect, kWrap };

// a mod b, in [0, b).
constexpr int64_t Modulo(int64_t a, int64_t b) { return (a % b + b) % b; }

// The source of an element of a padded axis, `i` after the beginning of the axis of `extent` elements itself; -1: the constant.
constexpr int64_t PadSource(PadMode mode, int64_t i, int64_t extent) {
  if (i >= 0 && i < extent) return i;
  if (mode == PadMode::kConstant || extent == 0) return -1;
  if (mode == PadMode::kEdge) return i < 0 ? 0 : extent - 1;
  if (mode == PadMode::kWrap) return Modulo(i, extent);
  // The reflected axis has a period of 2 (extent - 1).
  if (extent == 1) return 0;
  const int64_t period = 2 * (extent - 1), at = Modulo(i, period);
  return at < extent ? at : period - at;
}

}  // namespace gradloom::scalar
