// The tables that operators of ai.onnx.ml and of text bring with them, checked.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "kernels/catalog/kernel.h"

namespace gradloom {

struct TreeView;

// Trees over the features of a sample, as TreeEnsemble's attributes write them; leaves add up by target.
struct TreeTables {
  enum Mode : int64_t { kLessOrEqual, kLess, kGreaterOrEqual, kGreater, kEqual, kUnequal, kMember, kModes };
  enum Aggregate : int64_t { kAverage, kSum, kLeast, kMost };

  // By node. A child is a leaf where `leaf` says so, else a node; children of what does not hold come first.
  std::vector<int64_t> modes, features, children[2], leaf[2];
  std::vector<int64_t> missing;  // whether a NaN goes where the condition holds; empty: nowhere
  std::vector<double> splits;
  // The sets that nodes ask for membership in: numbers [member_begin[i], member_begin[i + 1]) of `members`.
  std::vector<int64_t> member_begin;
  std::vector<double> members;
  // By leaf.
  std::vector<int64_t> targets;
  std::vector<double> weights;

  std::vector<int64_t> roots;
  int64_t aggregate = kSum;

  // Throws Error(kAttr) where a list has another length than it should, or an index is out of range.
  explicit TreeTables(const KernelCall& call);

  // Of what nothing was added to.
  double none() const;
  // Of these very lists.
  TreeView view() const;
};

// Trees, wherever their lists are: what is constexpr here is device code, too.
struct TreeView {
  const int64_t *modes, *features, *children[2], *leaf[2];
  const int64_t* missing;  // null: a NaN never goes where the condition holds
  const int64_t *member_begin, *targets, *roots;
  const double *splits, *members, *weights;
  int64_t nodes, trees, aggregate;
  double none;

  constexpr bool Holds(int64_t node, double x) const {
    if (x != x && missing != nullptr && missing[node] != 0) return true;
    const double split = splits[node];
    switch (modes[node]) {
      case TreeTables::kLessOrEqual: return x <= split;
      case TreeTables::kLess: return x < split;
      case TreeTables::kGreaterOrEqual: return x >= split;
      case TreeTables::kGreater: return x > split;
      case TreeTables::kEqual: return x == split;
      case TreeTables::kUnequal: return x != split;
      default: break;
    }
    bool found = false;
    for (int64_t i = member_begin[node]; i < member_begin[node + 1]; ++i) found = found || members[i] == x;
    return found;
  }

  // The leaf that the tree with this root leads a sample to, `x(feature)` of it a double; -1: its nodes go in a circle, as a path has at
  // most as many nodes as there are.
  template <typename Sample>
  constexpr int64_t LeafOf(int64_t root, const Sample& x) const {
    int64_t node = root;
    for (int64_t steps = 0; steps < nodes; ++steps) {
      const int taken = Holds(node, x(features[node])) ? 1 : 0;
      const bool ends = leaf[taken][node] != 0;
      node = children[taken][node];
      if (ends) return node;
    }
    return -1;
  }

  constexpr void Add(double& total, double weight) const {
    switch (aggregate) {
      case TreeTables::kLeast: total = weight < total ? weight : total; break;
      case TreeTables::kMost: total = total < weight ? weight : total; break;
      case TreeTables::kAverage: total += weight / static_cast<double>(trees); break;
      default: total += weight; break;
    }
  }
};

// The n-grams that TfIdfVectorizer counts: where each is counted. Throws Error(kAttr).
std::map<std::vector<int64_t>, int64_t> NGramPlaces(const KernelCall& call);

}  // namespace gradloom
