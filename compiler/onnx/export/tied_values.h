// Values of matrices that a file has twice. Private to compiler/onnx.
#pragma once

#include "compiler/onnx/export/export.h"
#include "onnx/onnx_pb.h"

namespace gradloom {

// `values`, which is copied, and for each of info.tied whose source is among them the transpose of that source. Throws Error(kPlan) for a
// source that is no matrix.
TrainedValues WithTied(const ModelInfo& info, const TrainedValues& values);

// Replaces the initializers of the main graph that `info` ties by Transpose nodes, so that there is one weight for an algorithm to train.
// Throws Error(kUnsupported) for one that is elsewhere in the model.
void TieInGraph(const ModelInfo& info, onnx::ModelProto& model);

}  // namespace gradloom
