// Runs plans for devices that have a memory of their own.
#pragma once

#include <memory>

#include "runtime/exec/executor.h"

namespace gradloom {

// As Executor::Make. All streams of all ranks of the process are fed by the caller's thread; a step is captured into one graph over all of
// them at the second run of an entry, when everything is loaded. Throws Error(kDevice) where a device is not there.
std::unique_ptr<Executor> MakeDeviceExecutor(std::shared_ptr<const Plan> plan, const ExecutorOptions& options,
                                             std::shared_ptr<StateArena> state);

}  // namespace gradloom
