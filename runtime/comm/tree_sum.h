// The one order in which operands of several ranks are summed.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/dtype.h"

namespace gradloom {

// Bytes of scratch that SumTree needs for so many addends.
int64_t SumTreeScratchBytes(size_t addends);

// Sums elements of the leaves of a binary tree, ((0 + 1) + (2 + 3)) + ...: addends[i] is what leaf i has, or the sum of leaf i and
// those after it up to the next one that is not null, where those are a part of the tree (TreePart). addends[0] is not null. `to` may
// be one of the addends. `scratch` is aligned as a double.
void SumTree(DType dtype, std::span<const void* const> addends, int64_t elements, void* scratch, void* to);

// Leaves [first, last) that the tree sums before anything is added to them.
struct TreePart {
  int first = 0, last = 0;
};

// The fewest parts that leaves [begin, end) of `leaves` come to.
std::vector<TreePart> TreePartsOf(int begin, int end, int leaves);

}  // namespace gradloom
