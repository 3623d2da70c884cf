// The configuration file that `gradloom init` writes.
#pragma once

#include <string>

#include "tools/config/configuration.h"

namespace gradloom {

// A commented TOML file with every key of a training run: those that the configuration gives and those that a first run
// needs (model, data, loss, columns, all found out from the model and the data) have a value, the others are comments
// with their defaults. Without data it names random numbers. Paths are made relative to the folder of `path`, which
// the file will have. Training with it works as it stands. Throws what SetUpTraining throws.
std::string InitialConfiguration(Configuration configuration, const std::string& path);

}  // namespace gradloom
