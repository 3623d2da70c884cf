// The configuration file that `gradloom init` writes.
#pragma once

#include <string>

#include "tools/config/configuration.h"

namespace gradloom {

// A commented TOML file with every key of a training run. Keys that the configuration sets and those that a first run needs (model, data,
// loss and columns, derived from the model and the data) have values; the others are comments with their defaults. Without data, random
// numbers are used. Paths are relative to the folder of `path`, where the file will be written. The file can be used for training as it is.
// Throws what SetUpTraining throws.
std::string InitialConfiguration(Configuration configuration, const std::string& path);

}  // namespace gradloom
