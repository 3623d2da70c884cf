// Sums are computed in blocks, so that the rounding error grows with the square root of the length instead of the length.
#include "kernels/cpu/isa/tables.h"
#include "kernels/cpu/isa/vector.h"

namespace gradloom::GRADLOOM_ISA {
namespace {

constexpr Index kRowBlock = 4096;
constexpr Index kColumnBlock = 128;

// kStart: the value of an empty reduction; take: adds an element; join: combines two reductions.
struct SumOf {
  static constexpr float kStart = 0.0f;
  GRADLOOM_INLINE float take(float acc, float x) { return acc + x; }
  GRADLOOM_INLINE float join(float a, float b) { return a + b; }
};
struct SumSquareOf {
  static constexpr float kStart = 0.0f;
  GRADLOOM_INLINE float take(float acc, float x) { return scalar::Fma(x, x, acc); }
  GRADLOOM_INLINE float join(float a, float b) { return a + b; }
};
struct SumAbsOf {
  static constexpr float kStart = 0.0f;
  GRADLOOM_INLINE float take(float acc, float x) { return acc + scalar::Abs(x); }
  GRADLOOM_INLINE float join(float a, float b) { return a + b; }
};
struct MaxOf {
  static constexpr float kStart = -__builtin_inff();
  GRADLOOM_INLINE float take(float acc, float x) { return scalar::Larger(acc, x); }
  GRADLOOM_INLINE float join(float a, float b) { return scalar::Larger(a, b); }
};
struct MinOf {
  static constexpr float kStart = __builtin_inff();
  GRADLOOM_INLINE float take(float acc, float x) { return scalar::Smaller(acc, x); }
  GRADLOOM_INLINE float join(float a, float b) { return scalar::Smaller(a, b); }
};
struct ProdOf {
  static constexpr float kStart = 1.0f;
  GRADLOOM_INLINE float take(float acc, float x) { return acc * x; }
  GRADLOOM_INLINE float join(float a, float b) { return a * b; }
};

// Four accumulators of the native width, as one array that the compiler keeps in registers.
constexpr Index kWide = 4 * kLanes;
constexpr Index kFew = 4;  // fewest columns that are worth a vector of their own

// Adds halves pairwise, of lengths known at compile time.
template <typename R, Index kLength>
GRADLOOM_INLINE float JoinHalves(float* acc) {
  if constexpr (kLength == 1) {
    return acc[0];
  } else {
    constexpr Index kHalf = kLength / 2;
#pragma omp simd
    for (Index j = 0; j < kHalf; ++j) acc[j] = R::join(acc[j], acc[j + kHalf]);
    return JoinHalves<R, kHalf>(acc);
  }
}

template <typename R>
float ReduceBlock(const float* x, Index n) {
  Index i = 0;
  float total = R::kStart;
  if (n >= kWide) {
    alignas(64) float acc[kWide];
    for (Index j = 0; j < kWide; ++j) acc[j] = R::kStart;
    for (; i + kWide <= n; i += kWide) {
#pragma omp simd
      for (Index j = 0; j < kWide; ++j) acc[j] = R::take(acc[j], x[i + j]);
    }
    total = JoinHalves<R, kWide>(acc);
  }
  for (; i < n; ++i) total = R::take(total, x[i]);
  return total;
}

template <typename R>
float ReduceRow(const float* x, Index n) {
  if (n <= kRowBlock) return ReduceBlock<R>(x, n);
  double total = 0;
  float exact = R::kStart;
  constexpr bool adds = R::kStart == 0.0f;
  for (Index i = 0; i < n; i += kRowBlock) {
    const float block = ReduceBlock<R>(x + i, n - i < kRowBlock ? n - i : kRowBlock);
    if constexpr (adds) {
      total += static_cast<double>(block);
    } else {
      exact = R::join(exact, block);
    }
  }
  return adds ? static_cast<float>(total) : exact;
}

// kColumns columns at once, up to kColumnBlock rows at a time.
template <typename R, Index kColumns>
GRADLOOM_INLINE void ReduceColumnGroup(const float* x, Index rows, Index stride, float* into) {
  for (Index r = 0; r < rows; r += kColumnBlock) {
    const Index end = rows - r < kColumnBlock ? rows : r + kColumnBlock;
    float acc[kColumns];
    for (Index j = 0; j < kColumns; ++j) acc[j] = R::kStart;
    for (Index i = r; i < end; ++i) {
#pragma omp simd
      for (Index j = 0; j < kColumns; ++j) acc[j] = R::take(acc[j], x[i * stride + j]);
    }
    for (Index j = 0; j < kColumns; ++j) into[j] = R::join(into[j], acc[j]);
  }
}

// Contiguous rows with fewer columns than a vector has lanes: kLanes rows make whole vectors.
template <typename R>
void ReduceNarrow(const float* x, Index rows, Index columns, float* into) {
  const Index wide = columns * kLanes;
  alignas(64) float acc[kLanes * kLanes];
  for (Index r = 0; r < rows;) {
    for (Index j = 0; j < wide; ++j) acc[j] = R::kStart;
    for (Index i = 0; i < kColumnBlock && r + kLanes <= rows; ++i, r += kLanes) {
      const float* from = x + r * columns;
      for (Index v = 0; v < wide; v += kLanes) {
#pragma omp simd
        for (Index j = 0; j < kLanes; ++j) acc[v + j] = R::take(acc[v + j], from[v + j]);
      }
    }
    const Index left = rows - r < kLanes ? rows - r : 0;
    for (Index i = 0; i < left * columns; ++i) acc[i] = R::take(acc[i], x[r * columns + i]);
    r += left;
    for (Index i = 0; i < wide; i += columns) {
      for (Index j = 0; j < columns; ++j) into[j] = R::join(into[j], acc[i + j]);
    }
  }
}

template <typename R>
void ReduceColumns(const float* x, Index rows, Index stride, Index columns, float* into) {
  if (columns == stride && columns < kLanes && rows >= kLanes) return ReduceNarrow<R>(x, rows, columns, into);
  Index j = 0;
  for (; j + kWide <= columns; j += kWide) ReduceColumnGroup<R, kWide>(x + j, rows, stride, into + j);
  for (; j + kLanes <= columns; j += kLanes) ReduceColumnGroup<R, kLanes>(x + j, rows, stride, into + j);
  for (; j + kFew <= columns; j += kFew) ReduceColumnGroup<R, kFew>(x + j, rows, stride, into + j);
  for (; j < columns; ++j) ReduceColumnGroup<R, 1>(x + j, rows, stride, into + j);
}

// A maximum that is infinite or NaN is the result itself: differences from it are meaningless.
GRADLOOM_INLINE bool IsShift(float max) { return scalar::Abs(max) < __builtin_inff(); }

float LogSumExpRow(const float* x, Index n) {
  constexpr Index kBlock = 1024;
  alignas(64) float exps[kBlock];
  const float max = ReduceRow<MaxOf>(x, n);
  if (!IsShift(max)) return max;
  double sum = 0;
  for (Index begin = 0; begin < n; begin += kBlock) {
    const Index count = n - begin < kBlock ? n - begin : kBlock;
#pragma omp simd
    for (Index i = 0; i < count; ++i) exps[i] = scalar::ExpTerm(x[begin + i] - max);
    sum += static_cast<double>(ReduceBlock<SumOf>(exps, count));
  }
  return max + scalar::Log(static_cast<float>(sum));
}

// The previous value of `into` counts as one more element.
void LogSumExpColumns(const float* x, Index rows, Index stride, Index columns, float* into) {
  for (Index begin = 0; begin < columns; begin += kWide) {
    const Index count = columns - begin < kWide ? columns - begin : kWide;
    float max[kWide], total[kWide];
    for (Index j = 0; j < count; ++j) max[j] = into[begin + j];
    ReduceColumns<MaxOf>(x + begin, rows, stride, count, max);
    for (Index j = 0; j < count; ++j) total[j] = scalar::ExpTerm(into[begin + j] - max[j]);
    for (Index r = 0; r < rows; r += kColumnBlock) {
      const Index end = rows - r < kColumnBlock ? rows : r + kColumnBlock;
      float sums[kWide] = {};
      for (Index i = r; i < end; ++i) {
        const float* from = x + i * stride + begin;
#pragma omp simd
        for (Index j = 0; j < count; ++j) sums[j] += scalar::ExpTerm(from[j] - max[j]);
      }
      for (Index j = 0; j < count; ++j) total[j] += sums[j];
    }
    for (Index j = 0; j < count; ++j) into[begin + j] = IsShift(max[j]) ? max[j] + scalar::Log(total[j]) : max[j];
  }
}

}  // namespace

// In the order of enum Reduction.
const RowReduction kRowReductions[] = {ReduceRow<SumOf>, ReduceRow<SumSquareOf>, ReduceRow<SumAbsOf>, ReduceRow<MaxOf>,
                                       ReduceRow<MinOf>, ReduceRow<ProdOf>,      LogSumExpRow};
const ColumnReduction kColumnReductions[] = {ReduceColumns<SumOf>, ReduceColumns<SumSquareOf>, ReduceColumns<SumAbsOf>,
                                             ReduceColumns<MaxOf>, ReduceColumns<MinOf>,       ReduceColumns<ProdOf>,
                                             LogSumExpColumns};

}  // namespace gradloom::GRADLOOM_ISA
