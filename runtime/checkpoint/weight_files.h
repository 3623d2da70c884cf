// Weights in a safetensors file, or in several that an index names.
#pragma once

#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/tensor.h"
#include "runtime/checkpoint/safetensors.h"

namespace gradloom {

// The metadata under which a safetensors file of ours has a hash (TensorsHash). Files of others have none.
inline constexpr char kTensorsHash[] = "gradloom.hash";

// 16 hexadecimal digits: a hash of the other metadata, and of the name, type, shape and elements of each tensor. `types` have no data:
// `read` is called for each tensor in turn.
std::string TensorsHash(const std::map<std::string, std::string>& metadata, const std::map<std::string, TensorView>& types,
                        const std::function<Tensor(const std::string& name)>& read);

// Throws Error(kCheckpoint) naming `where` if the metadata has another hash than that.
void CheckTensorsHash(const std::map<std::string, std::string>& metadata, const std::map<std::string, TensorView>& types,
                      const std::function<Tensor(const std::string& name)>& read, const std::string& where);

// All files are open for reading, and their headers are checked. Safe for any number of threads.
class WeightFiles {
 public:
  // `path`: a safetensors file, or an index (IsShardIndex) beside its shards. Throws like SafetensorsFile, with the limits for all files
  // together, and like CheckTensorsHash: a file with a hash is read through. For an index also like ParseShardIndex and, for its shards,
  // like ConfinedFolder; with Error(kLimit) for more than kMaxShards of them, and Error(kCheckpoint) unless each shard has exactly the
  // tensors that the index puts into it.
  explicit WeightFiles(const std::string& path, int64_t limit_bytes = SafetensorsFile::kLimitBytes,
                       int64_t max_tensors = SafetensorsFile::kMaxTensors);

  const std::string& path() const { return path_; }

  // Types and shapes by name, without data.
  const std::map<std::string, TensorView>& types() const { return types_; }

  // Throws like SafetensorsFile::Read.
  Tensor Read(const std::string& name) const;

  // The number of safetensors files.
  int64_t count() const { return std::ssize(files_); }

  // The metadata of a safetensors file; empty for an index.
  const std::map<std::string, std::string>& metadata() const;

  // A hash of the bytes of all files. Throws Error(kIo).
  uint64_t ContentHash() const;

  static constexpr int64_t kMaxShards = 4096;

 private:
  const SafetensorsFile& Add(std::unique_ptr<SafetensorsFile> file);
  void AddShards(int64_t limit_bytes, int64_t max_tensors);

  const std::string path_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, const SafetensorsFile*> file_of_;  // by tensor
  std::map<std::string, TensorView> types_;
};

// A stored weight with the type of the state that it is for: floating-point numbers of 16 bits or more are rounded to the nearest of
// another such type. Other types are returned as they are; those of 8 bits need scales, which are stored in other tensors.
Tensor AsWeight(Tensor stored, DType wanted);

}  // namespace gradloom
