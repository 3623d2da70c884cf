// A placement as annotations of a file. Private to this directory.
#pragma once

#include "compiler/onnx/device_annotations.h"
#include "onnx/onnx_pb.h"

namespace gradloom {

// Gives the model one configuration of devices, in place of those it had, and every node of its graph its stage: a node that the
// placement does not name is with what makes its operands, the last of them, or with who reads it first. Throws Error(kUnsupported) for a
// node with a function or nested graphs whose parts are on several stages.
void AnnotateDevices(const DevicePlacement& placement, onnx::ModelProto& model);

}  // namespace gradloom
