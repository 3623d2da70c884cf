// Batch normalizations of new modules that PyTorch's default exporter has folded. Private to compiler/onnx.
#pragma once

#include <string>
#include <vector>

#include "compiler/onnx/model_file.h"

namespace gradloom {

// The exporter folds a BatchNormalization into the layer before it, whose weight it multiplies by scale / sqrt(variance + epsilon), and
// notes that the result is that of the normalization. If the layer has no bias after that, the module is new: its means and shifts are
// zeros, which no training leaves behind, so its scales and variances are ones. Such a layer gets its weight and a BatchNormalization with
// these values back. Returns the names of the restored tensors.
std::vector<std::string> RestoreNorms(ModelFile& file);

}  // namespace gradloom
