// An algorithm as training_info. Private to this directory.
#pragma once

#include <map>
#include <string>

#include "compiler/onnx/export.h"
#include "onnx/onnx_pb.h"

namespace gradloom {

// Brings the model, which has its values, to the form for inference, with the algorithm as its one training_info. `name`: of the model, for
// messages. Throws as ExportWithAlgorithm.
void WriteAlgorithm(const Algorithm& algorithm, const std::map<std::string, Tensor>& values, const std::string& name,
                    onnx::ModelProto& model);

}  // namespace gradloom
