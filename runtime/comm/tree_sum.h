// Sums operands of several ranks in a fixed order.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/dtype.h"

namespace gradloom {

// Bytes of scratch memory that SumTree needs for this number of addends.
int64_t SumTreeScratchBytes(size_t addends);

// Sums elements over the leaves of a binary tree, ((0 + 1) + (2 + 3)) + .... addends[i] is leaf i, or the sum of leaf i and the following
// ones up to the next that is not null, if these are a part of the tree (TreePart). addends[0] is not null. `to` may be one of the addends.
// `scratch` is aligned like a double.
void SumTree(DType dtype, std::span<const void* const> addends, int64_t elements, void* scratch, void* to);

// Leaves [first, last) that form a subtree: the tree sums them before it adds anything else.
struct TreePart {
  int first = 0, last = 0;
};

// The fewest parts that make up leaves [begin, end) of `leaves`.
std::vector<TreePart> TreePartsOf(int begin, int end, int leaves);

}  // namespace gradloom
