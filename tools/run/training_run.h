// A training run from its configuration to its folder.
#pragma once

#include "tools/config/configuration.h"

namespace gradloom {

// Sets up, trains and writes the folder of the run. The exit code: 0, also where a lack of progress ended it early.
int Train(const Configuration& configuration);

}  // namespace gradloom
