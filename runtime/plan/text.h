// Plans as text, for users and golden tests. The same plan gives the same text, which is complete except for the elements of tensors.
#pragma once

#include <string>

#include "runtime/plan/plan.h"

namespace gradloom {

// The whole plan: targets, state, constants, entries, programs.
std::string PlanText(const Plan& plan);

// "state", "constants" ...
std::string ArenaName(Arena arena);

// One program: its streams, its buffers, and a line for each instruction in the order of issue, such as
//   #4 s0 reference.Gemm(x%0, w%1, absent) -> h%4 scratch %9 {transB=1} ; /fc1/Gemm
// An operand is shown by its name and the number of its buffer. Bodies follow their instruction, indented.
std::string ProgramText(const Program& program);

// "step", "last batch".
std::string EntryKindName(EntryKind kind);

}  // namespace gradloom
