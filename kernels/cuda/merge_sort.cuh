// Stable merge sort of element numbers by a comparison of the elements.
#pragma once

#include <utility>

#include "kernels/cuda/offset_calculator.cuh"

namespace gradloom::cuda {

// The position at which a merge of the two neighboring sorted runs of `width` elements puts the element at `position`: it follows its
// predecessors in its own run and in the other one.
template <typename Less>
GRADLOOM_DEVICE int64_t MergedPosition(const int64_t* order, int64_t segment_begin, int64_t segment_end, int64_t position, int64_t width,
                                       const Less& less) {
  const int64_t pair = segment_begin + Divide(position - segment_begin, 2 * width).quotient * 2 * width;
  const int64_t middle = pair + width < segment_end ? pair + width : segment_end;
  const bool left = position < middle;
  const int64_t own = order[position];
  int64_t low = left ? middle : pair, high = left ? (pair + 2 * width < segment_end ? pair + 2 * width : segment_end) : middle;
  const int64_t other_begin = low;
  // Ties: elements of the left run come first.
  while (low < high) {
    const int64_t half = low + (high - low) / 2;
    const bool before = left ? less(order[half], own) : !less(own, order[half]);
    if (before)
      low = half + 1;
    else
      high = half;
  }
  return pair + (position - (left ? pair : middle)) + (low - other_begin);
}

// Sorts the numbers in [0, n) stably within segments of `length`, in ascending order by `less`, a strict weak ordering. `from` and `to`
// have n elements each. Returns the one that holds the result.
template <typename Less>
int64_t* MergeSort(int64_t n, int64_t length, int64_t* from, int64_t* to, cudaStream_t stream, const Less& less) {
  ForEachElement(
      n, stream, GRADLOOM_ON_DEVICE(int64_t i) { from[i] = i; });
  for (int64_t width = 1; width < length; width *= 2) {
    const int64_t* const order = from;
    int64_t* const merged = to;
    ForEachElement(
        n, stream, GRADLOOM_ON_DEVICE(int64_t i) {
          const int64_t begin = Divide(i, length).quotient * length;
          merged[MergedPosition(order, begin, begin + length, i, width, less)] = order[i];
        });
    std::swap(from, to);
  }
  return from;
}

}  // namespace gradloom::cuda
