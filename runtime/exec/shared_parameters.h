// State of which a part lies in memory that other processes have too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "runtime/exec/state_arena.h"
#include "runtime/plan/plan.h"

namespace gradloom {

// Whether a tensor is one of those that processes share which train one set of parameters: optimizer state is each one's own.
bool IsSharedState(const StateTensor& state);

// The state arena of a CPU plan of one rank. Parameters and running statistics lie at their offsets in `parameters`, which has room for the
// whole arena (pages that hold none of them are never touched), all else in memory of its own. Every tensor gets its initial value, as in
// each of the other processes: none of them may train before all have come so far. Throws Error(kUnsupported) for other plans.
std::shared_ptr<StateArena> MakeSharedStateArena(const Plan& plan, std::shared_ptr<std::byte> parameters);

}  // namespace gradloom
