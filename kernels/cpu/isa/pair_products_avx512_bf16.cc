// Products of bfloat16 pairs by AVX512-BF16.
#include <immintrin.h>

#include "kernels/cpu/isa/loops.h"

namespace gradloom::avx512_bf16 {
namespace {

constexpr Index kLanes = 16;
constexpr Index kRows = 8;  // per tile: with two vectors each, enough independent sums to hide the latency of an addition

// c[kRows, kPairColumns] from kRows rows of a and a panel.
void Tile(const PairArgs& args, const unsigned short* a, const unsigned* panel, float* c) {
  __m512 sums[kRows][2];
#pragma GCC unroll 8
  for (Index r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (Index v = 0; v < 2; ++v) sums[r][v] = args.adds ? _mm512_loadu_ps(c + r * args.c_row + v * kLanes) : _mm512_setzero_ps();
  }
  for (Index k = 0; k < args.k; k += 2, panel += kPairColumns) {
    const auto b0 = (__m512bh)_mm512_loadu_si512(panel), b1 = (__m512bh)_mm512_loadu_si512(panel + kLanes);
#pragma GCC unroll 8
    for (Index r = 0; r < kRows; ++r) {
      int pair;
      __builtin_memcpy(&pair, a + r * args.a_row + k, sizeof(pair));
      const auto x = (__m512bh)_mm512_set1_epi32(pair);
      sums[r][0] = _mm512_dpbf16_ps(sums[r][0], x, b0);
      sums[r][1] = _mm512_dpbf16_ps(sums[r][1], x, b1);
    }
  }
#pragma GCC unroll 8
  for (Index r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (Index v = 0; v < 2; ++v) _mm512_storeu_ps(c + r * args.c_row + v * kLanes, sums[r][v]);
  }
}

}  // namespace

void MultiplyPairs(const PairArgs& args) {
  const unsigned* panel = args.b;
  for (Index j = 0; j < args.n; j += kPairColumns, panel += args.b_panel) {
    for (Index i = 0; i < args.m; i += kRows) Tile(args, args.a + i * args.a_row, panel, args.c + i * args.c_row + j);
  }
}

}  // namespace gradloom::avx512_bf16
