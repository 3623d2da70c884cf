// Runs plans on devices that have their own memory.
#pragma once

#include <memory>

#include "runtime/exec/executor.h"

namespace gradloom {

// Like Executor::Make. The caller's thread feeds all streams of all ranks of the process. At the second run of an entry, when everything is
// loaded, a step is captured into one graph over all streams. Throws Error(kDevice) if a device does not exist.
std::unique_ptr<Executor> MakeDeviceExecutor(std::shared_ptr<const Plan> plan, const ExecutorOptions& options,
                                             std::shared_ptr<StateArena> state);

}  // namespace gradloom
