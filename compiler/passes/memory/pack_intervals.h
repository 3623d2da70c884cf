// Packs buffers with known lifetimes into one arena.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace gradloom {

// Bytes that are in use from step `first` to step `last`, inclusive. Each step belongs to a stream. Streams run their steps in order, but
// one stream may be ahead of another.
struct PackedInterval {
  int64_t bytes = 0;
  int first = 0;
  int last = 0;
  int64_t offset = 0;  // the result, a multiple of kAlignmentBytes
  int stream = 0;      // of step `first`
  // By stream: its first step that comes after every use, as do all later ones; kNever if there is none. Empty if there is one stream:
  // last + 1.
  std::vector<int> over;

  static constexpr int kNever = std::numeric_limits<int>::max();
};

// Assigns offsets such that intervals that may be in use at once do not overlap in space; returns the size of the arena. Tries several
// orders of greedy best fit, each of them again with what lay too high placed earlier, and keeps the smallest result. If so many intervals
// may be in use at once that this would take seconds, tries only the order of time.
int64_t PackIntervals(std::vector<PackedInterval>& intervals);

// The same in the order of time alone: O(n log n), however many intervals are in use at once.
int64_t PackInOrderOfTime(std::vector<PackedInterval>& intervals);

// The largest sum of bytes (rounded up to the alignment) in use at one step, a lower bound for any packing.
int64_t PackingBound(const std::vector<PackedInterval>& intervals);

}  // namespace gradloom
