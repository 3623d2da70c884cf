// From trained values back to an ONNX file.
#pragma once

#include <map>
#include <string>

#include "runtime/base/tensor.h"
#include "runtime/plan/plan.h"

namespace gradloom {

// Writes the original graph (names, opset, functions, metadata) with the given values in place of the
// initializers, and tensors of Constant nodes, of these names: an inference model, in which
// BatchNormalization uses its running statistics and Dropout does nothing. `model` is a plan's: what its
// bytes leave out must be in `values` (Error(kPlan) names what is missing). The file appears complete or not
// at all. Throws Error(kPlan) for bytes that are no model, Error(kShape) for a value of another type or
// shape, Error(kLimit) past 2 GiB, Error(kResource) where the file cannot be written.
void ExportTrained(const ModelInfo& model, const std::map<std::string, Tensor>& values, const std::string& path);

}  // namespace gradloom
