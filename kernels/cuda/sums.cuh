// Sums over the elements of a row by a group of threads.
#pragma once

#include "kernels/cuda/lines.cuh"
#include "kernels/reference/operands.h"

namespace gradloom::cuda {

// Two sums computed together.
template <typename R>
struct Pair {
  R first, second;
  GRADLOOM_DEVICE Pair operator+(const Pair& other) const { return {first + other.first, second + other.second}; }
};

template <typename R>
GRADLOOM_DEVICE Pair<double> InDouble(const Pair<R>& pair) {
  return {static_cast<double>(pair.first), static_cast<double>(pair.second)};
}

// The sum of term(k) over k < n; every thread of `block` (a Block, a Warp or a SingleThread) gets it.
template <typename Value, typename Threads, typename Term>
GRADLOOM_DEVICE Value SumOf(const Threads& block, int64_t n, Term term) {
  Value sum{};
  for (int64_t k = block.thread(); k < n; k += block.threads()) sum = sum + term(k);
  return block.Reduce(sum, Sum{});
}

// The elements of an array in the arithmetic type.
template <typename T>
struct Elements {
  const T* data;
  GRADLOOM_DEVICE Arithmetic<T> operator()(int64_t k) const { return static_cast<Arithmetic<T>>(data[k]); }
};

}  // namespace gradloom::cuda
