#include <cmath>

#include "kernels/cuda/gelu_passes.h"
#include "kernels/cuda/lines.cuh"
#include "kernels/cuda/words.cuh"
#include "kernels/reference/operands.h"

namespace gradloom::cuda {
namespace {

// GELU's operand is multiplied by (1 + tanh(y)) / 2 = 1 / (1 + 2^w), which has no cancellation where it is small. This is w; the constants
// are 2 sqrt(2 / pi) log2(e), and this times 0.044715.
template <typename R>
GRADLOOM_DEVICE R ExponentOfGelu(R x) {
  return -x * (R(2.302208198144325) + R(0.1029432395800235) * x * x);
}

template <typename R>
struct PowerAndShare {
  R power, share;  // 2^w and 1 / (1 + 2^w)
};

// For |w| <= 126, where no number is subnormal. For 16-bit T, with an error of a few of 24 bits.
template <typename T>
GRADLOOM_DEVICE PowerAndShare<Arithmetic<T>> PowerAndShareOf(Arithmetic<T> w) {
#ifdef __CUDA_ARCH__
  if constexpr (kIsHalf<T>) {
    float power, share;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(w));
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(share) : "f"(1.0F + power));
    return {power, share};
  }
#endif
  using R = Arithmetic<T>;
  const R power = ::exp2(w);
  return {power, R(1) / (R(1) + power)};
}

template <typename T>
GRADLOOM_DEVICE Arithmetic<T> GeluSlope(Arithmetic<T> x) {
  using R = Arithmetic<T>;
  // Beyond, the slope is 0 or 1 up to 1e-35, and w exceeds 126.
  x = R(10) < x ? R(10) : x;
  x = R(-10) > x ? R(-10) : x;
  const auto [power, share] = PowerAndShareOf<T>(ExponentOfGelu(x));
  // share * power is 1 - share, without cancellation.
  return share + share * (share * power) * x * (R(1.5957691216057308) + R(0.21406444881780073) * x * x);
}

template <typename T>
void Relu(int64_t n, T* y, cudaStream_t stream) {
  using R = Arithmetic<T>;
  ForEachElement(
      n, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        if (static_cast<R>(y[i]) < R(0)) y[i] = static_cast<T>(R(0));
      });
}

template <typename T>
void Gelu(int64_t n, const T* x, T* y, cudaStream_t stream) {
  using R = Arithmetic<T>;
  ForEachElement(
      n, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        const R value = static_cast<R>(x[i]);
        y[i] = static_cast<T>(value / (R(1) + ::exp2(ExponentOfGelu(value))));
      });
}

// A warp takes 32 times `kSize` neighboring columns of every kWarps-th row of a run. Two rows of both operands are loaded at a time.
template <typename T, int kSize>
void GeluGrad(const ColumnRuns& shape, const T* x, T* gradient, Arithmetic<T>* partials, cudaStream_t stream) {
  using R = Arithmetic<T>;
  using Vector = AlignedVector<T, kSize>;
  constexpr int64_t kColumns = 32 * kSize;
  constexpr int kAhead = 2;
  const int64_t tiles = CeilDiv(shape.columns, kColumns), runs = shape.runs();
  ForEachRow(
      tiles * runs, stream, GRADLOOM_ON_DEVICE(const Block& block, int64_t i) {
        const Quotient at = Divide(i, tiles);
        const int lane = block.thread() % 32, warp = block.thread() / 32;
        const int64_t first = at.rest * kColumns, column = first + lane * kSize;
        const int64_t end = column < shape.columns ? Divide(shape.rows * (at.quotient + 1), runs).quotient : 0;
        R sums[kSize] = {};
        for (int64_t row = Divide(shape.rows * at.quotient, runs).quotient + warp; row < end; row += kAhead * kWarps) {
          Vector gradients[kAhead], values[kAhead];
          for (int k = 0; k < kAhead; ++k) {
            const int64_t offset = (row + k * kWarps) * shape.columns + column;
            if (row + k * kWarps >= end) break;
            gradients[k] = *reinterpret_cast<const Vector*>(gradient + offset);
            values[k] = *reinterpret_cast<const Vector*>(x + offset);
          }
          for (int k = 0; k < kAhead; ++k) {
            if (row + k * kWarps >= end) break;
            for (int j = 0; j < kSize; ++j) {
              const R product = static_cast<R>(gradients[k].at[j]) * GeluSlope<T>(static_cast<R>(values[k].at[j]));
              gradients[k].at[j] = static_cast<T>(product);
              sums[j] += product;
            }
            *reinterpret_cast<Vector*>(gradient + (row + k * kWarps) * shape.columns + column) = gradients[k];
          }
        }
        if (partials == nullptr) return;
        GRADLOOM_SHARED(memory, kWarps * kColumns * sizeof(R));
        R* const of_warps = reinterpret_cast<R*>(memory);
        block.Sync();
        for (int j = 0; j < kSize; ++j) of_warps[(warp * kSize + j) * 32 + lane] = sums[j];
        block.Sync();
        for (int k = block.thread(); k < kColumns && first + k < shape.columns; k += kThreads) {
          R sum{};
          for (int other = 0; other < kWarps; ++other) sum += of_warps[(other * kSize + k % kSize) * 32 + k / kSize];
          partials[at.quotient * shape.columns + first + k] = sum;
        }
      });
}

// A lane takes a column, and a warp every kWarps-th run.
template <typename T>
void SumRuns(const ColumnRuns& shape, const Arithmetic<T>* partials, T* sums, cudaStream_t stream) {
  const int64_t runs = shape.runs();
  ForEachRow(
      CeilDiv(shape.columns, 32), stream, GRADLOOM_ON_DEVICE(const Block& block, int64_t i) {
        const int lane = block.thread() % 32, warp = block.thread() / 32;
        const int64_t column = i * 32 + lane;
        double sum = 0;
        for (int64_t run = warp; run < runs && column < shape.columns; run += kWarps)
          sum += static_cast<double>(partials[run * shape.columns + column]);
        GRADLOOM_SHARED(memory, kThreads * sizeof(double));
        double* const of_warps = reinterpret_cast<double*>(memory);
        block.Sync();
        of_warps[block.thread()] = sum;
        block.Sync();
        if (warp != 0 || column >= shape.columns) return;
        for (int other = 1; other < kWarps; ++other) sum += of_warps[other * 32 + lane];
        sums[column] = static_cast<T>(static_cast<Arithmetic<T>>(sum));
      });
}

}  // namespace

void ReluInPlace(DType dtype, int64_t n, void* y, cudaStream_t stream) {
  WithFloating(dtype, [&]<typename T>(std::type_identity<T>) { Relu(n, static_cast<T*>(y), stream); });
}

void GeluPass(DType dtype, int64_t n, const void* x, void* y, cudaStream_t stream) {
  WithFloating(dtype, [&]<typename T>(std::type_identity<T>) { Gelu(n, static_cast<const T*>(x), static_cast<T*>(y), stream); });
}

void GeluGradInPlace(DType dtype, const ColumnRuns& shape, const void* x, void* gradient, void* partials, void* sums, cudaStream_t stream) {
  WithFloating(dtype, [&]<typename T>(std::type_identity<T>) {
    constexpr int kSize = kMaxWordBytes / sizeof(T);
    auto* const kept = sums == nullptr ? nullptr : static_cast<Arithmetic<T>*>(partials);
    if (shape.columns % kSize == 0) {
      GeluGrad<T, kSize>(shape, static_cast<const T*>(x), static_cast<T*>(gradient), kept, stream);
    } else {
      GeluGrad<T, 1>(shape, static_cast<const T*>(x), static_cast<T*>(gradient), kept, stream);
    }
    if (sums != nullptr) SumRuns(shape, kept, static_cast<T*>(sums), stream);
  });
}

}  // namespace gradloom::cuda
