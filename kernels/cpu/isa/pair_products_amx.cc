// Products of bfloat16 pairs by AMX.
#include <immintrin.h>

#include "kernels/cpu/isa/loops.h"

namespace gradloom::amx {
namespace {

constexpr Index kTile = 16;  // rows and columns of a tile of c; a tile of a has as many rows of 32 elements, one of b as many rows of pairs

// The operand of LDTILECFG (Intel 64 Software Developer's Manual, volume 2): all eight tiles have 16 rows of 64 bytes.
struct alignas(64) TileConfig {
  unsigned char palette = 1, start_row = 0, reserved[14] = {};
  unsigned short bytes_per_row[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  unsigned char rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64);
constexpr TileConfig kConfig;

// Tiles 0 to 3 hold c, 4 and 5 a, 6 and 7 b. The intrinsics need constants.

// c[32, 32], or with kHalf c[16, 32], from rows of a and a panel.
template <bool kHalf>
void Block(const PairArgs& args, const unsigned short* a, const unsigned* panel, float* c) {
  const long c_bytes = args.c_row * 4, a_bytes = args.a_row * 2, panel_bytes = kPairColumns * 4;
  float* const below = c + kTile * args.c_row;
  if (args.adds) {
    _tile_loadd(0, c, c_bytes);
    _tile_loadd(1, c + kTile, c_bytes);
    if (!kHalf) _tile_loadd(2, below, c_bytes);
    if (!kHalf) _tile_loadd(3, below + kTile, c_bytes);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    if (!kHalf) _tile_zero(2);
    if (!kHalf) _tile_zero(3);
  }
  for (Index k = 0; k < args.k; k += 2 * kTile, panel += kTile * kPairColumns) {
    _tile_loadd(6, panel, panel_bytes);
    _tile_loadd(4, a + k, a_bytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, panel + kTile, panel_bytes);
    _tile_dpbf16ps(1, 4, 7);
    if (kHalf) continue;
    _tile_loadd(5, a + kTile * args.a_row + k, a_bytes);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, c, c_bytes);
  _tile_stored(1, c + kTile, c_bytes);
  if (kHalf) return;
  _tile_stored(2, below, c_bytes);
  _tile_stored(3, below + kTile, c_bytes);
}

}  // namespace

void MultiplyPairs(const PairArgs& args) {
  _tile_loadconfig(&kConfig);
  const unsigned* panel = args.b;
  for (Index j = 0; j < args.n; j += kPairColumns, panel += args.b_panel) {
    Index i = 0;
    for (; i + 2 * kTile <= args.m; i += 2 * kTile) Block<false>(args, args.a + i * args.a_row, panel, args.c + i * args.c_row + j);
    if (i < args.m) Block<true>(args, args.a + i * args.a_row, panel, args.c + i * args.c_row + j);
  }
  // Tiles in use would make context switches slower.
  _tile_release();
}

}  // namespace gradloom::amx
