// Private to this directory.
#pragma once

#include "onnx/onnx_pb.h"

namespace gradloom {

// Takes out of a model what only training has: training modes of BatchNormalization and Dropout with the outputs
// and constants that served them alone. In functions and nested graphs, too.
void ToInferenceForm(onnx::ModelProto& model);

}  // namespace gradloom
