// The inference form of a model. Private to compiler/onnx.
#pragma once

#include "onnx/onnx_pb.h"

namespace gradloom {

// Removes from a model what is only used in training: the training modes of BatchNormalization and Dropout, with the outputs and constants
// that only these need. Includes functions and nested graphs.
void ToInferenceForm(onnx::ModelProto& model);

}  // namespace gradloom
