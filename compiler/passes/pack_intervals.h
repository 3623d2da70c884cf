// Packs buffers with known lifetimes into one arena.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace gradloom {

// Bytes that are in use from step `first` to step `last`, inclusive.
struct Interval {
  int64_t bytes = 0;
  int first = 0;
  int last = 0;
  int64_t offset = 0;  // the result, a multiple of kAlignmentBytes
  // If steps are not passed in order, as on several streams: intervals that begin after this step cannot be in use together with it. A step
  // before `last` means `last`.
  int until = 0;
};

// Assigns offsets such that intervals that overlap in time do not overlap in space; returns the size of the arena. Tries several orders of
// greedy best fit, each of them again with what lay too high placed earlier, and keeps the smallest result. If so many intervals are in use
// at once that this would take seconds, tries only the order of time, and keeps apart all that begins until Interval::until. `together`
// says of two intervals, by index, whether they may be in use at once although their steps do not overlap; null: none are.
int64_t PackIntervals(std::vector<Interval>& intervals, const std::function<bool(size_t, size_t)>& together = nullptr);

// The largest sum of bytes (rounded up to the alignment) in use at one step, a lower bound for any packing.
int64_t PackingBound(const std::vector<Interval>& intervals);

}  // namespace gradloom
