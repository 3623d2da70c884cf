// Tensors by name from safetensors files or from the parts of a checkpoint.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <string>

#include "runtime/base/listing.h"
#include "runtime/base/tensor.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/weight_files.h"

namespace gradloom {

class StoredTensors {
 public:
  // Opens a safetensors file, an index with its shards, or the folder of a checkpoint; all parts of the latter are read and verified.
  // Errors as WeightFiles' and Checkpoint::Load's. `max_tensors`: of weights; the state of a run is as many as its checkpoints may have.
  explicit StoredTensors(const std::string& path, int64_t max_tensors = SafetensorsFile::kMaxTensors);
  // The tensors of a checkpoint's folder. The path is that of its file, if it has only one.
  explicit StoredTensors(Checkpoint checkpoint);

  const std::string& path() const { return path_; }
  // Types and shapes, without data.
  const std::map<std::string, TensorView>& types() const { return checkpoint_ ? checkpoint_->types() : files_->types(); }
  // Errors as WeightFiles' and Checkpoint's.
  Tensor Read(const std::string& name) const;
  // The number of files with weights.
  int64_t files() const { return checkpoint_ ? std::ssize(checkpoint_->manifest().files) : files_->count(); }
  // The number of updates that the tensors have received, if known: from the checkpoint's manifest, the manifest next to the file, or the
  // file's metadata.
  std::optional<int64_t> updates() const;
  // The number of batches, from the checkpoint's manifest or the file's metadata; 0 if unknown.
  int64_t batches() const;

 private:
  std::string path_;
  std::optional<Checkpoint> checkpoint_;
  std::optional<WeightFiles> files_;  // unless it is a checkpoint
};

// Collects the elements of weights that are NaN or infinite, for one warning.
class NonFiniteWeights {
 public:
  void Add(const std::string& name, const TensorView& value);

  // One line; "" if there are none. `path`: of the weights.
  std::string Warning(const std::string& path) const;

 private:
  Listing tensors_{8};
};

}  // namespace gradloom
