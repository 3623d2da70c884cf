// The scratch memory of operators whose data says how many elements count.
#pragma once

#include <cstdint>

#include "kernels/catalog/kernel.h"

namespace gradloom::cuda_rows {

// Elements that are counted by blocks, each with a part of them: a total for each part, and that of all.
struct CountedParts {
  static constexpr int64_t kPart = 4096;
  int64_t n;
  constexpr int64_t parts() const { return (n + kPart - 1) / kPart; }
  constexpr int64_t totals() const { return parts() + 1; }
};

// The slices of x that gradloom.Unique compares.
struct SlicesAlong {
  int64_t outer, count, inner;

  explicit SlicesAlong(const KernelCall& call);
  // Two orders, a group for each slice; the first slice, the first place in the order, and the new number for each group.
  static constexpr int64_t kLists = 6;
};

// gradloom.NonMaxSuppression: for each row of scores two orders of the boxes and which of them are out of the question; how many are
// chosen; where they begin among those of all rows.
struct SuppressionSizes {
  int64_t batch, classes, boxes, bound;

  explicit SuppressionSizes(const KernelCall& call);
  constexpr int64_t rows() const { return batch * classes; }
  constexpr int64_t scores() const { return rows() * boxes; }
  constexpr int64_t bytes() const { return (2 * scores() + 2 * rows() + 1) * 8 + scores(); }
};

}  // namespace gradloom::cuda_rows
