// Where the bytes of a plan go: planned, before anything runs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/plan/plan.h"

namespace gradloom {

struct LargeBuffer {
  std::string name;
  std::string origin;  // the ONNX node of the instruction that writes it; empty for what is given
  int64_t bytes = 0;
};

// Of one program, on its device. The arena is `transient_bytes`; what is live at its fullest moment is given by role,
// and is at most as much.
struct ProgramMemory {
  int64_t transient_bytes = 0;
  int64_t activations = 0;  // values of the forward and backward pass
  int64_t gradients = 0;    // values that an update reads
  int64_t scratch = 0;
  int fullest = -1;                  // the instruction at that moment; -1 where nothing is transient
  std::vector<LargeBuffer> largest;  // live at that moment, the largest first
  int64_t live() const { return activations + gradients + scratch; }
};

// Of the devices of a place.
struct PlaceMemory {
  int64_t parameters = 0, statistics = 0, optimizer = 0, accumulators = 0;  // of the state, padding of layouts included
  int64_t state_bytes = 0, constants_bytes = 0, transient_bytes = 0;        // the arenas; the last is shared by all programs
  int64_t input_bytes = 0;                                                  // both slots
  int fullest = -1;                                                         // the program with the largest transient arena

  int64_t total_bytes() const { return state_bytes + constants_bytes + transient_bytes + input_bytes; }
};

struct MemoryReport {
  std::vector<PlaceMemory> places;
  std::vector<ProgramMemory> programs;

  // The place whose devices hold most.
  const PlaceMemory& fullest() const;
};

// Of the state arena of the device that has the largest: without a look at any program.
int64_t MostStateBytes(const Plan& plan);

// The arenas of a place alone, at the cost of a look at the size of each.
PlaceMemory ArenasOf(const Plan& plan, int place);

// `largest`: how many buffers of each program to name.
MemoryReport ReportMemory(const Plan& plan, size_t largest = 8);

}  // namespace gradloom
