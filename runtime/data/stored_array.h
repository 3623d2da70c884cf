// An array in a file whose elements can be read by range, without the others.
#pragma once

#include <algorithm>
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

// Which arrays are copied if their rows cannot be read from their file, because it is compressed or in Fortran order: to a SpillBuffer,
// from which they can.
struct CopyRule {
  int64_t bytes = 0;             // those of at least so many bytes
  DType as = DType::kUndefined;  // in this type, if it is wider than their own

  bool Copies(DType dtype, const Shape& shape) const { return shape.elements() * std::max(DTypeBytes(dtype), DTypeBytes(as)) >= bytes; }
};

}  // namespace gradloom
