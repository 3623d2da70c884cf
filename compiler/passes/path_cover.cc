#include "compiler/passes/path_cover.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

namespace gradloom {

std::vector<std::vector<int>> TransitiveReduction(const std::vector<std::vector<int>>& dependencies) {
  const size_t n = dependencies.size();
  std::vector<std::vector<int>> reduced(n);
  if (n > kMaxReduced) {
    for (size_t i = 0; i < n; ++i) {
      for (int before : dependencies[i]) {
        const bool implied = std::any_of(dependencies[i].begin(), dependencies[i].end(), [&](int other) {
          const std::vector<int>& its = dependencies[static_cast<size_t>(other)];
          return std::binary_search(its.begin(), its.end(), before);
        });
        if (!implied) reduced[i].push_back(before);
      }
    }
    return reduced;
  }
  // A bit set of ancestors for each node.
  const size_t words = (n + 63) / 64;
  std::vector<uint64_t> ancestors(n * words, 0);
  for (size_t i = 0; i < n; ++i) {
    uint64_t* const mine = &ancestors[i * words];
    // Latest dependency first, so that the dependencies that it implies are recognized.
    for (size_t k = dependencies[i].size(); k-- > 0;) {
      const auto before = static_cast<size_t>(dependencies[i][k]);
      uint64_t& word = mine[before / 64];
      const uint64_t bit = uint64_t{1} << (before % 64);
      if ((word & bit) != 0) continue;
      word |= bit;
      reduced[i].push_back(static_cast<int>(before));
      const uint64_t* const its = &ancestors[before * words];
      for (size_t w = 0; w <= before / 64; ++w) mine[w] |= its[w];
    }
    std::reverse(reduced[i].begin(), reduced[i].end());
  }
  return reduced;
}

namespace {

// A maximum matching of nodes (right) with predecessors (left), by Hopcroft and Karp's algorithm.
class Matching {
 public:
  explicit Matching(const std::vector<std::vector<int>>& dependencies)
      : successors_(dependencies.size()), successor_(dependencies.size(), -1), predecessor_(dependencies.size(), -1) {
    for (size_t i = 0; i < dependencies.size(); ++i) {
      for (int before : dependencies[i]) successors_[static_cast<size_t>(before)].push_back(static_cast<int>(i));
    }
    while (Layer()) {
      next_.assign(successors_.size(), 0);
      for (size_t left = 0; left < successors_.size(); ++left) {
        if (successor_[left] < 0) Augment(static_cast<int>(left));
      }
    }
  }

  std::vector<int> Take() { return std::move(predecessor_); }

 private:
  static constexpr int kFar = std::numeric_limits<int>::max();

  // Computes the distances of alternating paths from the free nodes on the left. Returns whether one reaches a free node on the right.
  bool Layer() {
    distance_.assign(successors_.size(), kFar);
    std::vector<int> queue;
    for (size_t left = 0; left < successors_.size(); ++left) {
      if (successor_[left] >= 0) continue;
      distance_[left] = 0;
      queue.push_back(static_cast<int>(left));
    }
    bool found = false;
    for (size_t at = 0; at < queue.size(); ++at) {
      const auto left = static_cast<size_t>(queue[at]);
      for (int right : successors_[left]) {
        const int other = predecessor_[static_cast<size_t>(right)];
        if (other < 0) {
          found = true;
        } else if (distance_[static_cast<size_t>(other)] == kFar) {
          distance_[static_cast<size_t>(other)] = distance_[left] + 1;
          queue.push_back(other);
        }
      }
    }
    return found;
  }

  // Searches along the layers for a free node on the right, and matches along the path back. Uses an explicit stack because paths can be
  // long.
  void Augment(int start) {
    std::vector<int> stack{start};
    while (!stack.empty()) {
      const auto left = static_cast<size_t>(stack.back());
      if (next_[left] == successors_[left].size()) {
        distance_[left] = kFar;
        stack.pop_back();
        continue;
      }
      const int right = successors_[left][next_[left]++];
      const int other = predecessor_[static_cast<size_t>(right)];
      if (other < 0) {
        // Each node on the stack is matched with the node that it visited last.
        for (size_t k = stack.size(); k-- > 0;) {
          const auto taker = static_cast<size_t>(stack[k]);
          const int taken = successors_[taker][next_[taker] - 1];
          successor_[taker] = taken;
          predecessor_[static_cast<size_t>(taken)] = static_cast<int>(taker);
        }
        return;
      }
      if (distance_[static_cast<size_t>(other)] == distance_[left] + 1) stack.push_back(other);
    }
  }

  std::vector<std::vector<int>> successors_;
  std::vector<int> successor_, predecessor_;
  std::vector<int> distance_;
  std::vector<size_t> next_;
};

}  // namespace

std::vector<int> MinimumPathCover(const std::vector<std::vector<int>>& dependencies) { return Matching(dependencies).Take(); }

}  // namespace gradloom
