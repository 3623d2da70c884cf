// Winograd's F(2x2, 3x3) and F(3x3, 2x2): transforms at the points 0, 1, -1 and infinity, and the products of transformed 4 x 4 patches.
#include "kernels/cpu/isa/panel_tile.h"
#include "kernels/cpu/isa/tables.h"

namespace gradloom::GRADLOOM_ISA {
namespace {

constexpr Index kChunk = kWinogradChunk, kPanel = kMatrixPanel;

// The input transform B^T of a line of 4 points.
GRADLOOM_INLINE void PatchLine(Vector a, Vector b, Vector c, Vector d, Vector* to, Index step) {
  to[0] = a - c;
  to[step] = b + c;
  to[2 * step] = c - b;
  to[3 * step] = d - b;
}

}  // namespace

namespace {

// Computes the planes of rows [kFirst, kLast) of the four.
template <Index kFirst, Index kLast>
void Patch(const WinogradPatchArgs& args) {
  const float* const* const points = args.points;
  for (Index c = 0; c < args.channels; c += kLanes) {
    Vector rows[16];
#pragma GCC unroll 4
    for (Index j = 0; j < 4; ++j)
      PatchLine(Load(points[j] + c), Load(points[4 + j] + c), Load(points[8 + j] + c), Load(points[12 + j] + c), rows + j, 4);
    float* const at = args.to + c / kChunk * args.step + c % kChunk;
#pragma GCC unroll 4
    for (Index i = kFirst; i < kLast; ++i) {
      Vector out[4];
      PatchLine(rows[4 * i], rows[4 * i + 1], rows[4 * i + 2], rows[4 * i + 3], out, 1);
#pragma GCC unroll 4
      for (Index j = 0; j < 4; ++j) Store(at + (4 * i + j) * args.plane, out[j]);
    }
  }
}

}  // namespace

void WinogradPatch(const WinogradPatchArgs& args) {
  constexpr void (*kParts[])(const WinogradPatchArgs&) = {Patch<0, 4>, Patch<0, 2>, Patch<2, 4>, Patch<0, 1>,
                                                          Patch<1, 2>, Patch<2, 3>, Patch<3, 4>};
  kParts[args.parts - 1 + args.part](args);
}

namespace {

// The transform G of two points: a, (a + b) / 2, (a - b) / 2, b.
GRADLOOM_INLINE void PairLine(Vector a, Vector b, Vector* to, Index step) {
  const Vector half = Broadcast(0.5f), x = half * a, y = half * b;
  to[0] = a;
  to[step] = x + y;
  to[2 * step] = x - y;
  to[3 * step] = b;
}

// The transform G of three points: a, (a + b + c) / 2, (a - b + c) / 2, c.
GRADLOOM_INLINE void TripleLine(Vector a, Vector b, Vector c, Vector* to, Index step) {
  const Vector half = Broadcast(0.5f), ends = half * (a + c), middle = half * b;
  to[0] = a;
  to[step] = ends + middle;
  to[2 * step] = ends - middle;
  to[3 * step] = c;
}

}  // namespace

namespace {

template <Index kFirst, Index kLast>
void Pair(const WinogradPatchArgs& args) {
  const float* const* const points = args.points;
  for (Index c = 0; c < args.channels; c += kLanes) {
    Vector rows[8];
#pragma GCC unroll 2
    for (Index j = 0; j < 2; ++j) PairLine(Load(points[j] + c), Load(points[2 + j] + c), rows + j, 2);
    float* const at = args.to + c / kPanel * args.step + c % kPanel;
#pragma GCC unroll 4
    for (Index i = kFirst; i < kLast; ++i) {
      Vector out[4];
      PairLine(rows[2 * i], rows[2 * i + 1], out, 1);
#pragma GCC unroll 4
      for (Index j = 0; j < 4; ++j) Store(at + (4 * i + j) * args.plane, out[j]);
    }
  }
}

}  // namespace

void WinogradPair(const WinogradPatchArgs& args) {
  constexpr void (*kParts[])(const WinogradPatchArgs&) = {Pair<0, 4>, Pair<0, 2>, Pair<2, 4>, Pair<0, 1>,
                                                          Pair<1, 2>, Pair<2, 3>, Pair<3, 4>};
  kParts[args.parts - 1 + args.part](args);
}

void WinogradFilter(const WinogradFilterArgs& args) {
  const float* w = args.w;
  float* to = args.to;
  for (Index row = 0; row < args.rows; ++row, w += args.row_step, to += args.to_step) {
    for (Index c = 0; c < args.columns; c += kLanes) {
      const float* const tap = w + c / kLanes * args.vector_step;
      Vector rows[12], out[16];
#pragma GCC unroll 3
      for (Index j = 0; j < 3; ++j)
        TripleLine(Load(tap + j * args.tap_step), Load(tap + (3 + j) * args.tap_step), Load(tap + (6 + j) * args.tap_step), rows + j, 3);
#pragma GCC unroll 4
      for (Index i = 0; i < 4; ++i) TripleLine(rows[3 * i], rows[3 * i + 1], rows[3 * i + 2], out + 4 * i, 1);
#pragma GCC unroll 16
      for (Index p = 0; p < 16; ++p) Store(to + p * args.plane + c, out[p]);
    }
  }
}

void WinogradOutput(const float* from, Index plane, Index columns, const float* bias, float* const* points) {
  for (Index c = 0; c < columns; c += kLanes) {
    // A^T along the columns, then along the rows: a + b + c, b - c + d.
    Vector rows[8];
#pragma GCC unroll 4
    for (Index j = 0; j < 4; ++j) {
      const Vector a = Load(from + j * plane + c), b = Load(from + (4 + j) * plane + c), d = Load(from + (8 + j) * plane + c),
                   e = Load(from + (12 + j) * plane + c);
      rows[j] = a + b + d;
      rows[4 + j] = b - d + e;
    }
    const Vector shift = bias != nullptr ? Load(bias + c) : Vector{};
#pragma GCC unroll 2
    for (Index i = 0; i < 2; ++i) {
      const Vector* const r = rows + 4 * i;
      if (points[2 * i] != nullptr) Store(points[2 * i] + c, r[0] + r[1] + r[2] + shift);
      if (points[2 * i + 1] != nullptr) Store(points[2 * i + 1] + c, r[1] - r[2] + r[3] + shift);
    }
  }
}

void WinogradFilterGradient(const WinogradFilterGradArgs& args) {
  const float* from = args.from;
  float* w = args.w;
  for (Index row = 0; row < args.rows; ++row, w += args.row_step, from += args.from_step) {
    for (Index c = 0; c < args.columns; c += kLanes) {
      // a + b + c, b - c, b + c + d.
      Vector rows[12];
#pragma GCC unroll 4
      for (Index j = 0; j < 4; ++j) {
        const Vector a = Load(from + j * args.plane + c), b = Load(from + (4 + j) * args.plane + c),
                     d = Load(from + (8 + j) * args.plane + c), e = Load(from + (12 + j) * args.plane + c), sum = b + d;
        rows[j] = a + sum;
        rows[4 + j] = b - d;
        rows[8 + j] = sum + e;
      }
#pragma GCC unroll 3
      for (Index i = 0; i < 3; ++i) {
        const Vector* const r = rows + 4 * i;
        float* const tap = w + 3 * i * args.tap_step + c / kLanes * args.vector_step;
        const Vector sum = r[1] + r[2];
        Store(tap, r[0] + sum);
        Store(tap + args.tap_step, r[1] - r[2]);
        Store(tap + 2 * args.tap_step, sum + r[3]);
      }
    }
  }
}

namespace {

template <Index kRows, Index kVectors>
struct ProductTile {
  static void Run(const WinogradTileArgs& args) {
    PanelTile<kRows, kVectors> tile;
    const float *a = args.a, *b = args.b;
    for (Index left = args.depth; left > 0; left -= kChunk, a += args.a_step, b += kChunk * kPanel) {
      tile.Add(a, kChunk, 1, b, left < kChunk ? left : kChunk);
    }
    tile.Finish(args.c, args.adds);
  }
};

}  // namespace

void WinogradProducts(const WinogradTileArgs& args) { RunTile<WinogradTileArgs, ProductTile>(args); }

}  // namespace gradloom::GRADLOOM_ISA
