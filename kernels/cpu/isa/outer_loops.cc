// Sums of outer products, for the weights' gradients of convolutions.
#include "kernels/cpu/isa/tables.h"
#include "kernels/cpu/isa/vector.h"

namespace gradloom::GRADLOOM_ISA {
namespace {

constexpr Index kVectors = kOuterColumns / kLanes;

// Loops are unrolled, so that the sums stay in registers.
template <Index kRows>
void Tile(const OuterArgs& args) {
  Vector sums[kRows][kVectors];
#pragma GCC unroll 8
  for (Index r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (Index v = 0; v < kVectors; ++v) sums[r][v] = args.adds ? Load(args.c + r * kOuterColumns + v * kLanes) : Vector{};
  }
  for (const OuterRun *run = args.runs, *end = run + args.count; run < end; ++run) {
    const float *a = args.a + run->a, *b = args.b + run->b;
    for (Index p = run->points; p > 0; --p, a += args.a_step, b += kOuterColumns) {
      Vector columns[kVectors];
#pragma GCC unroll 4
      for (Index v = 0; v < kVectors; ++v) columns[v] = Load(b + v * kLanes);
#pragma GCC unroll 8
      for (Index r = 0; r < kRows; ++r) {
        const Vector x = Broadcast(a[r]);
#pragma GCC unroll 4
        for (Index v = 0; v < kVectors; ++v) sums[r][v] = Fma(x, columns[v], sums[r][v]);
      }
    }
  }
#pragma GCC unroll 8
  for (Index r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (Index v = 0; v < kVectors; ++v) Store(args.c + r * kOuterColumns + v * kLanes, sums[r][v]);
  }
}

using TileFunction = void (*)(const OuterArgs&);
constexpr TileFunction kTiles[kOuterRows + 1] = {nullptr, Tile<1>, Tile<2>, Tile<3>, Tile<4>, Tile<5>, Tile<6>};

}  // namespace

void AddOuterProducts(const OuterArgs& args) { kTiles[args.rows](args); }

}  // namespace gradloom::GRADLOOM_ISA
