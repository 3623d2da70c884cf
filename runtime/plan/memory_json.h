// What a plan takes of memory, for programs.
#pragma once

#include <string>

#include "runtime/plan/plan.h"

namespace gradloom {

// One JSON object: bytes of the fullest device by kind, of each device where they differ, and by program with its largest buffers. `hash`:
// the plan's.
std::string MemoryJson(const Plan& plan, const std::string& hash);

}  // namespace gradloom
