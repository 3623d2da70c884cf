// Products of matrices that are too small for a library's overhead.
#include "kernels/cpu/isa/tables.h"
#include "kernels/cpu/isa/vector.h"

namespace gradloom::GRADLOOM_ISA {
namespace {

constexpr Index kPanel = 2 * kLanes;  // columns that a tile covers
constexpr Index kTileRows = 4;

// b as panels of kPanel columns, k rows each, zero past n.
void Pack(const MatrixArgs& args, float* pack) {
  for (Index j = 0; j < args.n; j += kPanel) {
    const Index width = args.n - j < kPanel ? args.n - j : kPanel;
    const float* b = args.b + j * args.b_col;
    for (Index p = 0; p < args.k; ++p, pack += kPanel) {
      if (width == kPanel && args.b_col == 1) {
        for (Index v = 0; v < kPanel; v += kLanes) Store(pack + v, Load(b + p * args.b_row + v));
      } else {
        for (Index i = 0; i < width; ++i) pack[i] = b[p * args.b_row + i * args.b_col];
        for (Index i = width; i < kPanel; ++i) pack[i] = 0.0f;
      }
    }
  }
}

GRADLOOM_INLINE Vector BiasOf(const MatrixArgs& args, Index column, Index width) {
  Vector v{};
  if (args.bias == nullptr) return v;
  for (Index i = 0; i < kLanes && i < width; ++i) v[i] = args.bias[(column + i) * args.bias_step];
  return v * args.beta;
}

GRADLOOM_INLINE void StorePart(float* to, Vector v, Index width) {
  if (width >= kLanes) return Store(to, v);
  for (Index i = 0; i < width; ++i) to[i] = v[i];
}

// kRows rows of c times one panel of b.
template <Index kRows>
GRADLOOM_INLINE void Tile(const MatrixArgs& args, Index row, Index column, const float* panel) {
  Vector acc[kRows][2] = {};
  const float* a = args.a + row * args.a_row;
  for (Index p = 0; p < args.k; ++p, panel += kPanel, a += args.a_col) {
    const Vector b0 = Load(panel), b1 = Load(panel + kLanes);
    for (Index r = 0; r < kRows; ++r) {
      const Vector x = Broadcast(a[r * args.a_row]);
      acc[r][0] = Fma(x, b0, acc[r][0]);
      acc[r][1] = Fma(x, b1, acc[r][1]);
    }
  }
  const Index width = args.n - column;
  const Vector bias0 = BiasOf(args, column, width), bias1 = BiasOf(args, column + kLanes, width - kLanes);
  for (Index r = 0; r < kRows; ++r) {
    float* c = args.c + (row + r) * args.c_row + column;
    StorePart(c, acc[r][0] * args.alpha + bias0, width);
    if (width > kLanes) StorePart(c + kLanes, acc[r][1] * args.alpha + bias1, width - kLanes);
  }
}

}  // namespace

void Matrix(const MatrixArgs& args, float* pack) {
  Pack(args, pack);
  for (Index j = 0; j < args.n; j += kPanel, pack += args.k * kPanel) {
    Index i = 0;
    for (; i + kTileRows <= args.m; i += kTileRows) Tile<kTileRows>(args, i, j, pack);
    for (; i < args.m; ++i) Tile<1>(args, i, j, pack);
  }
}

void Transpose(const float* from, Index from_stride, float* to, Index to_stride, Index rows, Index columns) {
  constexpr Index kTile = 16;
  for (Index i = 0; i < rows; i += kTile) {
    const Index i_end = rows - i < kTile ? rows : i + kTile;
    for (Index j = 0; j < columns; j += kTile) {
      const Index j_end = columns - j < kTile ? columns : j + kTile;
      if (i_end - i == kTile && j_end - j == kTile) {
        alignas(64) float tile[kTile][kTile];
        for (Index c = 0; c < kTile; ++c) {
          for (Index r = 0; r < kTile; ++r) tile[r][c] = from[(j + c) * from_stride + i + r];
        }
        for (Index r = 0; r < kTile; ++r) {
          for (Index c = 0; c < kTile; ++c) to[(i + r) * to_stride + j + c] = tile[r][c];
        }
        continue;
      }
      for (Index r = i; r < i_end; ++r) {
        for (Index c = j; c < j_end; ++c) to[r * to_stride + c] = from[c * from_stride + r];
      }
    }
  }
}

}  // namespace gradloom::GRADLOOM_ISA
