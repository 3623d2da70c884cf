// Tensors by name from a safetensors file or from the parts of a checkpoint.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "runtime/base/tensor.h"
#include "runtime/session/checkpoint.h"
#include "runtime/session/safetensors.h"

namespace gradloom {

class StoredTensors {
 public:
  // Opens a file or the folder of a checkpoint; all parts of the latter are read and verified. Errors as SafetensorsFile's and
  // Checkpoint::Load's.
  explicit StoredTensors(const std::string& path);

  const std::string& path() const { return path_; }
  // Types and shapes, without data.
  const std::map<std::string, TensorView>& types() const { return types_; }
  // Errors as SafetensorsFile's and Checkpoint's.
  Tensor Read(const std::string& name) const;
  // The number of updates that the tensors have received, if known: from the checkpoint's manifest, the manifest next to the file, or the
  // file itself.
  int64_t updates() const;

 private:
  const std::string path_;
  std::optional<Checkpoint> checkpoint_;
  std::optional<SafetensorsFile> file_;  // unless it is a checkpoint
  std::map<std::string, TensorView> types_;
};

}  // namespace gradloom
