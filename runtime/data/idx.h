// MNIST's IDX files: one array of big-endian numbers, gzipped or not.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "runtime/base/tensor.h"
#include "runtime/data/data_limits.h"
#include "runtime/data/stored_array.h"

namespace gradloom {

// The format: two zero bytes, a byte for the type (0x08 uint8, 0x09 int8, 0x0B int16, 0x0C int32, 0x0D float32, 0x0E float64), a byte for
// the rank, the extents as big-endian int32, the elements in row-major order, big-endian. Throws Error(kData) naming the file for another
// start, an unknown type, and extents that do not fit the file; Error(kIo), Error(kLimit) like UnpackedFile.
Tensor ReadIdx(const std::string& path, int64_t limit_bytes = kDataLimitBytes);

// Opens the array of a file, which stays open. A gzipped one is copied by this call (SpillBuffer) if the rule says so; nullopt if it does
// not. Throws like ReadIdx.
std::optional<StoredArray> OpenIdx(const std::string& path, const CopyRule& copies);

// The type of the array in a file, of which no element is read. Throws like ReadIdx, as far as the header and the size of the file tell.
TensorView IdxType(const std::string& path);

// Whether a name is that of an IDX file: "x.idx", "train-images-idx3-ubyte", either with ".gz".
bool IsIdxName(const std::string& path);

// All arrays of a set by the middle of their names: for the prefix "mnist/train", the files "mnist/train-images-idx3-ubyte" and
// "mnist/train-labels-idx1-ubyte.gz" are "images" and "labels". Empty if there are none.
std::map<std::string, std::string> IdxFilesOf(const std::string& prefix);

}  // namespace gradloom
