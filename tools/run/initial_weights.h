// The weights that a new run begins with, instead of those of the model's file.
#pragma once

#include <string>
#include <vector>

#include "runtime/session/session.h"

namespace gradloom {

// The path for StoredTensors: a safetensors file or an index of several, the folder of a checkpoint, or for the folder of a run its newest
// state. Throws like WeightsPathOf, and Error(kCheckpoint) for a model.
std::string InitialWeightsPath(const std::string& path);

// Replaces parameters and running statistics of the session with those of `path` (for StoredTensors), except those whose names match a
// pattern of `except`. Optimizer state, accumulated gradients and loss scale are ignored. Notes list the names that the session lacks, the
// parameters that the file lacks, and values that are not finite. Throws Error(kCheckpoint) if the file has none of the session's weights,
// or one of another shape or type; Error(kConfig) for a pattern that matches no tensor of the file.
void LoadWeights(Session& session, const std::string& path, const std::vector<std::string>& except, std::vector<std::string>& notes);

}  // namespace gradloom
