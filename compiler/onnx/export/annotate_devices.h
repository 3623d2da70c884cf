// Writes a placement as device annotations of a model. Private to compiler/onnx.
#pragma once

#include "compiler/onnx/device_annotations.h"
#include "onnx/onnx_pb.h"

namespace gradloom {

// Replaces the model's device configurations by one for the placement, and assigns a stage to every node of its graph. A node that the
// placement does not name gets the stage of the last node that produces one of its operands, or otherwise that of its first reader. Throws
// Error(kUnsupported) for a node with a function or nested graphs whose parts are on several stages.
void AnnotateDevices(const DevicePlacement& placement, onnx::ModelProto& model);

}  // namespace gradloom
