// The bounds of PyTorch's clamp(). Private to compiler/onnx.
#pragma once

#include "compiler/onnx/emitter.h"
#include "onnx/onnx_pb.h"

namespace gradloom {

// PyTorch's default exporter writes clamp() with an integer bound, such as x.clamp(min=0), as Max or Min of x and a number. At the bound,
// the gradient of clamp() is 0, but maximum() passes on half of it. Turns such a Max or Min into a Clip, whose gradient is that of clamp().
// A file without notes about the origin of its nodes is recognized by the name that the exporter gives to the number, val_7.
void RestoreTorchClamp(Emitter& emitter, const onnx::NodeProto& proto, Node& node);

}  // namespace gradloom
