#include "kernels/cpu/isa/tables.h"
#include "kernels/cpu/isa/vector.h"

namespace gradloom::GRADLOOM_ISA {
namespace {

constexpr Index kSum = static_cast<Index>(Reduction::kSum);
constexpr Index kWide = 4 * kLanes;
constexpr Index kBlock = 4096;

// The sum of f(i) over [0, n): kWide partial sums within a block, blocks added in double.
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

GRADLOOM_INLINE float InverseRms(const float* x, Index n, float epsilon) {
  const double squares = SumOver(
      n, [=](Index i) __attribute__((always_inline)) { return x[i] * x[i]; });
  return 1.0f / scalar::Sqrt(static_cast<float>(squares / static_cast<double>(n)) + epsilon);
}

// Columns whose sums fit into registers.
constexpr Index kGroup = 2 * kLanes;
constexpr Index kFew = 4;  // fewest columns that are worth a vector of their own

// Calls f<columns of a group>(first column) for all columns. The columns left by whole groups are done a vector at a time; the last vector
// may repeat columns already done, which is allowed because f overwrites its results and a column's result does not depend on its group.
template <typename F>
GRADLOOM_INLINE void ForColumnGroups(Index columns, F f) {
  Index c = 0;
  for (; c + kGroup <= columns; c += kGroup) f.template operator()<kGroup>(c);
  if (columns >= kLanes) {
    for (; c < columns; c += kLanes) f.template operator()<kLanes>(c + kLanes <= columns ? c : columns - kLanes);
  } else if (columns >= kFew) {
    for (; c < columns; c += kFew) f.template operator()<kFew>(c + kFew <= columns ? c : columns - kFew);
  } else {
    for (; c < columns; ++c) f.template operator()<1>(c);
  }
}

// acc[j] += f(row, column) over all rows, for kColumns columns at once.
template <Index kColumns, typename F>
GRADLOOM_INLINE void SumColumns(Index rows, float* into, F f) {
  float acc[kColumns];
  for (Index j = 0; j < kColumns; ++j) acc[j] = 0.0f;
  for (Index r = 0; r < rows; ++r) {
#pragma omp simd
    for (Index j = 0; j < kColumns; ++j) acc[j] += f(r, j);
  }
  for (Index j = 0; j < kColumns; ++j) into[j] = acc[j];
}

template <Index kColumns>
GRADLOOM_INLINE void MomentsOf(const float* x, Index rows, Index stride, float* mean, float* squares) {
  SumColumns<kColumns>(
      rows, mean, [=](Index r, Index j) __attribute__((always_inline)) { return x[r * stride + j]; });
  float own[kColumns];
  for (Index j = 0; j < kColumns; ++j) own[j] = mean[j] = mean[j] / static_cast<float>(rows);
  SumColumns<kColumns>(
      rows, squares, [&](Index r, Index j) __attribute__((always_inline)) {
        const float distance = x[r * stride + j] - own[j];
        return distance * distance;
      });
}

template <Index kColumns>
GRADLOOM_INLINE void ProductsOf(const float* g, const float* x, Index rows, Index stride, const float* mean, float* sum, float* product) {
  float own[kColumns], sums[kColumns], products[kColumns];
  for (Index j = 0; j < kColumns; ++j) own[j] = mean[j], sums[j] = products[j] = 0.0f;
  for (Index r = 0; r < rows; ++r) {
#pragma omp simd
    for (Index j = 0; j < kColumns; ++j) {
      const float gradient = g[r * stride + j];
      sums[j] += gradient;
      products[j] += gradient * (x[r * stride + j] - own[j]);
    }
  }
  for (Index j = 0; j < kColumns; ++j) sum[j] = sums[j], product[j] = products[j];
}

}  // namespace

void ColumnMoments(const float* x, Index rows, Index columns, float* mean, float* squares) {
  ForColumnGroups(
      columns, [=]<Index kColumns>(Index c)
                   __attribute__((always_inline)) { MomentsOf<kColumns>(x + c, rows, columns, mean + c, squares + c); });
}

void ColumnProducts(const float* g, const float* x, Index rows, Index columns, const float* mean, float* sum, float* product) {
  ForColumnGroups(
      columns, [=]<Index kColumns>(Index c)
                   __attribute__((always_inline)) { ProductsOf<kColumns>(g + c, x + c, rows, columns, mean + c, sum + c, product + c); });
}

void ShiftScaleShiftColumns(const float* x, float* y, Index rows, Index columns, const float* mean, const float* scale,
                            const float* shift) {
  for (Index r = 0; r < rows; ++r, x += columns, y += columns) {
#pragma omp simd
    for (Index j = 0; j < columns; ++j) y[j] = scalar::Fma(x[j] - mean[j], scale[j], shift[j]);
  }
}

void NormGradientColumns(const float* g, const float* x, float* dx, Index rows, Index columns, const float* grad_scale, const float* mean_g,
                         const float* mean, const float* proj_scale) {
  for (Index r = 0; r < rows; ++r, g += columns, x += columns, dx += columns) {
#pragma omp simd
    for (Index j = 0; j < columns; ++j) dx[j] = grad_scale[j] * (g[j] - mean_g[j] - (x[j] - mean[j]) * proj_scale[j]);
  }
}

double SumSquaredDistance(const float* x, Index n, float mean) {
  return SumOver(
      n, [=](Index i) __attribute__((always_inline)) { return (x[i] - mean) * (x[i] - mean); });
}

double SumProductCentered(const float* g, const float* x, Index n, float mean) {
  return SumOver(
      n, [=](Index i) __attribute__((always_inline)) { return g[i] * (x[i] - mean); });
}

void ShiftScaleShift(const float* x, float* y, Index n, float mean, float scale, float shift) {
#pragma omp simd
  for (Index i = 0; i < n; ++i) y[i] = scalar::Fma(x[i] - mean, scale, shift);
}

void NormGradient(const float* g, const float* x, float* dx, Index n, float grad_scale, float mean_g, float mean, float proj_scale) {
#pragma omp simd
  for (Index i = 0; i < n; ++i) dx[i] = grad_scale * (g[i] - mean_g - (x[i] - mean) * proj_scale);
}

void GroupGradient(const float* g, const float* x, float* dx, Index n, float grad_scale, float mean, float proj_scale, float shift) {
#pragma omp simd
  for (Index i = 0; i < n; ++i) dx[i] = grad_scale * g[i] - (x[i] - mean) * proj_scale - shift;
}

void GroupGradientColumns(const float* g, const float* x, float* dx, Index rows, Index columns, const float* grad_scale, const float* mean,
                          const float* proj_scale, const float* shift) {
  for (Index r = 0; r < rows; ++r, g += columns, x += columns, dx += columns) {
#pragma omp simd
    for (Index j = 0; j < columns; ++j) dx[j] = grad_scale[j] * g[j] - (x[j] - mean[j]) * proj_scale[j] - shift[j];
  }
}

void RmsNormRow(const LayerNormArgs& args, const float* x, float* y) {
  const float *scale = args.scale, inverse = InverseRms(x, args.n, args.epsilon);
#pragma omp simd
  for (Index i = 0; i < args.n; ++i) y[i] = x[i] * inverse * scale[i];
}

void RmsNormGradRow(const LayerNormArgs& args, const float* g, const float* x, float* dx, float* dscale) {
  const Index n = args.n;
  const float *scale = args.scale, inverse = InverseRms(x, n, args.epsilon);
  const double product = SumOver(
      n, [=](Index i) __attribute__((always_inline)) { return g[i] * scale[i] * (x[i] * inverse); });
  const float proj_scale = static_cast<float>(product / static_cast<double>(n));
#pragma omp simd
  for (Index i = 0; i < n; ++i) {
    const float normal = x[i] * inverse, gradient = g[i];
    dscale[i] += gradient * normal;
    dx[i] = inverse * (gradient * scale[i] - normal * proj_scale);
  }
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
  const float mean_g = static_cast<float>(sum / static_cast<double>(n)), proj_scale = static_cast<float>(product / static_cast<double>(n));
#pragma omp simd
  for (Index i = 0; i < n; ++i) {
    const float normal = (x[i] - mean) * inv_std, gradient = g[i];
    dscale[i] += gradient * normal;
    dbias[i] += gradient;
    dx[i] = inv_std * (gradient * scale[i] - mean_g - normal * proj_scale);
  }
}

}  // namespace gradloom::GRADLOOM_ISA
