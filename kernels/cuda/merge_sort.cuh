// Stable sorts that merge sorted lists.
#pragma once

#include <type_traits>
#include <utility>

#include "kernels/cuda/offset_calculator.cuh"
#include "kernels/cuda/words.cuh"

namespace gradloom::cuda {

// Merges each kWays neighboring sorted lists of `width` items, a power of two, within segments of `segment` items. Lists do not cross
// segments; the last one of each may be shorter. A List has Get(position), an item, and Set(position, item); `less` is a strict weak
// ordering of items.
//
// An item follows the lower ones of the other lists, and of the previous lists also those that are equal to it.
template <int kWays, typename List, typename Less>
void MergeLists(int64_t count, int64_t segment, int64_t width, const List& from, const List& to, cudaStream_t stream, const Less& less) {
  ForEachElement(
      count, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        const auto item = from.Get(i);
        const int64_t begin = Divide(i, segment).quotient * segment, end = begin + segment < count ? begin + segment : count;
        const int64_t own = Divide(i - begin, width).quotient, first = own / kWays * kWays;
        // Steps of a binary search in all lists, so that their loads are in flight together. Its own list is not searched.
        int64_t before[kWays] = {};
        for (int64_t step = width; step > 0; step /= 2) {
          std::remove_const_t<decltype(item)> seen[kWays];
          bool inside[kWays];
          GRADLOOM_UNROLL
          for (int k = 0; k < kWays; ++k) {
            const int64_t next = before[k] + step, last = begin + (first + k) * width + next - 1;
            inside[k] = first + k != own && next <= width && last < end;
            seen[k] = inside[k] ? from.Get(last) : item;
          }
          GRADLOOM_UNROLL
          for (int k = 0; k < kWays; ++k) {
            if (inside[k] && (first + k < own ? !less(item, seen[k]) : less(seen[k], item))) before[k] += step;
          }
        }
        int64_t at = begin + first * width + (i - begin) - own * width;
        GRADLOOM_UNROLL
        for (int k = 0; k < kWays; ++k) at += before[k];
        to.Set(at, item);
      });
}

// Merges sorted lists of `width` items until each segment is one list, back and forth between `from` and `to`. Returns the one that holds
// the result.
template <int kWays, typename List, typename Less>
List MergeSortedLists(int64_t count, int64_t segment, int64_t width, List from, List to, cudaStream_t stream, const Less& less) {
  for (; width < segment; width *= kWays) {
    MergeLists<kWays>(count, segment, width, from, to, stream, less);
    std::swap(from, to);
  }
  return from;
}

// The numbers of elements.
struct NumberList {
  int64_t* numbers;

  GRADLOOM_DEVICE int64_t Get(int64_t position) const { return numbers[position]; }
  GRADLOOM_DEVICE void Set(int64_t position, int64_t number) const { numbers[position] = number; }
};

// Sorts the numbers in [0, n) within segments of `length`, in ascending order by `less`, a strict weak ordering of them. `from` and `to`
// have n elements each. Returns the one that holds the result. Two lists at a time, because `less` may be expensive.
template <typename Less>
int64_t* MergeSort(int64_t n, int64_t length, int64_t* from, int64_t* to, cudaStream_t stream, const Less& less) {
  ForEachElement(
      n, stream, GRADLOOM_ON_DEVICE(int64_t i) { from[i] = i; });
  return MergeSortedLists<2>(n, length, 1, NumberList{from}, NumberList{to}, stream, less).numbers;
}

}  // namespace gradloom::cuda
