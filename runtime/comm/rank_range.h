// The ranks of a plan that a process runs.
#pragma once

namespace gradloom {

// Ranks [first, last).
struct RankRange {
  int first = 0, last = 0;
  int count() const { return last - first; }
  bool contains(int rank) const { return rank >= first && rank < last; }
};

}  // namespace gradloom
