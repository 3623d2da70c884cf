// Writes an algorithm as training_info. Private to compiler/onnx.
#pragma once

#include <map>
#include <string>

#include "compiler/onnx/export/export.h"
#include "compiler/onnx/export/separate_elements.h"
#include "onnx/onnx_pb.h"

namespace gradloom {

// Converts the model, which contains its values, to the form for inference, with the algorithm as its only training_info. `name` is that of
// the model, for messages. `elements`: those of the model, which get those of the algorithm, too; `algorithm` and `values` must outlive
// them. Returns and throws like ExportWithAlgorithm.
std::map<std::string, std::string> WriteAlgorithm(const Algorithm& algorithm, const TrainedValues& values, const std::string& name,
                                                  SeparateElements& elements, onnx::ModelProto& model);

}  // namespace gradloom
