// Runs a plan on symbolic values: the output of a kernel is a name derived from its inputs' names. The streams of all ranks advance in a
// random order, and a running instruction leaves garbage in its outputs until it ends. So a plan with a race, an early reuse or an
// uninitialized read gives different results for different seeds, or a result different from that of the original plan. Shares no code with
// the verifier.
#pragma once

#include <cstdint>

#include "runtime/plan/plan.h"

namespace gradloom {

// A hash of all state tensors and fetches after every entry has run twice, or a random number if the ranks deadlock. Ids must be in range.
uint64_t Simulate(const Plan& plan, uint32_t seed);

}  // namespace gradloom
