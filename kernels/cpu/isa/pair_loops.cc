// Pairs of bfloat16 numbers, and their products by float32 arithmetic for processors without instructions for them.
#include "kernels/cpu/isa/tables.h"
#include "kernels/cpu/isa/vector.h"

namespace gradloom::GRADLOOM_ISA {

void PairRows(const unsigned short* first, const unsigned short* second, unsigned* to, Index n) {
#pragma omp simd
  for (Index i = 0; i < n; ++i) to[i] = static_cast<unsigned>(first[i]) | static_cast<unsigned>(second[i]) << 16;
}

void RoundPairs(const float* first, const float* second, unsigned* to, Index n) {
#pragma omp simd
  for (Index i = 0; i < n; ++i)
    to[i] = static_cast<unsigned>(scalar::Bfloat16Bits(first[i])) | static_cast<unsigned>(scalar::Bfloat16Bits(second[i])) << 16;
}

namespace {

typedef unsigned Pairs __attribute__((vector_size(kLanes * 4)));
typedef unsigned UnalignedPairs __attribute__((vector_size(kLanes * 4), aligned(4), may_alias));

constexpr Index kRows = 4;  // per tile

GRADLOOM_INLINE Vector First(Pairs pairs) { return reinterpret_cast<Vector>(pairs << 16); }
GRADLOOM_INLINE Vector Second(Pairs pairs) { return reinterpret_cast<Vector>(pairs & 0xffff0000u); }

// c[kRows, kLanes] from the rows of a and the columns of a panel that begin at `b`.
void Tile(const PairArgs& args, const unsigned short* a, const unsigned* b, float* c) {
  Vector sums[kRows];
#pragma GCC unroll 4
  for (Index r = 0; r < kRows; ++r) sums[r] = args.adds ? Load(c + r * args.c_row) : Vector{};
  for (Index k = 0; k < args.k; k += 2, b += kPairColumns) {
    const Pairs pairs = *reinterpret_cast<const UnalignedPairs*>(b);
    const Vector first = First(pairs), second = Second(pairs);
#pragma GCC unroll 4
    for (Index r = 0; r < kRows; ++r) {
      const unsigned short* const x = a + r * args.a_row + k;
      sums[r] = Fma(Broadcast(scalar::Bfloat16Value(x[0])), first, sums[r]);
      sums[r] = Fma(Broadcast(scalar::Bfloat16Value(x[1])), second, sums[r]);
    }
  }
#pragma GCC unroll 4
  for (Index r = 0; r < kRows; ++r) Store(c + r * args.c_row, sums[r]);
}

}  // namespace

void MultiplyPairs(const PairArgs& args) {
  for (Index j = 0; j < args.n; j += kLanes) {
    const unsigned* const b = args.b + j / kPairColumns * args.b_panel + j % kPairColumns;
    for (Index i = 0; i < args.m; i += kRows) Tile(args, args.a + i * args.a_row, b, args.c + i * args.c_row + j);
  }
}

}  // namespace gradloom::GRADLOOM_ISA
