// Numbers the elements that satisfy a predicate, in order and for any number of elements: blocks count the elements of each part, one block
// sums the counts, and blocks go through each part again.
#pragma once

#include "kernels/cuda/block_scan.cuh"
#include "kernels/cuda/rows/extents.h"

namespace gradloom::cuda {

// Calls visit(i, before, kept) for all i in [0, n), in any order: `kept` is keep(i), `before` the number of j < i with keep(j).
// totals[parts] gets the total count, for later kernels.
template <typename Keep, typename Visit>
void ForEachCounted(const cuda_rows::CountedParts& counted, int64_t* totals, cudaStream_t stream, const Keep& keep, const Visit& visit) {
  constexpr int64_t kPart = cuda_rows::CountedParts::kPart;
  const int64_t n = counted.n, parts = counted.parts();
  ForEachRow(
      parts, stream, GRADLOOM_ON_DEVICE(const Block& block, int64_t part) {
        const int64_t end = n < (part + 1) * kPart ? n : (part + 1) * kPart;
        int64_t count = 0;
        for (int64_t i = part * kPart + block.thread(); i < end; i += block.threads()) count += keep(i) ? 1 : 0;
        count = block.Reduce(count, Sum());
        if (block.thread() == 0) totals[part] = count;
      });
  ForEachRow(
      1, stream, GRADLOOM_ON_DEVICE(const Block& block, int64_t) {
        const int64_t all = ExclusiveScanInPlace(block, parts, totals);
        if (block.thread() == 0) totals[parts] = all;
      });
  ForEachRow(
      parts, stream, GRADLOOM_ON_DEVICE(const Block& block, int64_t part) {
        const int64_t end = n < (part + 1) * kPart ? n : (part + 1) * kPart;
        int64_t found = totals[part];
        for (int64_t begin = part * kPart; begin < end; begin += block.threads()) {
          const int64_t i = begin + block.thread();
          const bool kept = i < end && keep(i);
          int64_t total;
          const int64_t before = found + ExclusiveScan(block, kept ? 1 : 0, &total);
          if (i < end) visit(i, before, kept);
          found += total;
        }
      });
}

}  // namespace gradloom::cuda
