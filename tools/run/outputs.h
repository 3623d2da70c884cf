// Checks that the files of a command can be written, before the work is done.
#pragma once

#include <string>

#include "tools/config/configuration.h"

namespace gradloom {

// Throws Error(kResource), as the write itself would, if a file of this name cannot be written. Leaves nothing behind, even if a signal
// ends the process later (RemovePartialFileOnSignal).
void CheckCanWrite(const std::string& path);

// Checks everything that a training run writes outside its folder, and the location of the folder of a new run. Throws Error(kResource,
// kConfig).
void CheckOutputsOfRun(const Configuration& configuration, bool new_run);

}  // namespace gradloom
