// Tensors in files next to the model. All external data is read by this class. Private to compiler/onnx.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "compiler/onnx/import.h"
#include "onnx/onnx_pb.h"
#include "runtime/base/confined_folder.h"

namespace gradloom {

class ExternalData {
 public:
  // Reads from the folder of `model_path`, or from options.external_dir if that is set. If both are empty, every read fails.
  // `options` must outlive the object.
  ExternalData(const std::string& model_path, const LoadOptions& options);

  // Reads `bytes` bytes for a tensor, which `where` names in messages. Throws like ConfinedFolder, Error(kPath) also for a file with hard
  // links, and Error(kTensor) for a range that does not match the tensor or the file. Writes nothing to `out` unless all these checks
  // succeed.
  void Read(const onnx::TensorProto& tensor, const std::string& where, void* out, int64_t bytes);

  // Only the checks of Read, to be done before memory is allocated for the elements.
  void Check(const onnx::TensorProto& tensor, const std::string& where, int64_t bytes);

 private:
  struct Range {
    std::string location;
    int64_t offset = 0;
    int64_t length = -1;
  };
  Range Parse(const onnx::TensorProto& tensor, const std::string& where) const;
  InputFile Open(const Range& range, const std::string& where, int64_t bytes);

  const LoadOptions& options_;
  std::optional<ConfinedFolder> folder_;
  std::set<std::string> seen_;
};

}  // namespace gradloom
