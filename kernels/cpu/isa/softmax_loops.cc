#include "kernels/cpu/isa/tables.h"
#include "kernels/cpu/isa/vector.h"

namespace gradloom::GRADLOOM_ISA {
namespace {

constexpr Index kMax = static_cast<Index>(Reduction::kMax);
constexpr Index kSum = static_cast<Index>(Reduction::kSum);

// For a row of only -inf, x - shift is NaN, and so is the result, as by the formula.
GRADLOOM_INLINE float MaxRow(const float* x, Index n) { return kRowReductions[kMax](x, n); }

}  // namespace

namespace {

constexpr Index kVectorsPerSum = 32;  // summed one after the other, so that rounding errors stay small in long rows

// y = exp(x - shift) for a vector; y may be x.
GRADLOOM_INLINE Vector ExpVector(const float* x, float* y, float shift) {
#pragma omp simd
  for (Index i = 0; i < kLanes; ++i) y[i] = scalar::ExpTerm(x[i] - shift);
  return Load(y);
}

// The lanes `kStep` apart are exchanged.
template <Index kStep>
GRADLOOM_INLINE Vector Swapped(Vector v) {
  IntVector from;
  for (Index i = 0; i < kLanes; ++i) from[i] = static_cast<int>(i ^ kStep);
  return __builtin_shuffle(v, from);
}

// Combines all lanes in log2(kLanes) steps.
template <Index kStep = kLanes / 2, typename F>
GRADLOOM_INLINE float Across(Vector v, F&& combine) {
  const Vector combined = combine(v, Swapped<kStep>(v));
  if constexpr (kStep > 1) {
    return Across<kStep / 2>(combined, combine);
  } else {
    return combined[0];
  }
}

GRADLOOM_INLINE float Largest(Vector v) {
  return Across(v, [](Vector a, Vector b) -> Vector { return b > a ? b : a; });
}

GRADLOOM_INLINE float Total(Vector v) {
  return Across(v, [](Vector a, Vector b) -> Vector { return a + b; });
}

}  // namespace

// Whole vectors, the last one padded with -inf: rows of attention are short, and elements one by one would take longer than the rest.
void SoftmaxRow(const float* x, float* y, Index n) {
  const Index whole = n / kLanes * kLanes, rest = n - whole;
  alignas(64) float last[kLanes];
  for (Index i = 0; i < kLanes; ++i) last[i] = i < rest ? x[whole + i] : -__builtin_inff();
  Vector largest = Load(last);
  for (Index i = 0; i < whole; i += kLanes) {
    const Vector next = Load(x + i);
    largest = next > largest ? next : largest;
  }
  const float shift = Largest(largest);
  Vector sum = {};
  for (Index begin = 0; begin < whole; begin += kVectorsPerSum * kLanes) {
    const Index end = whole - begin < kVectorsPerSum * kLanes ? whole : begin + kVectorsPerSum * kLanes;
    Vector part = {};
    for (Index i = begin; i < end; i += kLanes) part += ExpVector(x + i, y + i, shift);
    sum += part;
  }
  if (rest > 0) sum += ExpVector(last, last, shift);
  const float scale = 1.0f / Total(sum);
  for (Index i = 0; i < whole; i += kLanes) Store(y + i, Load(y + i) * scale);
  for (Index i = 0; i < rest; ++i) y[whole + i] = last[i] * scale;
}

void SoftmaxGradRow(const float* p, float* g, Index n, float scale) {
  const float mean = static_cast<float>(SumProductCentered(p, g, n, 0.0f));
#pragma omp simd
  for (Index i = 0; i < n; ++i) g[i] = scale * p[i] * (g[i] - mean);
}

// The exponentials go through a buffer on the stack, because y may be x.
void LogSoftmaxRow(const float* x, float* y, Index n) {
  constexpr Index kBlock = 1024;
  alignas(64) float exps[kBlock];
  const float shift = MaxRow(x, n);
  double sum = 0;
  for (Index begin = 0; begin < n; begin += kBlock) {
    const Index count = n - begin < kBlock ? n - begin : kBlock;
#pragma omp simd
    for (Index i = 0; i < count; ++i) exps[i] = scalar::ExpTerm(x[begin + i] - shift);
    sum += static_cast<double>(kRowReductions[kSum](exps, count));
  }
  // Not x - (shift + log_sum): that sum has no bits left for the logarithm of large scores.
  const float log_sum = scalar::Log(static_cast<float>(sum));
#pragma omp simd
  for (Index i = 0; i < n; ++i) y[i] = x[i] - shift - log_sum;
}

namespace {

constexpr Index kRowsPerSum = 128;    // so that rounding errors stay small in long columns, too
constexpr Index kColumnsPerSum = 64;  // summed together

// work[j] = the maximum of column j; work[columns + j] = the sum of exp(x - maximum).
GRADLOOM_INLINE void ColumnStatistics(const float* x, Index n, Index stride, Index columns, float* work) {
  for (Index j = 0; j < columns; ++j) work[j] = -__builtin_inff();
  kColumnReductions[kMax](x, n, stride, columns, work);
  float* sums = work + columns;
  for (Index j = 0; j < columns; ++j) sums[j] = 0.0f;
  for (Index begin = 0; begin < n; begin += kRowsPerSum) {
    const Index end = n - begin < kRowsPerSum ? n : begin + kRowsPerSum;
    for (Index first = 0; first < columns; first += kColumnsPerSum) {
      const Index count = columns - first < kColumnsPerSum ? columns - first : kColumnsPerSum;
      alignas(64) float part[kColumnsPerSum] = {};
      for (Index r = begin; r < end; ++r) {
        const float* row = x + r * stride + first;
#pragma omp simd
        for (Index j = 0; j < count; ++j) part[j] += scalar::ExpTerm(row[j] - work[first + j]);
      }
      for (Index j = 0; j < count; ++j) sums[first + j] += part[j];
    }
  }
}

}  // namespace

void SoftmaxColumns(const float* x, float* y, Index n, Index stride, Index columns, float* work) {
  ColumnStatistics(x, n, stride, columns, work);
  float* scales = work + columns;
#pragma omp simd
  for (Index j = 0; j < columns; ++j) scales[j] = 1.0f / scales[j];
  for (Index r = 0; r < n; ++r) {
    const float* from = x + r * stride;
    float* to = y + r * stride;
#pragma omp simd
    for (Index j = 0; j < columns; ++j) to[j] = scalar::ExpTerm(from[j] - work[j]) * scales[j];
  }
}

void LogSoftmaxColumns(const float* x, float* y, Index n, Index stride, Index columns, float* work) {
  ColumnStatistics(x, n, stride, columns, work);
#pragma omp simd
  for (Index j = 0; j < columns; ++j) work[columns + j] = scalar::Log(work[columns + j]);
  for (Index r = 0; r < n; ++r) {
    const float* from = x + r * stride;
    float* to = y + r * stride;
#pragma omp simd
    for (Index j = 0; j < columns; ++j) to[j] = from[j] - work[j] - work[columns + j];
  }
}

}  // namespace gradloom::GRADLOOM_ISA
