// The parts of a program's schedule that several reports use.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "runtime/plan/plan.h"

namespace gradloom {

// Whether the instruction only orders others: a record or a wait.
bool IsSignal(const Instruction& instruction);

// "cpu.Gemm", "copy", "all-reduce of 7".
std::string InstructionName(const Instruction& instruction);

// "compute 0".
std::string StreamName(const Program& program, size_t stream);

// The first entry that trains, or -1.
int TrainingEntry(const Plan& plan);

// One arrow per event wait: from the last instruction before the record to the next one after the wait.
std::vector<std::pair<int, int>> EventArrows(const Program& program);

// The collectives and transfers of an entry, each with its members as (rank, instruction), the sender of a transfer first.
using Communication = std::vector<std::pair<int, int>>;
std::vector<Communication> MatchCommunication(const Plan& plan, const Entry& entry);

}  // namespace gradloom
