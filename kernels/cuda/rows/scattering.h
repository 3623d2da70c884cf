// Scatters and the gradients of gathers: what they have in common, and their scratch memory.
#pragma once

#include <cstdint>

#include "kernels/catalog/kernel.h"

namespace gradloom {

// `count` rows of `inner` updates per part: row i of part o goes to row target(i) of part o of the output. The targets come from an
// index operand.
struct Scattering {
  // The number of consecutive updates, sorted by target, that one thread adds up.
  static constexpr int64_t kRun = 32;
  // Updates are sorted in tiles of this many, and then this many sorted lists at a time are merged.
  static constexpr int kTile = 256, kWays = 16;

  int64_t outer = 1, count = 0, extent = 0, inner = 1;
  int64_t total_bytes = 4;  // size of a partial sum

  int64_t Runs() const { return (count + kRun - 1) / kRun; }

  // Scratch memory: two lists of targets and update numbers; and for each run the partial sums of its first and its last target, which
  // other runs may continue.
  int64_t ListBytes() const { return count * 8; }
  int64_t Bytes() const { return 4 * ListBytes() + 2 * outer * Runs() * inner * total_bytes; }
};

// For gradloom.GatherGrad, gradloom.GatherNDGrad, ScatterElements and ScatterND.
Scattering ScatteringOf(const KernelCall& call);

// Whether one thread takes all updates of a line along the axis of a ScatterElements: if there are many lines or the axis is short.
// Never for totals in 16 bits, which it would have to round after every update.
bool ScattersByLines(const KernelCall& call);

}  // namespace gradloom
