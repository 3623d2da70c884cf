// Kernels know numbers; the plan knows the node.
#pragma once

#include <string>

#include "runtime/base/error.h"
#include "runtime/plan/plan.h"

namespace gradloom {

// "MatMul '/fc/MatMul'".
inline std::string NodeOf(const Instruction& instruction) {
  return instruction.op + (instruction.origin.empty() ? "" : " '" + Escaped(instruction.origin) + "'");
}

[[noreturn]] inline void RethrowAt(const Error& error, const Instruction& instruction) {
  const std::string at = NodeOf(instruction);
  throw Error(error.code(), error.message(), error.where().empty() ? at : at + ", " + error.where(), error.help());
}

}  // namespace gradloom
