// Products of matrices that are too small to amortize a library's overhead.
#include "kernels/cpu/isa/tables.h"
#include "kernels/cpu/isa/vector.h"

namespace gradloom::GRADLOOM_ISA {
namespace {

constexpr Index kPanel = kMatrixPanel;  // columns of a tile
// As many as fit into the registers beside two vectors of b and one of a.
constexpr Index kTileRows = kLanes == 16 ? 12 : 6;

// In each square of 2 kStep rows and lanes, exchanges the two off-diagonal squares of kStep.
template <Index kStep>
GRADLOOM_INLINE void Exchange(Vector* rows) {
  IntVector low, high;
  for (Index j = 0; j < kLanes; ++j) {
    const bool second = (j & kStep) != 0;
    low[j] = static_cast<int>(second ? kLanes + j - kStep : j);
    high[j] = static_cast<int>(second ? kLanes + j : j + kStep);
  }
#pragma GCC unroll 16
  for (Index i = 0; i < kLanes; ++i) {
    if ((i & kStep) != 0) continue;
    const Vector a = rows[i], b = rows[i + kStep];
    rows[i] = __builtin_shuffle(a, b, low);
    rows[i + kStep] = __builtin_shuffle(a, b, high);
  }
}

// Transposes a square of kLanes rows and columns in registers.
GRADLOOM_INLINE void TransposeSquare(const float* from, Index from_stride, float* to, Index to_stride) {
  Vector rows[kLanes];
#pragma GCC unroll 16
  for (Index i = 0; i < kLanes; ++i) rows[i] = Load(from + i * from_stride);
  Exchange<1>(rows);
  Exchange<2>(rows);
  if constexpr (kLanes > 4) Exchange<4>(rows);
  if constexpr (kLanes > 8) Exchange<8>(rows);
#pragma GCC unroll 16
  for (Index i = 0; i < kLanes; ++i) Store(to + i * to_stride, rows[i]);
}

// The number of vectors that hold a panel's columns.
GRADLOOM_INLINE Index VectorsOf(Index width) { return width <= kLanes ? 1 : 2; }

// Packs one panel of `width` columns. `pack` has kPanel floats per row, of which only those of the vectors in use are written.
void PackPanel(const float* b, Index b_row, Index b_col, Index rows, Index width, float* pack) {
  const Index written = VectorsOf(width) * kLanes;
  for (Index p = 0; p < rows; ++p, pack += kPanel) {
    for (Index i = 0; i < width; ++i) pack[i] = b[p * b_row + i * b_col];
    for (Index i = width; i < written; ++i) pack[i] = 0.0f;
  }
}

// Packs a panel of whole vectors, `width` columns, each of them contiguous.
void PackTransposed(const float* b, Index b_col, Index rows, Index width, float* pack) {
  // Whole cache lines of a column, one after the other: if the columns are a multiple of 4 KiB apart, their lines share a set of the cache.
  constexpr Index kLine = 16;
  Index p = 0;
  for (; p + kLine <= rows; p += kLine) {
    for (Index v = 0; v < width; v += kLanes) {
      for (Index i = 0; i < kLine; i += kLanes) TransposeSquare(b + p + i + v * b_col, b_col, pack + (p + i) * kPanel + v, kPanel);
    }
  }
  for (; p + kLanes <= rows; p += kLanes) {
    for (Index v = 0; v < width; v += kLanes) TransposeSquare(b + p + v * b_col, b_col, pack + p * kPanel + v, kPanel);
  }
  PackPanel(b + p, 1, b_col, rows - p, width, pack + p * kPanel);
}

}  // namespace

// b as panels of kPanel columns and k rows, zero-padded past n.
void PackMatrix(const MatrixArgs& args, float* pack) {
  const Index panel_size = args.k * kPanel, whole = args.n / kPanel;
  Index packed = 0;  // panels
  if (args.b_col == 1) {
    // Along the rows of b, which the processor prefetches. Reading down a panel, each cache line would be in another page.
    constexpr Index kGroup = 8;
    for (; packed < whole; packed += kGroup) {
      const Index panels = whole - packed < kGroup ? whole - packed : kGroup;
      const float* from = args.b + packed * kPanel;
      float* const to = pack + packed * panel_size;
      for (Index p = 0; p < args.k; ++p, from += args.b_row) {
        for (Index i = 0; i < panels; ++i) {
          for (Index v = 0; v < kPanel; v += kLanes) Store(to + i * panel_size + p * kPanel + v, Load(from + i * kPanel + v));
        }
      }
    }
    packed = whole;
  }
  for (; packed * kPanel < args.n; ++packed) {
    const Index j = packed * kPanel, width = args.n - j < kPanel ? args.n - j : kPanel;
    const float* const from = args.b + j * args.b_col;
    float* const to = pack + packed * panel_size;
    if (args.b_row == 1 && width % kLanes == 0) {
      PackTransposed(from, args.b_col, args.k, width, to);
    } else if (args.b_col == 1 && width == kLanes) {
      for (Index p = 0; p < args.k; ++p) Store(to + p * kPanel, Load(from + p * args.b_row));
    } else {
      PackPanel(from, args.b_row, args.b_col, args.k, width, to);
    }
  }
}

namespace {

// c[kRows, kVectors vectors] from a and one panel of b; `bias` has kPanel elements. Loops are unrolled so that the sums stay in registers.
template <Index kRows, Index kVectors>
void Tile(const MatrixArgs& args, const float* a, const float* panel, const float* bias, float* c, Index c_row) {
  Vector sums[kRows][kVectors];
#pragma GCC unroll 16
  for (Index r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (Index v = 0; v < kVectors; ++v) sums[r][v] = args.adds ? Load(c + r * c_row + v * kLanes) : Vector{};
  }
  for (Index p = 0; p < args.k; ++p, panel += kPanel, a += args.a_col) {
    Vector b[kVectors];
#pragma GCC unroll 2
    for (Index v = 0; v < kVectors; ++v) b[v] = Load(panel + v * kLanes);
#pragma GCC unroll 16
    for (Index r = 0; r < kRows; ++r) {
      const Vector x = BroadcastFrom(a + r * args.a_row);
#pragma GCC unroll 2
      for (Index v = 0; v < kVectors; ++v) sums[r][v] = Fma(x, b[v], sums[r][v]);
    }
  }
  const Vector alpha = Broadcast(args.alpha);
#pragma GCC unroll 16
  for (Index r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (Index v = 0; v < kVectors; ++v) Store(c + r * c_row + v * kLanes, sums[r][v] * alpha + Load(bias + v * kLanes));
  }
}

using TileFunction = void (*)(const MatrixArgs&, const float*, const float*, const float*, float*, Index);
template <Index kVectors>
constexpr TileFunction kTilesOf[] = {
    nullptr,           Tile<1, kVectors>, Tile<2, kVectors>, Tile<3, kVectors>,  Tile<4, kVectors>,  Tile<5, kVectors>, Tile<6, kVectors>,
    Tile<7, kVectors>, Tile<8, kVectors>, Tile<9, kVectors>, Tile<10, kVectors>, Tile<11, kVectors>, Tile<12, kVectors>};
constexpr const TileFunction* kTiles[] = {nullptr, kTilesOf<1>, kTilesOf<2>};

// A row of c under kWide whole panels of b, `step` floats apart. One panel has too few sums to hide how long each multiply-add takes. The
// same sums as those of a tile, in the same order.
constexpr Index kWide = 4;

void WideRow(const MatrixArgs& args, const float* panels, Index step, const float* bias, float* c) {
  Vector sums[2 * kWide];
#pragma GCC unroll 8
  for (Index v = 0; v < 2 * kWide; ++v) sums[v] = args.adds ? Load(c + v * kLanes) : Vector{};
  const float* a = args.a;
  for (Index p = 0; p < args.k; ++p, panels += kPanel, a += args.a_col) {
    const Vector x = BroadcastFrom(a);
#pragma GCC unroll 8
    for (Index v = 0; v < 2 * kWide; ++v) sums[v] = Fma(x, Load(panels + v / 2 * step + v % 2 * kLanes), sums[v]);
  }
  const Vector alpha = Broadcast(args.alpha);
#pragma GCC unroll 8
  for (Index v = 0; v < 2 * kWide; ++v) Store(c + v * kLanes, sums[v] * alpha + Load(bias + v * kLanes));
}

// Copies the valid columns of a panel between c and rows of kPanel elements.
void CopyColumns(const float* from, Index from_row, float* to, Index to_row, Index rows, Index columns) {
  for (Index r = 0; r < rows; ++r) {
    for (Index i = 0; i < columns; ++i) to[r * to_row + i] = from[r * from_row + i];
  }
}

}  // namespace

void MultiplyPacked(const MatrixArgs& args, const float* pack) {
  alignas(64) static constexpr float kNoBias[kWide * kPanel] = {};
  alignas(64) float biases[kWide * kPanel], part[kTileRows * kPanel];
  const float* const bias = args.bias != nullptr ? biases : kNoBias;
  const auto set_biases = [&](Index j, Index columns, Index width) {
    for (Index i = 0; i < columns && args.bias != nullptr; ++i)
      biases[i] = i < width ? args.bias[(j + i) * args.bias_step] * args.beta : 0.0f;
  };
  // Tiles of nearly equal height: in a tile of one or two rows, the multiply-adds would wait for each other.
  const Index tiles = (args.m + kTileRows - 1) / kTileRows;
  Index j = 0;
  for (; args.m == 1 && j + kWide * kPanel <= args.n; j += kWide * kPanel, pack += kWide * args.k * kPanel) {
    set_biases(j, kWide * kPanel, kWide * kPanel);
    WideRow(args, pack, args.k * kPanel, bias, args.c + j);
  }
  for (; j < args.n; j += kPanel, pack += args.k * kPanel) {
    const Index width = args.n - j < kPanel ? args.n - j : kPanel;
    const TileFunction* const tiles_of = kTiles[VectorsOf(width)];
    set_biases(j, kPanel, width);
    for (Index t = 0, row = 0; t < tiles; ++t) {
      const Index rows = args.m / tiles + (t < args.m % tiles ? 1 : 0);
      const float* a = args.a + row * args.a_row;
      float* c = args.c + row * args.c_row + j;
      if (width == VectorsOf(width) * kLanes) {
        tiles_of[rows](args, a, pack, bias, c, args.c_row);
      } else {
        if (args.adds) CopyColumns(c, args.c_row, part, kPanel, rows, width);
        tiles_of[rows](args, a, pack, bias, part, kPanel);
        CopyColumns(part, kPanel, c, args.c_row, rows, width);
      }
      row += rows;
    }
  }
}

void Matrix(const MatrixArgs& args, float* pack) {
  PackMatrix(args, pack);
  MultiplyPacked(args, pack);
}

void Transpose(const float* from, Index from_stride, float* to, Index to_stride, Index rows, Index columns) {
  // Squares along the rows of `from`, so that whole cache lines are used.
  constexpr Index kBlock = 16;
  const auto part = [&](Index i, Index i_end, Index j, Index j_end) {
    for (Index r = i; r < i_end; ++r) {
      for (Index c = j; c < j_end; ++c) to[r * to_stride + c] = from[c * from_stride + r];
    }
  };
  for (Index i = 0; i < rows; i += kBlock) {
    const Index i_end = rows - i < kBlock ? rows : i + kBlock;
    const bool whole = i_end - i == kBlock;
    Index j = 0;
    for (; whole && j + kLanes <= columns; j += kLanes) {
      for (Index r = i; r < i_end; r += kLanes) TransposeSquare(from + j * from_stride + r, from_stride, to + r * to_stride + j, to_stride);
    }
    part(i, i_end, j, columns);
  }
}

}  // namespace gradloom::GRADLOOM_ISA
