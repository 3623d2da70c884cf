// Rows of float32 that are in the registers of a warp or a block while they are processed, so that memory is read once however often their
// elements are used. All loads of a row are in flight together, which a loop over elements does not achieve.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/lines.cuh"
#include "kernels/cuda/rows/slices.h"
#include "kernels/cuda/words.cuh"
#include "kernels/reference/operands.h"

namespace gradloom::cuda {

inline constexpr int kHeldVector = HeldRows::kVector;

// Calls f(j, k) for each vector j of this thread in a row of n elements; k is its first element. Neighboring threads have neighboring
// vectors.
template <int kVectors, typename Threads, typename F>
GRADLOOM_DEVICE void ForEachHeldVector(const Threads& threads, int64_t n, const F& f) {
  GRADLOOM_UNROLL
  for (int j = 0; j < kVectors; ++j) {
    const int k = (j * threads.threads() + threads.thread()) * kHeldVector;
    if (k < static_cast<int>(n)) f(j, k);
  }
}

// This thread's elements of a row, in the type that they have in memory.
template <int kVectors, typename T>
struct HeldRow {
  using Stored = std::conditional_t<kIsHalf<T>, Bits16, T>;
  using Vector = AlignedVector<Stored, kHeldVector>;
  Vector vectors[kVectors];

  template <typename Threads>
  GRADLOOM_DEVICE HeldRow(const Threads& threads, int64_t n, const T* row) {
    // If 16-bit elements past the end of a row are undefined, nvcc makes code that needs more registers.
    if constexpr (kIsHalf<T>) {
      GRADLOOM_UNROLL
      for (int j = 0; j < kVectors; ++j) vectors[j] = {};
    }
    ForEachHeldVector<kVectors>(threads, n, [&](int j, int k) { vectors[j] = *reinterpret_cast<const Vector*>(row + k); });
  }
  // Element e of vector j.
  GRADLOOM_DEVICE float operator()(int j, int e) const { return static_cast<float>(std::bit_cast<T>(vectors[j].at[e])); }
};

// Rows of float32 or of a 16-bit type.
struct FloatRows {
  using Vector = AlignedVector<float, kHeldVector>;
  const void* data = nullptr;
  DType dtype = DType::kFloat32;

  // The elements from `at` on.
  GRADLOOM_DEVICE Vector operator()(int64_t at) const {
    if (dtype == DType::kFloat32) return *reinterpret_cast<const Vector*>(static_cast<const float*>(data) + at);
    return dtype == DType::kBfloat16 ? Widened<Bfloat16>(at) : Widened<Half>(at);
  }

 private:
  template <typename T>
  GRADLOOM_DEVICE Vector Widened(int64_t at) const {
    const auto narrow = *reinterpret_cast<const AlignedVector<T, kHeldVector>*>(static_cast<const T*>(data) + at);
    Vector wide;
    GRADLOOM_UNROLL
    for (int e = 0; e < kHeldVector; ++e) wide.at[e] = static_cast<float>(narrow.at[e]);
    return wide;
  }
};

// Rows to be written in a 16-bit type; without data there are none.
struct RoundedRows {
  void* data = nullptr;
  DType dtype = DType::kUndefined;

  GRADLOOM_DEVICE void Store(int64_t at, const AlignedVector<float, kHeldVector>& values) const {
    if (data == nullptr) return;
    if (dtype == DType::kBfloat16)
      StoreAs<Bfloat16>(at, values);
    else
      StoreAs<Half>(at, values);
  }

 private:
  template <typename T>
  GRADLOOM_DEVICE void StoreAs(int64_t at, const AlignedVector<float, kHeldVector>& values) const {
    AlignedVector<T, kHeldVector> rounded;
    GRADLOOM_UNROLL
    for (int e = 0; e < kHeldVector; ++e) rounded.at[e] = static_cast<T>(values.at[e]);
    *reinterpret_cast<AlignedVector<T, kHeldVector>*>(static_cast<T*>(data) + at) = rounded;
  }
};

// This thread's elements of the sum of two rows that start at `start`; the second may be absent.
template <int kVectors>
struct HeldSum {
  using Vector = AlignedVector<float, kHeldVector>;
  Vector vectors[kVectors];

  template <typename Threads>
  GRADLOOM_DEVICE HeldSum(const Threads& threads, int64_t n, const FloatRows& a, const FloatRows& b, int64_t start) {
    Vector more[kVectors] = {};
    ForEachHeldVector<kVectors>(threads, n, [&](int j, int k) {
      vectors[j] = a(start + k);
      if (b.data != nullptr) more[j] = b(start + k);
    });
    GRADLOOM_UNROLL
    for (int j = 0; j < kVectors; ++j) {
      GRADLOOM_UNROLL
      for (int e = 0; e < kHeldVector; ++e) vectors[j].at[e] += more[j].at[e];
    }
  }
  // Element e of vector j.
  GRADLOOM_DEVICE float operator()(int j, int e) const { return vectors[j].at[e]; }
};

// The sum over a row of n elements of term(j, e), for element e of vector j; every thread gets it.
template <typename Value, int kVectors, typename Threads, typename Term>
GRADLOOM_DEVICE Value SumOfHeld(const Threads& threads, int64_t n, const Term& term) {
  Value sum{};
  ForEachHeldVector<kVectors>(threads, n, [&](int j, int) {
    GRADLOOM_UNROLL
    for (int e = 0; e < kHeldVector; ++e) sum = sum + term(j, e);
  });
  return threads.Reduce(sum, Sum{});
}

// The group of threads that holds a row, and the number of vectors of a thread.
template <typename ThreadGroup, int kNumVectors>
struct Holding {
  using Threads = ThreadGroup;
  static constexpr int kVectors = kNumVectors;
  static constexpr bool kByWarp = std::is_same_v<Threads, Warp>;
  // Groups per block.
  static constexpr int kGroups = kByWarp ? kWarps : 1;
};

// Calls f(Holding<...>{}) with the one for rows that HeldRows serves.
template <typename F>
void WithHolding(const HeldRows& rows, const F& f) {
  const int64_t each = rows.by_warp() ? 32 * kHeldVector : kThreads * kHeldVector;
  const int64_t vectors = (rows.columns + each - 1) / each;
  if (rows.by_warp()) {
    if (vectors <= 2) return f(Holding<Warp, 2>{});
    if (vectors <= 4) return f(Holding<Warp, 4>{});
    if (vectors <= 6) return f(Holding<Warp, 6>{});
    return f(Holding<Warp, 8>{});
  }
  if (vectors <= 2) return f(Holding<Block, 2>{});
  if (vectors <= 4) return f(Holding<Block, 4>{});
  f(Holding<Block, 8>{});
}

// Calls f(threads, row) for all rows, each once, in any order.
template <typename Held, typename F>
void ForEachHeldRow(int64_t rows, cudaStream_t stream, const F& f) {
  if constexpr (Held::kByWarp)
    ForEachRowByWarp(rows, stream, f);
  else
    ForEachRow(rows, stream, f);
}

#ifdef __CUDACC__

template <int kConcurrent, typename F>
__global__ void __launch_bounds__(kThreads, kConcurrent) RunsKernel(const F f) {
  f(Block{}, static_cast<int64_t>(blockIdx.x));
}

// Calls f(block, run) for all runs in [0, runs), of which a multiprocessor has registers for kConcurrent.
template <int kConcurrent, typename F>
void ForEachRun(int64_t runs, cudaStream_t stream, const F& f) {
  if (runs <= 0) return;
  RunsKernel<kConcurrent><<<static_cast<unsigned>(runs), kThreads, 0, stream>>>(f);
  GRADLOOM_CUDA(cudaGetLastError());
}

#else

template <int, typename F>
void ForEachRun(int64_t runs, cudaStream_t stream, const F& f) {
  ForEachRow(runs, stream, f);
}

#endif

}  // namespace gradloom::cuda
