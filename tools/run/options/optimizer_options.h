// The optimizer of a configuration, and the schedule of its learning rate.
#pragma once

#include <cstdint>

#include "compiler/passes/update/add_optimizer.h"
#include "runtime/plan/plan.h"
#include "tools/config/configuration.h"

namespace gradloom {

// Resets options that the chosen optimizer or schedule does not have, if they come from a file, a plan or a run, and its name from a
// stronger source, such as a later file: they belong to what the former chose.
void DropOptionsOfOthers(Configuration& configuration);

// Throws Error(kConfig) for an option that the chosen optimizer or schedule does not have, unless it is recorded: earlier releases ignored
// some of them.
OptimizerOptions OptimizerOf(const Configuration& configuration);

// `total_updates`: of the whole run; 0: unknown. Throws Error(kConfig).
Schedule ScheduleOf(const Configuration& configuration, int64_t total_updates);

}  // namespace gradloom
