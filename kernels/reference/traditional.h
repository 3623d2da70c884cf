// The tables that operators of ai.onnx.ml and of text bring with them, checked.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "kernels/catalog/kernel.h"

namespace gradloom {

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
};

// The n-grams that TfIdfVectorizer counts: where each is counted. Throws Error(kAttr).
std::map<std::vector<int64_t>, int64_t> NGramPlaces(const KernelCall& call);

}  // namespace gradloom
