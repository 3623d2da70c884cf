// The memory use of a plan as JSON.
#pragma once

#include <string>

#include "runtime/plan/plan.h"

namespace gradloom {

// One JSON object: bytes by kind for the device that uses most, for each device if they differ, and by program with its largest buffers.
// `hash`: the plan's.
std::string MemoryJson(const Plan& plan, const std::string& hash);

}  // namespace gradloom
