// The optimizer of a configuration, and the schedule of its learning rate.
#pragma once

#include <cstdint>

#include "compiler/passes/add_optimizer.h"
#include "runtime/plan/plan.h"
#include "tools/config/configuration.h"

namespace gradloom {

// Throws Error(kConfig) for an option that the rule does not have.
OptimizerOptions OptimizerOf(const Configuration& configuration);

// `total_updates`: of the whole run; 0: unknown. Throws Error(kConfig).
Schedule ScheduleOf(const Configuration& configuration, int64_t total_updates);

}  // namespace gradloom
