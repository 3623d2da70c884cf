// Runs a plan on symbolic values: the output of a kernel is a name derived from its inputs' names. The streams of all ranks advance in a
// random order, and a running instruction leaves garbage in its outputs until it ends. So a plan with a race, an early reuse or an
// uninitialized read gives different results for different seeds, or a result different from that of the original plan. Shares no code with
// the verifier.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "runtime/plan/plan.h"

namespace gradloom {

// A hash of all state tensors and fetches after every entry has run twice, or a random number if the ranks deadlock. Ids must be in range.
uint64_t Simulate(const Plan& plan, uint32_t seed);

// By instruction of the program that a rank runs in an entry: whether its second run leaves it out.
using LeftOut = std::function<std::vector<bool>(size_t entry, size_t rank)>;

// Runs every entry twice, one entry after the other, and leaves out instructions in each second run. A hash of what the second runs give,
// and of all state tensors at the end.
uint64_t SimulateRepeats(const Plan& plan, uint32_t seed, const LeftOut& left_out);

}  // namespace gradloom
