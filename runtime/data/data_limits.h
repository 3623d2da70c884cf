// How large files of data may be.
#pragma once

#include <algorithm>
#include <cstdint>

#include "runtime/base/file.h"

namespace gradloom {

// Far larger than the limits of models: data is read by rows, or as long as there is memory, and no claim of a header allocates more than
// its file has.
inline constexpr int64_t kDataLimitBytes = int64_t{1} << 50;

// The most bytes that a packed file of `file_bytes` may unpack to. Text of numbers is packed to a third, and tables of few different
// numbers to a fiftieth; what is made to fill memory and disks is packed to a thousandth.
inline int64_t UnpackedLimit(int64_t file_bytes, int64_t limit_bytes) {
  constexpr int64_t kMaxRatio = 100;
  return std::min(limit_bytes, std::max(kFileLimitBytes, std::min(file_bytes, kDataLimitBytes) * kMaxRatio));
}

}  // namespace gradloom
