// Describes where a NaN or infinity came from.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/exec/numerics.h"

namespace gradloom {

// The index of an element in row-major order.
std::vector<int64_t> IndexOf(const Shape& shape, int64_t element);

// An instruction that has written numbers that are not finite. Borrows everything for the call.
struct NonFiniteText {
  const Plan& plan;
  int entry = 0;
  int64_t step = 0;  // number of the update
  const NumericsLog::Site& site;
  const std::vector<ScannedValue>& reads;   // of floating-point numbers
  const std::vector<ScannedValue>& writes;  // the same

  // "Log '/log' in the forward pass of step 3: 'y' float32[4] has 1 infinity and no NaN of 4 elements, the first at [2]; 'x' is from 0 to
  // 1".
  std::string Made() const;
  // "input 'x' of step 3 has 1 NaN of 208 elements, the first at [4, 3], in sample 4 of the batch; Gemm 'fc' reads it". `read` is one of
  // the values that nothing has written.
  std::string Given(const ScannedValue& read) const;

 private:
  const Entry& entry_of_plan() const { return plan.entries[static_cast<size_t>(entry)]; }
  const RankBinding& binding() const { return entry_of_plan().ranks[static_cast<size_t>(site.rank)]; }
  const Program& program() const { return plan.programs[static_cast<size_t>(binding().program)]; }

  std::string Node() const;
  // " in the forward pass of"; " in" if the plan does not note phases.
  std::string When() const;
  std::string Device() const;
  // The feed whose samples a buffer has: it is one, or lies in the slot that a copy stream fills. -1: none.
  int FeedOf(const Buffer& buffer) const;
  // ", in sample 4 of the batch"; "" if samples cannot be told apart.
  std::string SampleOf(const Buffer& buffer, int64_t element) const;
};

}  // namespace gradloom
