// What a program computes alike in every run.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "runtime/plan/plan.h"

namespace gradloom {

// By instruction of a program: whether it is settled. A launch or a copy is settled if
// - it reads only constants, states that the program does not write, and what other settled instructions have written, so that it writes
//   the same bytes in every run until one of these states changes, and
// - what the other instructions read of its results is still there at the end of the program, and no other instruction writes these bytes
//   or uses them as scratch memory.
// So a run of the program on memory in which its last run has ended may leave out all settled instructions, and computes the same: if
// nothing else has used this memory since, and if none of these states has changed. Streams and events order the instructions that remain
// as before, and what was left out ended before the run began.
//
// `fetched`: the buffers that are fetched. What writes them is not settled, because the caller has their addresses. The program must be
// sound, except that for one whose ids or ranges are invalid no instruction is settled. Instructions in bodies are never settled.
std::vector<bool> SettledInstructions(const Program& program, std::span<const int> fetched);

// The same for what a rank runs in an entry of a plan.
std::vector<bool> SettledInstructions(const Plan& plan, size_t entry, size_t rank);

// For people, a line for each program that has such instructions in an entry: "settled: entry 2, program 1: #0 #3\n". Of a program that
// several ranks run, those of the first. Nothing for other devices than the CPU, which run whole programs. Takes any plan.
std::string SettledText(const Plan& plan);

}  // namespace gradloom
