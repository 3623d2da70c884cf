// Whether the CPU devices of a plan fit the machine that is to run them.
#pragma once

#include "runtime/comm/rank_range.h"
#include "runtime/plan/plan.h"

namespace gradloom {

// Throws Error(kLimit) where the devices of these ranks, which are threads of this process, would be more threads than are sensible, or
// where several of them need more memory than is free. What a single device cannot have is told when it takes it (HostArena).
void CheckMachine(const Plan& plan, RankRange own);

}  // namespace gradloom
