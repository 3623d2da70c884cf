// Tensors in files next to the model. All external data is read by this class. Private to compiler/onnx.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "compiler/onnx/import.h"
#include "onnx/onnx_pb.h"

namespace gradloom {

class ExternalData {
 public:
  // Reads from the folder of `model_path`, or from options.external_dir if that is set. If both are empty, every read fails.
  ExternalData(const std::string& model_path, const LoadOptions& options);
  ~ExternalData();
  ExternalData(const ExternalData&) = delete;
  ExternalData& operator=(const ExternalData&) = delete;

  // Reads `bytes` bytes for a tensor, which `where` names in messages. Throws Error(kPath) for a location that is not a regular file below
  // the folder, Error(kTensor) for a range that does not match the tensor or the file, and Error(kIo) if the file cannot be read. Writes
  // nothing to `out` unless all these checks succeed.
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
  int Open(const Range& range, const std::string& where, int64_t bytes);
  int OpenBeneath(const std::string& location, const std::string& where);
  int OpenThroughLinks(const std::string& location) const;

  const LoadOptions& options_;
  int folder_ = -1;                        // the folder that the user has given
  std::vector<std::string> real_folders_;  // where links may lead: the real path of the folder, and that of the file if the model is a link
  std::set<std::string> seen_;
};

}  // namespace gradloom
