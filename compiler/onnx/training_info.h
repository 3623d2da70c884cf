// What training_info adds to a model. Private to this directory.
#pragma once

#include <vector>

#include "compiler/onnx/model_file.h"

namespace gradloom {

// The one that the options name; null where they name none. Throws Error(kConfig) where there is none of that number.
const onnx::TrainingInfoProto* TrainingInfoOf(const ModelFile& file, const ImportOptions& options);

// The graphs that are imported one behind the other, as if they were one: the model's, and with training_info its algorithm; or its
// initialization alone. Throws what TrainingInfoOf throws, kGraph where there is no algorithm.
std::vector<const onnx::GraphProto*> GraphsOf(const ModelFile& file, const ImportOptions& options);

}  // namespace gradloom
