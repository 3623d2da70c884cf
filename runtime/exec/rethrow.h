// Adds the ONNX node to errors of kernels, which know only numbers.
#pragma once

#include <string>
#include <string_view>

#include "runtime/base/error.h"
#include "runtime/plan/plan.h"

namespace gradloom {

// "MatMul '/fc/MatMul'".
inline std::string NodeOf(const Instruction& instruction) {
  const std::string op = instruction.kind == InstructionKind::kIf     ? "If"
                         : instruction.kind == InstructionKind::kLoop ? "Loop"
                                                                      : instruction.op;
  return op + (instruction.origin.empty() ? "" : " '" + Escaped(instruction.origin) + "'");
}

// "all-reduce": the name of a collective or transfer.
inline std::string_view CommunicationName(const Instruction& instruction) {
  if (instruction.kind == InstructionKind::kSend) return "send";
  if (instruction.kind == InstructionKind::kRecv) return "receive";
  return CollectiveName(instruction.collective);
}

// For a loop that runs more iterations than its plan allows.
[[noreturn]] inline void ThrowTripLimit(const Instruction& loop) {
  throw Error(ErrorCode::kData, "the loop exceeds the limit of " + std::to_string(loop.trip_bound) + " iterations in its plan",
              Escaped(loop.origin), "set --loop-bound N, the largest number of iterations");
}

[[noreturn]] inline void RethrowAt(const Error& error, const Instruction& instruction) {
  const std::string at = NodeOf(instruction);
  throw Error(error.code(), error.message(), error.where().empty() ? at : at + ", " + error.where(), error.help());
}

// For a launch whose kernel cannot be made. The plan is then at fault, whatever class of error the kernel throws.
[[noreturn]] inline void RethrowKernelError(const Error& error, const Instruction& launch) {
  if (ExitCode(error.code()) != ExitCode(ErrorCode::kAttr)) RethrowAt(error, launch);
  throw Error(ErrorCode::kPlan, "unsound plan: kernel '" + Escaped(launch.kernel) + "' rejects its launch: " + error.message(),
              NodeOf(launch), "compile the model again; if the new plan is rejected too, this is a bug in Gradloom");
}

}  // namespace gradloom
