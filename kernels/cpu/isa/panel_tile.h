// A tile of a product with a packed panel, `kRows` rows of kVectors vectors, with its sums in registers. Include this only in files that
// are compiled per instruction set.
#pragma once

#include "kernels/cpu/isa/vector.h"

namespace gradloom::GRADLOOM_ISA {
namespace {

template <Index kRows, Index kVectors>
class PanelTile {
 public:
  // Adds the products of `points` rows of the panel with the elements of a: that of row r and point p is a[r * row_step + p * step].
  __attribute__((always_inline)) void Add(const float* a, Index row_step, Index step, const float* panel, Index points) {
    for (Index p = points; p > 0; --p, a += step, panel += kMatrixPanel) {
      Vector columns[kVectors];
#pragma GCC unroll 2
      for (Index v = 0; v < kVectors; ++v) columns[v] = Load(panel + v * kLanes);
#pragma GCC unroll 16
      for (Index r = 0; r < kRows; ++r) {
        const Vector x = BroadcastFrom(a + r * row_step);
#pragma GCC unroll 2
        for (Index v = 0; v < kVectors; ++v) sums_[r][v] = Fma(x, columns[v], sums_[r][v]);
      }
    }
  }

  // Stores the sums to c, whose rows are a panel apart, or with `adds`, adds them to c. Sums over several parts have smaller rounding
  // errors than one long sum.
  __attribute__((always_inline)) void Finish(float* c, bool adds) const {
#pragma GCC unroll 16
    for (Index r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
      for (Index v = 0; v < kVectors; ++v) {
        float* const to = c + r * kMatrixPanel + v * kLanes;
        Store(to, adds ? Load(to) + sums_[r][v] : sums_[r][v]);
      }
    }
  }

 private:
  Vector sums_[kRows][kVectors] = {};
};

// The functions `Kernel<rows, vectors>::Run`, indexed by rows.
template <typename Args, template <Index, Index> typename Kernel, Index kVectors>
constexpr void (*kTiles[])(const Args&) = {
    nullptr,
    Kernel<1, kVectors>::Run,
    Kernel<2, kVectors>::Run,
    Kernel<3, kVectors>::Run,
    Kernel<4, kVectors>::Run,
    Kernel<5, kVectors>::Run,
    Kernel<6, kVectors>::Run,
#if defined(__AVX512F__)
    Kernel<7, kVectors>::Run,
    Kernel<8, kVectors>::Run,
    Kernel<9, kVectors>::Run,
    Kernel<10, kVectors>::Run,
    Kernel<11, kVectors>::Run,
    Kernel<12, kVectors>::Run,
    Kernel<13, kVectors>::Run,
    Kernel<14, kVectors>::Run,
#endif
};

// Runs the kernel for the rows and columns of `args`.
template <typename Args, template <Index, Index> typename Kernel>
void RunTile(const Args& args) {
  static_assert(sizeof(kTiles<Args, Kernel, 1>) / sizeof(kTiles<Args, Kernel, 1>[0]) == kPanelRows + 1);
  (args.columns > kLanes ? kTiles<Args, Kernel, 2> : kTiles<Args, Kernel, 1>)[args.rows](args);
}

}  // namespace
}  // namespace gradloom::GRADLOOM_ISA
