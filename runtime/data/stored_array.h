// An array in a file whose elements can be read by range, without the others.
#pragma once

#include <cstdint>
#include <functional>

#include "runtime/base/dtype.h"
#include "runtime/base/shape.h"

namespace gradloom {

struct StoredArray {
  DType dtype = DType::kUndefined;
  bool big_endian = false;
  Shape shape;  // row-major
  // Reads bytes as the file has them, counted from the first element. Any number of threads may call it; throws Error(kData, kIo) naming
  // the file.
  std::function<void(int64_t offset, void* out, int64_t bytes)> read;
};

}  // namespace gradloom
