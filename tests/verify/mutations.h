// Faults planted in plans, one at a time, at every place where a kind of fault can be planted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "runtime/plan/plan.h"

namespace gradloom {

struct MutationKind {
  std::string_view name;
  // Calls `visit(mutant, site)` for each place; `plan` must be sound.
  void (*for_each)(const Plan& plan, const std::function<void(const Plan& mutant, const std::string& site)>& visit);
};

// A mutant of some kinds is another sound plan with the same results (a wait that others imply, a move to
// free bytes). No kind merely exchanges one operand, state tensor or attribute for another of the same
// type on all ranks alike: that is another plan, not an unsound one.
std::span<const MutationKind> MutationKinds();

// From now on only about so many places of each kind and program, or rank, are tried, drawn by the seed; 0: all.
void SampleMutations(size_t places, uint64_t seed);

}  // namespace gradloom
