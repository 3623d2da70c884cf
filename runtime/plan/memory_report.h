// The planned memory use of a plan, known before anything runs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/plan/plan.h"

namespace gradloom {

struct LargeBuffer {
  std::string name;
  std::string origin;  // the ONNX node of the instruction that writes it; empty for a buffer that is given
  int64_t bytes = 0;
};

// The memory of one program, on its device. The arena has `transient_bytes`. The other numbers say what is live at the instruction with the
// most live bytes; their sum is at most `transient_bytes`.
struct ProgramMemory {
  int64_t transient_bytes = 0;
  int64_t activations = 0;  // values of the forward and backward pass
  int64_t gradients = 0;    // values that an update reads
  int64_t scratch = 0;
  int fullest = -1;                  // that instruction; -1 if nothing is transient
  std::vector<LargeBuffer> largest;  // live at that instruction, the largest first
  int64_t live() const { return activations + gradients + scratch; }
};

// The memory of each device of a place.
struct PlaceMemory {
  // Parts of the state, including padding of layouts.
  int64_t parameters = 0, statistics = 0, optimizer = 0, accumulators = 0, weight_copies = 0, averages = 0;
  int64_t state_bytes = 0, constants_bytes = 0, transient_bytes = 0;  // sizes of the arenas; all programs share the last one
  int64_t input_bytes = 0;                                            // both slots
  int fullest = -1;                                                   // the program with the largest transient arena

  int64_t total_bytes() const { return state_bytes + constants_bytes + transient_bytes + input_bytes; }
};

struct MemoryReport {
  std::vector<PlaceMemory> places;
  std::vector<ProgramMemory> programs;

  // The place whose devices use most memory.
  const PlaceMemory& fullest() const;
};

// The size of the largest state arena of any device. Looks at no program.
int64_t MostStateBytes(const Plan& plan);

// The bytes of all state that a checkpoint contains, over all parts of the model: the elements, without padding and without what is derived
// from other state.
int64_t SavedStateBytes(const Plan& plan);

// Only the arenas of a place, which costs a look at each size.
PlaceMemory ArenasOf(const Plan& plan, int place);

// `largest`: number of buffers to name for each program.
MemoryReport ReportMemory(const Plan& plan, size_t largest = 8);

}  // namespace gradloom
