// Runs a plan on symbols: memory holds names of values, a kernel's output is a name made from its inputs'.
// Streams of all ranks advance in a random order, and a running instruction leaves rubbish where it will
// write. So a plan with a race, an early reuse or an uninitialised read gives different results under
// different seeds or another result than the plan it was made from. Shares no code with the verifier.
#pragma once

#include <cstdint>

#include "runtime/plan/plan.h"

namespace gradloom {

// A number for what all state tensors and fetches hold after every entry has run twice, or a random one
// where the ranks wait for each other for ever. Ids must be in range.
uint64_t Simulate(const Plan& plan, uint32_t seed);

}  // namespace gradloom
