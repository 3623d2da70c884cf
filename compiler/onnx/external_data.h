// Tensors that lie in files beside the model. Every byte of them comes through here. Private to this directory.
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
  // Looks beside `model_path`, or in options.external_dir where that is given. With neither, every read fails.
  ExternalData(const std::string& model_path, const LoadOptions& options);
  ~ExternalData();
  ExternalData(const ExternalData&) = delete;
  ExternalData& operator=(const ExternalData&) = delete;

  // Reads `bytes` bytes for a tensor. `where` names it in messages. Throws Error(kPath) for a location that is no
  // plain file beneath the folder, Error(kTensor) for a range that is not the tensor's or not in the file,
  // Error(kIo) where the file cannot be read. Nothing is written to `out` unless all of that holds.
  void Read(const onnx::TensorProto& tensor, const std::string& where, void* out, int64_t bytes);

  // The checks of Read alone, before memory is taken for the elements.
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
  int folder_ = -1;                        // the folder that the user named
  std::vector<std::string> real_folders_;  // where links may lead: the folder by its real name, and that of the file that a linked model is
  std::set<std::string> seen_;
};

}  // namespace gradloom
