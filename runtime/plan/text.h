// Plans as text for people and for golden tests: the same for the same plan, and complete but for the
// elements of tensors.
#pragma once

#include <string>

#include "runtime/plan/plan.h"

namespace gradloom {

// The whole plan: what it was made for, state, constants, entries, programs.
std::string PlanText(const Plan& plan);

// "state", "constants" ...
std::string ArenaName(Arena arena);

// One program: its streams, its buffers, and a line for each instruction in the order of issue, as
//   #4 s0 reference.Gemm(x%0, w%1, absent) -> h%4 scratch %9 {transB=1} ; /fc1/Gemm
// An operand is its name and the number of its buffer. Bodies follow their instruction, indented.
std::string ProgramText(const Program& program);

}  // namespace gradloom
