// The files that a command is going to write, looked at before the work that they are for.
#pragma once

#include <string>

#include "tools/config/configuration.h"

namespace gradloom {

// Throws Error(kResource), as the write itself would at the end, where a file of this name cannot be written. Leaves nothing behind, nor
// does a signal that ends the process from here on (RemoveHalfFileOnSignal).
void CheckCanWrite(const std::string& path);

// All that a training run writes beside its folder, and where the folder of a new run is to be. Throws Error(kResource, kConfig).
void CheckOutputsOfRun(const Configuration& configuration, bool new_run);

}  // namespace gradloom
