// Numpy's .npy files, versions 1.0 to 3.0 (numpy.lib.format): one array with its dtype and shape.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "runtime/base/file.h"
#include "runtime/base/tensor.h"
#include "runtime/session/stored_array.h"

namespace gradloom {

// A .npy file as a tensor, in row-major order and in this machine's byte order whatever the file has.
// Booleans come as 0 or 1, fixed-width text ('<U8') as uint32 code points in one more dimension.
// Error(kData) names the file: a header that is damaged or does not fit the file's size, Python objects
// (reading them would run code of the file), and dtypes that have no counterpart here (byte strings, complex,
// dates, records). Error(kIo) and Error(kLimit) as InputFile.
Tensor ReadNpy(const std::string& path, int64_t limit_bytes = kFileLimitBytes);

// The array of a file that stays open; nothing where its elements do not lie in row-major order. Errors as ReadNpy's.
std::optional<StoredArray> OpenNpy(const std::string& path, int64_t limit_bytes = kFileLimitBytes);

// Numpy reads it back with the same dtype, shape and bits. bfloat16, which numpy lacks, is Error(kType);
// Error(kResource) as AtomicFile.
void WriteNpy(const std::string& path, const TensorView& tensor);

// The two halves of the above, for arrays inside other files. `read` gives exactly as many bytes as asked or
// throws; `bytes` is the size of the whole array file; `where` names it in errors.
Tensor ReadNpyFrom(const std::function<void(void* out, int64_t bytes)>& read, int64_t bytes, const std::string& where);

// The array that `read` comes to as above, up to its first element; nothing as OpenNpy. `header_bytes`: of what precedes that. What the
// caller gets has nothing to read by.
std::optional<StoredArray> FindNpy(const std::function<void(void* out, int64_t bytes)>& read, int64_t bytes, const std::string& where,
                                   int64_t& header_bytes);

// What precedes the elements; a multiple of 64 bytes long, as numpy writes it.
std::string NpyHeader(DType dtype, const Shape& shape);

}  // namespace gradloom
