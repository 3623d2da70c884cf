// A file of tensors that was read once through all of it, and is not kept in memory.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "runtime/base/tensor.h"
#include "runtime/session/manifest.h"
#include "runtime/session/safetensors.h"

namespace gradloom {

// A safetensors file with the size and the hash that a manifest gives it. It stays open, and each tensor has a hash of its own, by which it
// is known again when it is read. Safe for any number of threads.
class VerifiedFile {
 public:
  // Reads all of the file. Throws Error(kCheckpoint) naming it where it has another size or hash, or is none of its format, and as
  // SafetensorsFile.
  VerifiedFile(const std::string& path, const CheckpointFile& described, int64_t limit_bytes, int64_t max_tensors);

  const std::map<std::string, SafetensorsFile::Entry>& entries() const { return file_.entries(); }

  // Throws Error(kCheckpoint) where the elements are no longer those that were verified, and as SafetensorsFile's.
  Tensor Read(const std::string& name) const;

  // How many elements of a tensor are NaN or infinite.
  int64_t NonFinite(const std::string& name) const { return found_.at(name).non_finite; }

 private:
  // What a tensor was when it was verified.
  struct Found {
    uint64_t hash = 0;
    int64_t non_finite = 0;
  };
  static std::map<std::string, Found> Verify(const SafetensorsFile& file, const CheckpointFile& described);

  const SafetensorsFile file_;
  const std::map<std::string, Found> found_;  // by tensor
};

}  // namespace gradloom
