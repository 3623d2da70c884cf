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

// Opens the array of a file, which stays open. One in Fortran order is copied by this call (SpilledRowMajor) if the rule says so; nullopt
// if it does not. Throws like ReadNpy.
std::optional<StoredArray> OpenNpy(const std::string& path, const CopyRule& copies);

// The type of the array in a file, of which no element is read; kString for text. Throws like ReadNpy, but not for text.
TensorView NpyType(const std::string& path);

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

// An array of numbers up to its first element.
struct NpyHead {
  StoredArray array;          // has no function to read with; elements in the order of the file
  bool column_major = false;  // that is Fortran's
  int64_t bytes = 0;          // before the first element
};
// Reads the head of the array at `read`, as for ReadNpyFrom.
NpyHead ReadNpyHead(const std::function<void(void* out, int64_t bytes)>& read, int64_t bytes, const std::string& where);

// The type of the array at `read`, of numbers or of text (kString), as for ReadNpyFrom. Reads no element.
TensorView ReadNpyTypeFrom(const std::function<void(void* out, int64_t bytes)>& read, int64_t bytes, const std::string& where);

// The bytes before the elements of a written array; a multiple of 64 long, as numpy writes it. Throws Error(kType) for bfloat16, which
// numpy lacks.
std::string NpyHeader(DType dtype, const Shape& shape);

}  // namespace gradloom
