// A tile of a product with a packed panel, whose sums stay in registers: `kRows` rows of kVectors vectors. Included only by the files that
// are compiled per instruction set.
#pragma once

#include "kernels/cpu/isa/vector.h"

namespace gradloom::GRADLOOM_ISA {
namespace {

template <Index kRows, Index kVectors>
class PanelTile {
 public:
  // Adds the products of `points` rows of the panel with what a has of them: row r of point p at a[r * row_step + p * step].
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

  // To c, whose rows are a panel apart; or to what is there, where `adds`: sums of parts round less than one of all.
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

// By rows, of one vector and of two: the functions `Kernel<rows, vectors>::Run`, which take `Args`, with its members rows and columns.
template <typename Args, template <Index, Index> typename Kernel>
void RunTile(const Args& args) {
  using Function = void (*)(const Args&);
  constexpr Function kOne[] = {
    nullptr,
    Kernel<1, 1>::Run,
    Kernel<2, 1>::Run,
    Kernel<3, 1>::Run,
    Kernel<4, 1>::Run,
    Kernel<5, 1>::Run,
    Kernel<6, 1>::Run,
#if defined(__AVX512F__)
    Kernel<7, 1>::Run,
    Kernel<8, 1>::Run,
    Kernel<9, 1>::Run,
    Kernel<10, 1>::Run,
    Kernel<11, 1>::Run,
    Kernel<12, 1>::Run,
    Kernel<13, 1>::Run,
    Kernel<14, 1>::Run,
#endif
  };
  constexpr Function kTwo[] = {
    nullptr,
    Kernel<1, 2>::Run,
    Kernel<2, 2>::Run,
    Kernel<3, 2>::Run,
    Kernel<4, 2>::Run,
    Kernel<5, 2>::Run,
    Kernel<6, 2>::Run,
#if defined(__AVX512F__)
    Kernel<7, 2>::Run,
    Kernel<8, 2>::Run,
    Kernel<9, 2>::Run,
    Kernel<10, 2>::Run,
    Kernel<11, 2>::Run,
    Kernel<12, 2>::Run,
    Kernel<13, 2>::Run,
    Kernel<14, 2>::Run,
#endif
  };
  static_assert(sizeof(kOne) / sizeof(Function) == kPanelRows + 1);
  (args.columns > kLanes ? kTwo : kOne)[args.rows](args);
}

}  // namespace
}  // namespace gradloom::GRADLOOM_ISA
