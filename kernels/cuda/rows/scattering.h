// What the adjoints of gathers and the scatters have in common, and the scratch memory that they need.
#pragma once

#include <cstdint>

#include "kernels/catalog/kernel.h"

namespace gradloom {

// Rows of `inner` updates that go to rows of the output: row i of part o to row place(i) of part o. The places come from an index operand.
struct Scattering {
  // Updates next to each other, in the order of their places, that one thread adds up.
  static constexpr int64_t kRun = 32;
  // So few are sorted by comparing all with all.
  static constexpr int64_t kFew = 1024;
  static constexpr int kMaxDigitBits = 8;

  int64_t outer = 1, count = 0, extent = 0, inner = 1;
  int64_t total_bytes = 4;  // of an unfinished sum

  int64_t Runs() const { return (count + kRun - 1) / kRun; }
  // Digits of a place: `extent` itself is the place of what goes nowhere.
  int Passes() const;
  int DigitBits() const;
  // Updates that one thread sorts, and threads.
  int64_t Chunk() const;
  int64_t Chunks() const { return (count + Chunk() - 1) / Chunk(); }

  // Scratch memory: two lists of places and update numbers, counts by digit and thread, totals by digit, and for each run the sums
  // of its first and its last place where these have more updates in other runs.
  int64_t ListBytes() const { return count * 8; }
  int64_t CountBytes() const;
  int64_t Bytes() const;
};

// Of gradloom.GatherGrad, gradloom.GatherNDGrad, ScatterElements or ScatterND.
Scattering ScatteringOf(const KernelCall& call);

// Whether a thread takes all updates along the axis of a ScatterElements: where the threads are many or the axis is short.
bool ScattersByLines(const KernelCall& call);

}  // namespace gradloom
