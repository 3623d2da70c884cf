// The training_info of a model. Private to compiler/onnx.
#pragma once

#include <vector>

#include "compiler/onnx/model_file.h"

namespace gradloom {

// The training_info selected by the options; null if they select none. Throws Error(kConfig) if the model has none with that number.
const onnx::TrainingInfoProto* TrainingInfoOf(const ModelFile& file, const ImportOptions& options);

// The graphs that are imported one after the other, as if they were one: the model's graph and, with training_info, its algorithm; or only
// its initialization. Throws what TrainingInfoOf throws, and kGraph if there is no algorithm.
std::vector<const onnx::GraphProto*> GraphsOf(const ModelFile& file, const ImportOptions& options);

}  // namespace gradloom
