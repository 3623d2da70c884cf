#include "runtime/comm/tree_sum.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>

#include "runtime/base/error.h"
#include "runtime/comm/rank_group.h"

namespace gradloom {
namespace {

constexpr int64_t kBlock = 512;  // elements that are summed at a time

// How many subtrees there may be at a time that wait for those after them, with the next leaf: one of each size.
constexpr size_t MostSubtrees(size_t leaves) { return static_cast<size_t>(std::bit_width(leaves)) + 1; }

// Calls f(T{}) for the element types that collectives sum.
template <typename F>
void DispatchSumType(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kFloat32: return f(float{});
    case DType::kFloat64: return f(double{});
    case DType::kInt32: return f(int32_t{});
    case DType::kInt64: return f(int64_t{});
    default: GRADLOOM_CHECK(false);
  }
}

}  // namespace

bool RankGroup::CanSum(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat64 || dtype == DType::kInt32 || dtype == DType::kInt64;
}

int64_t SumTreeScratchBytes(size_t addends) {
  return static_cast<int64_t>(MostSubtrees(addends)) * kBlock * static_cast<int64_t>(sizeof(double));
}

// The leaves are added from left to right, as a binary counter counts: a subtree is added to the one before it once both have the same
// size, and what is left after the last leaf is added from the right. So each of the many members needs memory for the height of the tree
// only.
void SumTree(DType dtype, std::span<const void* const> addends, int64_t elements, void* scratch, void* to) {
  struct Subtree {
    size_t leaves = 1;
    bool summed_before = false;  // the leaf is part of an addend before it
  };
  DispatchSumType(dtype, [&]<typename T>(T) {
    T* const blocks = static_cast<T*>(scratch);  // one for each subtree
    std::array<Subtree, MostSubtrees(std::numeric_limits<size_t>::max())> subtrees;
    for (int64_t at = 0; at < elements; at += kBlock) {
      const auto n = static_cast<size_t>(std::min(kBlock, elements - at));
      size_t count = 0;
      for (size_t m = 0; m < addends.size(); ++m) {
        if (addends[m] != nullptr) std::memcpy(blocks + count * kBlock, static_cast<const T*>(addends[m]) + at, n * sizeof(T));
        subtrees[count++] = {.summed_before = addends[m] == nullptr};
        const bool last = m + 1 == addends.size();
        for (; count > 1 && (last || subtrees[count - 2].leaves == subtrees[count - 1].leaves); --count) {
          subtrees[count - 2].leaves += subtrees[count - 1].leaves;
          if (subtrees[count - 1].summed_before) continue;
          T* const sum = blocks + (count - 2) * kBlock;
          const T* const addend = blocks + (count - 1) * kBlock;
          for (size_t i = 0; i < n; ++i) sum[i] += addend[i];
        }
      }
      std::memcpy(static_cast<T*>(to) + at, blocks, n * sizeof(T));
    }
  });
}

std::vector<TreePart> TreePartsOf(int begin, int end, int leaves) {
  std::vector<TreePart> parts;
  while (begin < end) {
    // The size is doubled as long as the range begins at a multiple of it and contains no leaf past the end: the last subtrees may be
    // short.
    int size = 1;
    while (begin % (2 * size) == 0 && begin + size < end && std::min(begin + 2 * size, leaves) <= end) size *= 2;
    parts.push_back({begin, std::min(begin + size, end)});
    begin = parts.back().last;
  }
  return parts;
}

}  // namespace gradloom
