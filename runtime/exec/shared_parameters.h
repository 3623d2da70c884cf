// A state arena that is partly in memory shared with other processes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "runtime/exec/state_arena.h"
#include "runtime/plan/plan.h"

namespace gradloom {

// The bytes of a plan's state that are in the shared memory, for a plan with one rank.
int64_t SharedStateBytes(const Plan& plan);

// The state arena of a CPU plan with one rank. Parameters, their copies and running statistics are at their offsets in `parameters`, which
// has room for the whole arena (pages without any of them are never touched); everything else is in private memory. Every tensor gets its
// initial value, as in each other process, so none may train before all have done this. Throws Error(kUnsupported) for other plans.
std::shared_ptr<StateArena> MakeSharedStateArena(const Plan& plan, std::shared_ptr<std::byte> parameters);

}  // namespace gradloom
