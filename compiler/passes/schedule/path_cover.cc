#include "compiler/passes/schedule/path_cover.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

namespace gradloom {

namespace {

// A search near a dependency visits this many nodes in each direction.
constexpr size_t kNear = 16;
// A set of this many nodes that follow each other is a cache line.
constexpr size_t kBlockWords = 8, kBlockNodes = 64 * kBlockWords;
using BlockSet = std::array<uint64_t, kBlockWords>;

// Most dependencies are decided by what is near them: a dependency is implied if another path leads from its node to the dependent one.
// What is left, because the paths are long and many, is decided by sets of ancestors.
class Reduction {
 public:
  explicit Reduction(const std::vector<std::vector<int>>& dependencies)
      : dependencies_(dependencies), reduced_(dependencies.size()), successors_(dependencies.size()) {
    for (size_t i = 0; i < dependencies.size(); ++i) {
      for (int before : dependencies[i]) successors_[static_cast<size_t>(before)].push_back(static_cast<int>(i));
    }
    FindChains();
    for (size_t i = 0; i < dependencies.size(); ++i) {
      for (size_t k = 0; k < dependencies[i].size(); ++k) {
        const std::optional<bool> implied = IsImplied(i, k);
        if (!implied) open_.push_back({dependencies[i][k], static_cast<int>(i)});
        if (!implied.value_or(false)) reduced_[i].push_back(dependencies[i][k]);
      }
    }
    DecideByAncestors();
  }

  std::vector<std::vector<int>> Take() { return std::move(reduced_); }

 private:
  struct Dependency {
    int before, node;
    size_t block() const { return static_cast<size_t>(before) / kBlockNodes; }
  };

  int chain(int node) const { return chain_[static_cast<size_t>(node)]; }
  int place(int node) const { return place_[static_cast<size_t>(node)]; }
  const std::vector<int>& before(int node) const { return dependencies_[static_cast<size_t>(node)]; }

  // Divides the nodes into chains: each is followed by the successor from which the longest path leads on, if no longer chain is.
  void FindChains() {
    const size_t n = dependencies_.size();
    std::vector<int> height(n, 0), heir(n, -1);
    for (size_t i = n; i-- > 0;) {
      for (int before : dependencies_[i]) {
        if (height[static_cast<size_t>(before)] > height[i] + 1) continue;
        height[static_cast<size_t>(before)] = height[i] + 1;
        heir[static_cast<size_t>(before)] = static_cast<int>(i);
      }
    }
    int chains = 0;
    for (size_t i = 0; i < n; ++i) {
      int longest = -1;
      for (int before : dependencies_[i]) {
        if (heir[static_cast<size_t>(before)] == static_cast<int>(i) && (longest < 0 || place(before) > place(longest))) longest = before;
      }
      chain_.push_back(longest < 0 ? chains++ : chain(longest));
      place_.push_back(longest < 0 ? 0 : place(longest) + 1);
    }
  }

  // Whether the other dependencies of node i imply dependency k; nullopt if this is not seen near them.
  std::optional<bool> IsImplied(size_t i, size_t k) const {
    const std::vector<int>& all = dependencies_[i];
    const int first = all[k];
    if (k + 1 == all.size()) return false;
    std::vector<int> after{first}, behind(all.end() - static_cast<std::ptrdiff_t>(std::min(all.size() - k - 1, kNear)), all.end());
    const bool all_after = Extend(after, [&](int node, const auto& visit) {
      const std::vector<int>& list = successors_[static_cast<size_t>(node)];
      return std::all_of(list.begin(), std::lower_bound(list.begin(), list.end(), static_cast<int>(i)), visit);
    });
    if (all_after)
      return std::any_of(after.begin() + 1, after.end(), [&](int node) { return std::binary_search(all.begin(), all.end(), node); });
    const bool all_behind = Extend(behind, [&](int node, const auto& visit) {
      return std::all_of(std::lower_bound(before(node).begin(), before(node).end(), first), before(node).end(), visit);
    });
    for (int early : after) {
      for (int late : behind) {
        if (chain(early) == chain(late) && place(early) <= place(late)) return true;
      }
    }
    return all_behind && all.size() - k - 1 <= kNear ? std::optional(false) : std::nullopt;
  }

  // Adds what next(node, visit) passes to visit(other) for each of the nodes, until there are kNear of them. Returns whether these are all.
  template <typename Next>
  static bool Extend(std::vector<int>& nodes, const Next& next) {
    const auto visit = [&](int other) {
      if (std::find(nodes.begin(), nodes.end(), other) != nodes.end()) return true;
      if (nodes.size() >= kNear) return false;
      nodes.push_back(other);
      return true;
    };
    for (size_t at = 0; at < nodes.size(); ++at) {
      if (!next(nodes[at], visit)) return false;
    }
    return true;
  }

  // Decides about dependencies on the nodes of one block after another. A table of all ancestors of 100,000 nodes would have more than a
  // gigabyte.
  void DecideByAncestors() {
    std::stable_sort(open_.begin(), open_.end(), [](const Dependency& a, const Dependency& b) { return a.block() < b.block(); });
    std::vector<BlockSet> ancestors(open_.empty() ? 0 : dependencies_.size());
    for (auto begin = open_.begin(); begin != open_.end();) {
      const auto end = std::find_if(begin, open_.end(), [&](const Dependency& other) { return other.block() != begin->block(); });
      auto next = begin;  // by node, ascending
      const size_t first = begin->block() * kBlockNodes;
      for (size_t i = first; next != end; ++i) {
        BlockSet& mine = ancestors[i] = {};
        std::vector<int>& all = reduced_[i];
        const auto within = std::lower_bound(all.begin(), all.end(), static_cast<int>(first));
        for (auto before = within; before != all.end(); ++before) {
          const BlockSet& its = ancestors[static_cast<size_t>(*before)];
          for (size_t w = 0; w < kBlockWords; ++w) mine[w] |= its[w];
        }
        const auto bit_of = [&](int before) { return std::pair((static_cast<size_t>(before) - first) / 64, uint64_t{1} << (before % 64)); };
        for (; next != end && next->node == static_cast<int>(i); ++next) {
          const auto [word, bit] = bit_of(next->before);
          if ((mine[word] & bit) != 0) std::erase(all, next->before);
        }
        for (auto before = std::lower_bound(all.begin(), all.end(), static_cast<int>(first)); before != all.end(); ++before) {
          if (static_cast<size_t>(*before) >= first + kBlockNodes) break;
          const auto [word, bit] = bit_of(*before);
          mine[word] |= bit;
        }
      }
      begin = end;
    }
  }

  const std::vector<std::vector<int>>& dependencies_;
  std::vector<std::vector<int>> reduced_, successors_;  // ascending
  std::vector<int> chain_, place_;                      // by node: its chain, and its place there
  std::vector<Dependency> open_;                        // not decided yet
};

}  // namespace

std::vector<std::vector<int>> TransitiveReduction(const std::vector<std::vector<int>>& dependencies) {
  return Reduction(dependencies).Take();
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
