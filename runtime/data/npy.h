// Numpy's .npy files, versions 1.0 to 3.0 (numpy.lib.format): one array with its dtype and shape.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/tensor.h"
#include "runtime/data/data_limits.h"
#include "runtime/data/stored_array.h"

namespace gradloom {

// Reads a .npy file as a tensor, in row-major order and this machine's byte order whatever the file has. Booleans become 0 or 1. Throws
// Error(kData) naming the file for a header that is damaged or does not fit the file's size, for Python objects (reading them would run
// code from the file), for text, and for dtypes without a counterpart here (complex, dates, records); Error(kIo) and Error(kLimit) like
// InputFile.
Tensor ReadNpy(const std::string& path, int64_t limit_bytes = kDataLimitBytes);

// Opens the array of a file, which stays open; nullopt if its elements are not in row-major order. Throws like ReadNpy.
std::optional<StoredArray> OpenNpy(const std::string& path, int64_t limit_bytes = kDataLimitBytes);

// The same for arrays inside other files. `read` returns exactly the requested number of bytes, at least 1, or throws; `bytes` is the size
// of the whole array file; `where` names it in errors.
Tensor ReadNpyFrom(const std::function<void(void* out, int64_t bytes)>& read, int64_t bytes, const std::string& where);

// Fixed-width text: '<U8', '|S8'.
struct NpyText {
  int64_t size = 0;   // number of strings, whatever their shape
  int64_t width = 0;  // bytes of each
  bool unicode = false, big_endian = false;
  std::vector<char> bytes = {};

  // A string in UTF-8, or the bytes of a byte string, without the zeros that fill it up.
  std::string operator[](int64_t i) const;
};

struct NpyArray {
  Tensor numbers;
  std::optional<NpyText> text;  // instead of numbers
};
// Reads an array of numbers or of text.
NpyArray ReadAnyNpyFrom(const std::function<void(void* out, int64_t bytes)>& read, int64_t bytes, const std::string& where);

// The array at `read`, as for ReadNpyFrom, up to its first element; nullopt like OpenNpy. `header_bytes`: the bytes before the first
// element. The result has no function to read with.
std::optional<StoredArray> FindNpy(const std::function<void(void* out, int64_t bytes)>& read, int64_t bytes, const std::string& where,
                                   int64_t& header_bytes);

// The shape of the array at `read`, of numbers or of text, as for ReadNpyFrom. Reads no element.
Shape ReadNpyShapeFrom(const std::function<void(void* out, int64_t bytes)>& read, int64_t bytes, const std::string& where);

// The bytes before the elements of a written array; a multiple of 64 long, as numpy writes it. Throws Error(kType) for bfloat16, which
// numpy lacks.
std::string NpyHeader(DType dtype, const Shape& shape);

}  // namespace gradloom
