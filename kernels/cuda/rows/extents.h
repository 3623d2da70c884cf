// The scratch memory of operators whose number of results depends on data.
#pragma once

#include <cstdint>

#include "kernels/catalog/kernel.h"

namespace gradloom::cuda_rows {

// Counting in parts: each block counts the elements of one part. There is a total per part, then one of all.
struct CountedParts {
  static constexpr int64_t kPart = 4096;
  int64_t n;
  constexpr int64_t parts() const { return (n + kPart - 1) / kPart; }
  constexpr int64_t totals() const { return parts() + 1; }
};

// The slices of x along the axis that gradloom.Unique compares.
struct SlicesAlong {
  int64_t outer, count, inner;

  explicit SlicesAlong(const KernelCall& call);
  // Two orders and the group of each slice; for each group its first slice, its first position in the order, and its new number.
  static constexpr int64_t kLists = 6;
};

// gradloom.NonMaxSuppression. For each row of scores: two orders of the boxes, which boxes are ruled out, how many are chosen, and the
// offset of the first chosen one among those of all rows.
struct SuppressionSizes {
  int64_t batch, classes, boxes, bound;

  explicit SuppressionSizes(const KernelCall& call);
  constexpr int64_t rows() const { return batch * classes; }
  constexpr int64_t scores() const { return rows() * boxes; }
  constexpr int64_t bytes() const { return (2 * scores() + 2 * rows() + 1) * 8 + scores(); }
};

}  // namespace gradloom::cuda_rows
