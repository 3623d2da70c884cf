// A file of tensors that was verified as a whole, and is not kept in memory.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "runtime/base/tensor.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/safetensors.h"

namespace gradloom {

// A safetensors file with the size and hash that a manifest gives. It stays open. Each tensor has its own hash, which is checked again when
// the tensor is read. Safe for any number of threads.
class VerifiedFile {
 public:
  // Reads the whole file. Throws Error(kCheckpoint) naming it if it has another size or hash or is not a safetensors file, and like
  // SafetensorsFile.
  VerifiedFile(const std::string& path, const CheckpointFile& described, int64_t limit_bytes, int64_t max_tensors);

  const std::map<std::string, SafetensorsFile::Entry>& entries() const { return file_.entries(); }

  // Throws Error(kCheckpoint) if the elements have changed since they were verified, and like SafetensorsFile.
  Tensor Read(const std::string& name) const;

  // The number of elements of a tensor that are NaN or infinite.
  int64_t NonFinite(const std::string& name) const { return found_.at(name).non_finite; }

 private:
  // Facts about a tensor from its verification.
  struct Found {
    uint64_t hash = 0;
    int64_t non_finite = 0;
  };
  static std::map<std::string, Found> Verify(const SafetensorsFile& file, const CheckpointFile& described);

  const SafetensorsFile file_;
  const std::map<std::string, Found> found_;  // by tensor
};

// Reads the whole file, and nothing of what is in it. Throws Error(kCheckpoint) if it has another size or hash, and like InputFile.
void CheckContent(const std::string& path, const CheckpointFile& described);

}  // namespace gradloom
