// From trained values back to an ONNX file.
#pragma once

#include <map>
#include <string>

#include "compiler/onnx/import.h"
#include "runtime/base/tensor.h"

namespace gradloom {

struct ExportOptions {
  // Tensors go to a file beside the model, its name with ".data" behind, when the model would be larger.
  int64_t inline_bytes = 1'800'000'000;
};

// Writes the model that `info` keeps, with the new values of tensors by the names that they have in a Graph (an
// initializer's own, a Constant node's output): the same graph, names, operator sets, functions and metadata, in the
// form for inference: BatchNormalization uses its statistics, and gives them where they are read; outputs that only
// training has are gone; Dropout passes its input. A value is written in the element type that the file has for it, a sparse tensor's as a
// dense one; names that are not the file's are none of export's business and are ignored. The file appears complete or not at all. Throws
// Error(kShape) for a value of another shape; Error(kPlan) where `info` holds no model, or left out a tensor that `values` lacks;
// Error(kResource) where the file cannot be written.
void ExportTrained(const ModelInfo& info, const std::map<std::string, Tensor>& values, const std::string& path,
                   const ExportOptions& options = {});

// The same to memory, as one file whatever its size up to 2 GiB.
std::string ExportedBytes(const ModelInfo& info, const std::map<std::string, Tensor>& values);

}  // namespace gradloom
