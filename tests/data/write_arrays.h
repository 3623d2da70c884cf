// Writers of array files that Gradloom itself only reads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/file.h"
#include "runtime/base/tensor.h"
#include "runtime/data/npy.h"

namespace gradloom {

// Writes a file that numpy reads with the same dtype, shape and bits. Throws like NpyHeader and AtomicFile.
inline void WriteNpy(const std::string& path, const TensorView& tensor) {
  AtomicFile file(path);
  file.Write(NpyHeader(tensor.dtype, tensor.shape));
  file.Write(tensor.data, tensor.bytes());
  file.Commit();
}

// Writes llm.c's format: 256 int32, of which the first are a magic number, the version and the number of tokens; then the tokens.
inline void WriteTokens(const std::string& path, const std::vector<uint16_t>& tokens) {
  std::vector<int32_t> head(256);
  head[0] = 20240520;
  head[1] = 1;
  head[2] = static_cast<int32_t>(tokens.size());
  AtomicFile file(path);
  file.Write(head.data(), 1024);
  file.Write(tokens.data(), static_cast<int64_t>(tokens.size()) * 2);
  file.Commit();
}

}  // namespace gradloom
