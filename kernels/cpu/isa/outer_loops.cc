// Sums of outer products, for the weights' gradients of convolutions.
#include "kernels/cpu/isa/tables.h"
#include "kernels/cpu/isa/vector.h"

namespace gradloom::GRADLOOM_ISA {
namespace {

// Loops are unrolled, so that the sums stay in registers.
template <Index kRows, Index kVectors>
void Tile(const OuterArgs& args) {
  Vector sums[kRows][kVectors];
#pragma GCC unroll 16
  for (Index r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (Index v = 0; v < kVectors; ++v) sums[r][v] = Vector{};
  }
  for (const OuterRun *run = args.runs, *end = run + args.count; run < end; ++run) {
    const float *a = args.a + run->a, *b = args.b + run->b;
    for (Index p = run->points; p > 0; --p, a += args.a_step, b += kMatrixPanel) {
      Vector columns[kVectors];
#pragma GCC unroll 2
      for (Index v = 0; v < kVectors; ++v) columns[v] = Load(b + v * kLanes);
#pragma GCC unroll 16
      for (Index r = 0; r < kRows; ++r) {
        const Vector x = BroadcastFrom(a + r);
#pragma GCC unroll 2
        for (Index v = 0; v < kVectors; ++v) sums[r][v] = Fma(x, columns[v], sums[r][v]);
      }
    }
  }
#pragma GCC unroll 16
  for (Index r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (Index v = 0; v < kVectors; ++v) AddOrStore(args.c + r * kMatrixPanel + v * kLanes, sums[r][v], args.adds);
  }
}

using TileFunction = void (*)(const OuterArgs&);
template <Index kVectors>
constexpr TileFunction kTiles[] = {
    nullptr,
    Tile<1, kVectors>,
    Tile<2, kVectors>,
    Tile<3, kVectors>,
    Tile<4, kVectors>,
    Tile<5, kVectors>,
    Tile<6, kVectors>,
#if defined(__AVX512F__)
    Tile<7, kVectors>,
    Tile<8, kVectors>,
    Tile<9, kVectors>,
    Tile<10, kVectors>,
    Tile<11, kVectors>,
    Tile<12, kVectors>,
    Tile<13, kVectors>,
    Tile<14, kVectors>,
#endif
};
static_assert(sizeof(kTiles<1>) / sizeof(TileFunction) == kPanelRows + 1);

}  // namespace

void AddOuterProducts(const OuterArgs& args) { (args.columns > kLanes ? kTiles<2> : kTiles<1>)[args.rows](args); }

}  // namespace gradloom::GRADLOOM_ISA
