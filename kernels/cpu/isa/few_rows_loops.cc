// Products of few rows with a matrix that is read once and in place: each of its elements is used only a few times, so packing it would
// take longer than multiplying.
#include "kernels/cpu/isa/tables.h"
#include "kernels/cpu/isa/vector.h"

namespace gradloom::GRADLOOM_ISA {
namespace {

constexpr Index kMaxRows = 4;  // of a that are multiplied together
// Columns whose sums are computed together, as many as there are registers for.
constexpr Index ColumnsFor(Index rows) { return kLanes == 16 ? (rows == 1 ? 8 : 4) : rows == 1 ? 6 : rows == 4 ? 2 : 3; }

// Adds halves pairwise.
GRADLOOM_INLINE float SumOfLanes(Vector v) {
  alignas(64) float lanes[kLanes];
  Store(lanes, v);
#pragma GCC unroll 4
  for (Index half = kLanes / 2; half > 0; half /= 2) {
    for (Index i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

GRADLOOM_INLINE float Finished(const MatrixArgs& args, float sum, Index column) {
  return args.alpha * sum + (args.bias != nullptr ? args.beta * args.bias[column * args.bias_step] : 0.0f);
}

// kColumns columns of b, each of them contiguous.
template <Index kRows, Index kColumns>
GRADLOOM_INLINE void Dots(const MatrixArgs& args, Index column) {
  Vector sums[kRows][kColumns] = {};
  const float* const b = args.b + column * args.b_col;
  Index p = 0;
  for (; p + kLanes <= args.k; p += kLanes) {
    Vector of_b[kColumns];
#pragma GCC unroll 8
    for (Index j = 0; j < kColumns; ++j) of_b[j] = Load(b + j * args.b_col + p);
#pragma GCC unroll 4
    for (Index r = 0; r < kRows; ++r) {
      const Vector of_a = Load(args.a + r * args.a_row + p);
#pragma GCC unroll 8
      for (Index j = 0; j < kColumns; ++j) sums[r][j] = Fma(of_a, of_b[j], sums[r][j]);
    }
  }
#pragma GCC unroll 4
  for (Index r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (Index j = 0; j < kColumns; ++j) {
      float sum = SumOfLanes(sums[r][j]);
      for (Index i = p; i < args.k; ++i) sum += args.a[r * args.a_row + i] * b[j * args.b_col + i];
      args.c[r * args.c_row + column + j] = Finished(args, sum, column + j);
    }
  }
}

template <Index kRows>
void ByColumns(const MatrixArgs& args, Index begin, Index end) {
  constexpr Index kColumns = ColumnsFor(kRows);
  Index j = begin;
  for (; j + kColumns <= end; j += kColumns) Dots<kRows, kColumns>(args, j);
  for (; j < end; ++j) Dots<kRows, 1>(args, j);
}

// Adds the products with kRows contiguous rows of b, from row p on, to the columns [begin, end) of one row c. Their sum is added at once:
// fewer roundings, and fewer accesses to c.
template <Index kRows>
GRADLOOM_INLINE void AddRows(const MatrixArgs& args, Index p, Index begin, Index end) {
  Vector factors[kRows];
#pragma GCC unroll 8
  for (Index i = 0; i < kRows; ++i) factors[i] = BroadcastFrom(args.a + p + i);
  const float* const b = args.b + p * args.b_row;
  Index j = begin;
  for (; j + kLanes <= end; j += kLanes) {
    Vector sum = factors[0] * Load(b + j);
#pragma GCC unroll 8
    for (Index i = 1; i < kRows; ++i) sum = Fma(factors[i], Load(b + i * args.b_row + j), sum);
    Store(args.c + j, Load(args.c + j) + sum);
  }
  for (; j < end; ++j) {
    float sum = args.a[p] * b[j];
    for (Index i = 1; i < kRows; ++i) sum = scalar::Fma(args.a[p + i], b[i * args.b_row + j], sum);
    args.c[j] += sum;
  }
}

void ByRows(const MatrixArgs& args, Index begin, Index end) {
  constexpr Index kRows = 8;
  for (Index j = begin; j < end; ++j) args.c[j] = 0.0f;
  Index p = 0;
  for (; p + kRows <= args.k; p += kRows) AddRows<kRows>(args, p, begin, end);
  for (; p < args.k; ++p) AddRows<1>(args, p, begin, end);
  for (Index j = begin; j < end; ++j) args.c[j] = Finished(args, args.c[j], j);
}

}  // namespace

void MultiplyFewRows(const MatrixArgs& args, Index begin, Index end) {
  constexpr void (*kByColumns[])(const MatrixArgs&, Index, Index) = {nullptr, ByColumns<1>, ByColumns<2>, ByColumns<3>, ByColumns<4>};
  static_assert(sizeof kByColumns / sizeof *kByColumns == kMaxRows + 1);
  // The columns of a block stay in the L2 cache for all parts of a, and the sums of a block of rows in the L1 cache.
  constexpr Index kColumnBlock = 16, kRowBlock = 2048;
  if (args.b_row != 1) {
    for (Index j = begin; j < end; j += kRowBlock) ByRows(args, j, j + kRowBlock < end ? j + kRowBlock : end);
    return;
  }
  const Index parts = (args.m + kMaxRows - 1) / kMaxRows;
  for (Index j = begin; j < end; j += kColumnBlock) {
    MatrixArgs part = args;
    for (Index i = 0; i < parts; ++i, part.a += part.m * args.a_row, part.c += part.m * args.c_row) {
      part.m = args.m / parts + (i < args.m % parts ? 1 : 0);
      kByColumns[part.m](part, j, j + kColumnBlock < end ? j + kColumnBlock : end);
    }
  }
}

}  // namespace gradloom::GRADLOOM_ISA
