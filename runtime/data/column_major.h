// Arrays in Fortran order.
#pragma once

#include <cstdint>
#include <functional>

#include "runtime/data/stored_array.h"

namespace gradloom {

// Receives bytes in order.
using TakeBytes = std::function<void(const void* data, int64_t bytes)>;

// Passes the elements of an array to `take` in row-major order, in blocks of whole rows. `array` has its extents in the usual order, but
// its `read` returns elements in column-major order. A block takes `block_bytes` of memory, or as many as a row has. It needs a piece of
// each column, or for short columns all of the array, so fewer blocks are faster. Throws what `array.read` and `take` throw.
void ReadRowMajor(const StoredArray& array, int64_t block_bytes, const TakeBytes& take);

}  // namespace gradloom
