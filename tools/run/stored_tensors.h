// Tensors by name that lie in a safetensors file, or in the parts of a checkpoint.
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
  // A file, or the folder of one checkpoint, of which all parts are read and their hashes checked. Errors as SafetensorsFile's and
  // Checkpoint::Load's.
  explicit StoredTensors(const std::string& path);

  const std::string& path() const { return path_; }
  // Types and shapes, without data.
  const std::map<std::string, TensorView>& types() const { return types_; }
  // Errors as SafetensorsFile's and Checkpoint's.
  Tensor Read(const std::string& name) const;
  // That the tensors have seen, as far as it is known: a checkpoint's manifest says it, also that beside a file, or the file itself.
  int64_t updates() const;

 private:
  const std::string path_;
  std::optional<Checkpoint> checkpoint_;
  std::optional<SafetensorsFile> file_;  // where it is none
  std::map<std::string, TensorView> types_;
};

}  // namespace gradloom
