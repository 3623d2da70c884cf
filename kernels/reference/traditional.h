// The tables in the attributes of operators of ai.onnx.ml and of text operators, validated.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "kernels/catalog/kernel.h"

namespace gradloom {

struct TreeView;

// Trees over the features of a sample, as in TreeEnsemble's attributes. The weights of leaves are aggregated by target.
struct TreeTables {
  enum Mode : int64_t { kLessOrEqual, kLess, kGreaterOrEqual, kGreater, kEqual, kUnequal, kMember, kModes };
  enum Aggregate : int64_t { kAverage, kSum, kMin, kMax };

  // Per node. A child is a leaf if `leaf` is set, else a node. children[0] is for a false condition, children[1] for a true one.
  std::vector<int64_t> modes, features, children[2], leaf[2];
  std::vector<int64_t> missing;  // whether the condition is true for NaN; empty: for no node
  std::vector<double> splits;
  // The sets of the nodes with membership tests: elements [member_begin[i], member_begin[i + 1]) of `members`.
  std::vector<int64_t> member_begin;
  std::vector<double> members;
  // Per leaf.
  std::vector<int64_t> targets;
  std::vector<double> weights;

  std::vector<int64_t> roots;
  int64_t aggregate = kSum;

  // Throws Error(kAttr) if a list has the wrong length or an index is out of range.
  explicit TreeTables(const KernelCall& call);

  // The aggregate of no values.
  double none() const;
  // A view of these lists.
  TreeView view() const;
};

// Trees whose lists may be in any memory. The constexpr functions are also used in device code.
struct TreeView {
  const int64_t *modes, *features, *children[2], *leaf[2];
  const int64_t* missing;  // null: the condition is false for NaN
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

  // The leaf that a sample reaches in the tree with this root, where x(feature) is a double. Returns -1 if the nodes form a cycle, which is
  // detected by a path longer than the number of nodes.
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
      case TreeTables::kMin: total = weight < total ? weight : total; break;
      case TreeTables::kMax: total = total < weight ? weight : total; break;
      case TreeTables::kAverage: total += weight / static_cast<double>(trees); break;
      default: total += weight; break;
    }
  }
};

// The n-grams that TfIdfVectorizer counts, each with its output index. Throws Error(kAttr).
std::map<std::vector<int64_t>, int64_t> NGramOutputIndices(const KernelCall& call);

}  // namespace gradloom
