#include "kernels/cpu/isa/tables.h"
#include "kernels/cpu/isa/vector.h"

namespace gradloom::GRADLOOM_ISA {
namespace {

constexpr Index kSum = static_cast<Index>(Reduction::kSum);
constexpr Index kWide = 4 * kLanes;
constexpr Index kBlock = 4096;

// The sum of f(i) over [0, n): kWide partial sums, blocks joined in double.
template <typename F>
GRADLOOM_INLINE double SumOver(Index n, F f) {
  double total = 0;
  for (Index begin = 0; begin < n; begin += kBlock) {
    const Index end = n - begin < kBlock ? n : begin + kBlock;
    alignas(64) float acc[kWide];
    for (Index j = 0; j < kWide; ++j) acc[j] = 0.0f;
    Index i = begin;
    for (; i + kWide <= end; i += kWide) {
#pragma omp simd
      for (Index j = 0; j < kWide; ++j) acc[j] += f(i + j);
    }
    float tail = 0.0f;
    for (; i < end; ++i) tail += f(i);
    for (Index half = kWide / 2; half > 0; half /= 2) {
      for (Index j = 0; j < half; ++j) acc[j] += acc[j + half];
    }
    total += static_cast<double>(acc[0] + tail);
  }
  return total;
}

struct Moments {
  float mean, inv_std;
};

GRADLOOM_INLINE Moments RowMoments(const float* x, Index n, float epsilon) {
  const float mean = kRowReductions[kSum](x, n) / static_cast<float>(n);
  const double squares = SumOver(
      n, [=](Index i) __attribute__((always_inline)) { return (x[i] - mean) * (x[i] - mean); });
  const float variance = static_cast<float>(squares / static_cast<double>(n));
  return {mean, 1.0f / scalar::Sqrt(variance + epsilon)};
}

}  // namespace

double SumSquaredDistance(const float* x, Index n, float mean) {
  return SumOver(
      n, [=](Index i) __attribute__((always_inline)) { return (x[i] - mean) * (x[i] - mean); });
}

double SumProductCentred(const float* g, const float* x, Index n, float mean) {
  return SumOver(
      n, [=](Index i) __attribute__((always_inline)) { return g[i] * (x[i] - mean); });
}

void ShiftScaleShift(const float* x, float* y, Index n, float mean, float scale, float bias) {
#pragma omp simd
  for (Index i = 0; i < n; ++i) y[i] = (x[i] - mean) * scale + bias;
}

void NormGradient(const float* g, const float* x, float* dx, Index n, float slope, float mean_g, float mean, float along) {
#pragma omp simd
  for (Index i = 0; i < n; ++i) dx[i] = slope * (g[i] - mean_g - (x[i] - mean) * along);
}

void LayerNormRow(const LayerNormArgs& args, const float* x, float* y, float* mean, float* inv_std) {
  const Index n = args.n;
  const Moments m = RowMoments(x, n, args.epsilon);
  const float *scale = args.scale, *bias = args.bias;
  if (bias != nullptr) {
#pragma omp simd
    for (Index i = 0; i < n; ++i) y[i] = (x[i] - m.mean) * m.inv_std * scale[i] + bias[i];
  } else {
#pragma omp simd
    for (Index i = 0; i < n; ++i) y[i] = (x[i] - m.mean) * m.inv_std * scale[i];
  }
  if (mean != nullptr) *mean = m.mean;
  if (inv_std != nullptr) *inv_std = m.inv_std;
}

void LayerNormGradRow(const LayerNormArgs& args, const float* g, const float* x, float* dx, float* dscale, float* dbias) {
  const Index n = args.n;
  const Moments m = RowMoments(x, n, args.epsilon);
  const float* scale = args.scale;
  const float mean = m.mean, inv_std = m.inv_std;
  const double sum = SumOver(
      n, [=](Index i) __attribute__((always_inline)) { return g[i] * scale[i]; });
  const double product = SumOver(
      n, [=](Index i) __attribute__((always_inline)) { return g[i] * scale[i] * ((x[i] - mean) * inv_std); });
  const float mean_g = static_cast<float>(sum / static_cast<double>(n)), along = static_cast<float>(product / static_cast<double>(n));
#pragma omp simd
  for (Index i = 0; i < n; ++i) {
    const float normal = (x[i] - mean) * inv_std, gradient = g[i];
    dscale[i] += gradient * normal;
    dbias[i] += gradient;
    dx[i] = inv_std * (gradient * scale[i] - mean_g - normal * along);
  }
}

}  // namespace gradloom::GRADLOOM_ISA
