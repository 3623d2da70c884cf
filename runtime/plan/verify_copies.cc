// Checks "values" of 16-bit copies of parameters: an instruction that gives a parameter its next value also writes the parameter's copies.
#include <map>
#include <string>
#include <vector>

#include "kernels/catalog/update.h"
#include "runtime/base/error.h"
#include "runtime/plan/verify_scope.h"

namespace gradloom::verify {
namespace {

// An output of an instruction.
struct Source {
  int instruction = -1, output = -1;
};

class CopyCheck {
 public:
  CopyCheck(const Scope& scope, const ProgramFacts& facts, FaultList& faults)
      : scope_(scope), program_(scope.program), faults_(faults), writers_(Writers(scope.program)) {
    for (const auto& [state, instruction] : facts.state_writes) writes_.emplace(state, instruction);
  }

  void Run() {
    for (size_t i = 0; i < scope_.plan.state.size(); ++i) {
      const StateTensor& copy = scope_.plan.state[i];
      if (copy.kind != StateKind::kWeightCopy || !copy.in_place(scope_.place) || copy.bytes == 0) continue;
      const auto own = writes_.find(static_cast<int>(i)), parameter = writes_.find(copy.parameter);
      if (own == writes_.end() && parameter == writes_.end()) continue;
      const bool together = own != writes_.end() && parameter != writes_.end() &&
                            IsCopyOf(SourceOf(own->second, copy), SourceOf(parameter->second, scope_.plan.state[At(copy.parameter)]));
      if (together) continue;
      faults_.Add("values", Where(scope_, (own == writes_.end() ? parameter : own)->second),
                  "'" + Escaped(copy.name) + "' and '" + Escaped(scope_.plan.state[At(copy.parameter)].name) +
                      "', of which it is the rounded copy, do not get their next values from one update");
    }
  }

 private:
  static size_t At(int index) { return static_cast<size_t>(index); }

  // The output that becomes the next value of a state, which instruction `index` writes: copies and reorders pass it on.
  Source SourceOf(int index, const StateTensor& state) const {
    int buffer = -1;
    for (const Use& use : program_.instructions[At(index)].uses) {
      if (use.access != Access::kWrite || use.buffer < 0) continue;
      const Buffer& written = program_.buffers[At(use.buffer)];
      if (written.arena == Arena::kState && written.offset == state.offset) buffer = use.buffer;
    }
    // Instructions precede those that read their results, so this ends.
    while (buffer >= 0 && writers_[At(buffer)] >= 0) {
      const Instruction& instruction = program_.instructions[At(writers_[At(buffer)])];
      const bool passes_on = instruction.kind == InstructionKind::kCopy || IsReorder(instruction.domain, instruction.op);
      if (!passes_on) return {writers_[At(buffer)], OutputOf(instruction, buffer)};
      buffer = instruction.uses[0].buffer;
    }
    return {};
  }

  static int OutputOf(const Instruction& instruction, int buffer) {
    int output = 0;
    for (const Use& use : instruction.uses) {
      if (use.access != Access::kWrite) continue;
      if (use.buffer == buffer) return output;
      ++output;
    }
    return -1;
  }

  bool IsCopyOf(const Source& copy, const Source& parameter) const {
    if (copy.instruction < 0 || copy.instruction != parameter.instruction) return false;
    const Instruction& instruction = program_.instructions[At(copy.instruction)];
    return instruction.kind == InstructionKind::kLaunch &&
           CopiedOutput(CallOf(scope_.plan, program_, instruction), copy.output) == parameter.output;
  }

  const Scope& scope_;
  const Program& program_;
  FaultList& faults_;
  const std::vector<int> writers_;
  std::map<int, int> writes_;  // the instruction that writes a state tensor
};

}  // namespace

void CheckCopies(const Scope& scope, const ProgramFacts& facts, FaultList& faults) { CopyCheck(scope, facts, faults).Run(); }

}  // namespace gradloom::verify
