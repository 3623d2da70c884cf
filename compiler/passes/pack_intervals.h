// Packs buffers with known lifetimes into one arena.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace gradloom {

// Bytes that are in use from step `first` to step `last`, both included.
struct Interval {
  int64_t bytes = 0;
  int first = 0;
  int last = 0;
  int64_t offset = 0;  // the answer, a multiple of kAlignmentBytes
};

// Gives offsets such that intervals that overlap in time do not overlap in space; returns the size of the
// arena. Several orders of greedy best fit are tried and the smallest result is kept; where so many are in use at the same
// time that this would take seconds, the order of time alone. `together` says of two intervals, by index, whether they may be
// in use at the same time although they do not overlap in the steps, as on several streams; null: none are.
int64_t PackIntervals(std::vector<Interval>& intervals, const std::function<bool(size_t, size_t)>& together = nullptr);

// The largest sum of bytes (rounded up to the alignment) in use at one step: no packing is smaller.
int64_t PackingBound(const std::vector<Interval>& intervals);

}  // namespace gradloom
