#include "runtime/comm/tree_sum.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/error.h"
#include "runtime/comm/rank_group.h"

namespace gradloom {
namespace {

constexpr int64_t kBlock = 512;  // elements that are summed at a time

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

int64_t SumTreeScratchBytes(size_t addends) { return static_cast<int64_t>(addends) * kBlock * static_cast<int64_t>(sizeof(double)); }

void SumTree(DType dtype, std::span<const void* const> addends, int64_t elements, void* scratch, void* to) {
  DispatchSumType(dtype, [&]<typename T>(T) {
    T* const block = static_cast<T*>(scratch);
    const size_t count = addends.size();
    for (int64_t at = 0; at < elements; at += kBlock) {
      const auto n = static_cast<size_t>(std::min(kBlock, elements - at));
      for (size_t m = 0; m < count; ++m) {
        if (addends[m] != nullptr) std::memcpy(block + m * kBlock, static_cast<const T*>(addends[m]) + at, n * sizeof(T));
      }
      for (size_t stride = 1; stride < count; stride *= 2) {
        for (size_t m = 0; m + stride < count; m += 2 * stride) {
          if (addends[m + stride] == nullptr) continue;
          T* const sum = block + m * kBlock;
          const T* const addend = block + (m + stride) * kBlock;
          for (size_t i = 0; i < n; ++i) sum[i] += addend[i];
        }
      }
      std::memcpy(static_cast<T*>(to) + at, block, n * sizeof(T));
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
