// Kernels know numbers; the plan knows the node.
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

// "all-reduce": of an instruction at which ranks come together.
inline std::string_view MeetingName(const Instruction& instruction) {
  if (instruction.kind == InstructionKind::kSend) return "send";
  if (instruction.kind == InstructionKind::kRecv) return "receive";
  switch (instruction.collective) {
    case Collective::kAllReduceSum: return "all-reduce";
    case Collective::kBroadcast: return "broadcast";
    case Collective::kReduceScatterSum: return "reduce-scatter";
    case Collective::kAllGather: return "all-gather";
  }
  return "";
}

// A loop has more rounds than its plan says.
[[noreturn]] inline void ThrowEndless(const Instruction& loop) {
  throw Error(ErrorCode::kData, "the loop goes on past the " + std::to_string(loop.trip_bound) + " rounds of its plan",
              Escaped(loop.origin), "--loop-bound N, where it may go on for N rounds");
}

[[noreturn]] inline void RethrowAt(const Error& error, const Instruction& instruction) {
  const std::string at = NodeOf(instruction);
  throw Error(error.code(), error.message(), error.where().empty() ? at : at + ", " + error.where(), error.help());
}

// Its kernel cannot be made. What a plan says is for whoever compiled it to get right, whatever class the kernel gives it.
[[noreturn]] inline void RethrowUnmade(const Error& error, const Instruction& launch) {
  if (ExitCode(error.code()) != ExitCode(ErrorCode::kAttr)) RethrowAt(error, launch);
  throw Error(ErrorCode::kPlan, "unsound plan: kernel '" + Escaped(launch.kernel) + "' does not take its launch: " + error.message(),
              NodeOf(launch), "compile the model again; a plan of a fresh compile that is refused is a bug of Gradloom");
}

}  // namespace gradloom
