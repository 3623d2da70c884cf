// Plants faults in plans, one at a time, at every place where a kind of fault is possible.
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
  // Calls `visit(mutant, site)` for each place. `plan` must be sound.
  void (*for_each)(const Plan& plan, const std::function<void(const Plan& mutant, const std::string& site)>& visit);
};

// Some kinds may produce another sound plan with the same results (removing a wait that others imply, moving to free bytes). No kind merely
// exchanges one operand, state tensor or attribute for another of the same type on all ranks: that is a different plan, not an unsound one.
std::span<const MutationKind> MutationKinds();

// From now on, tries only about `places` randomly drawn places per kind and program or rank; 0 tries all.
void SampleMutations(size_t places, uint64_t seed);

}  // namespace gradloom
