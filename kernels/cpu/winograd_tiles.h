// What the Winograd kernels share: which of them serves a call, and the tiles of 2 x 2 points of y with the patches of 4 x 4 points of x
// under their windows.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/catalog/kernel.h"
#include "kernels/cpu/isa/loops.h"
#include "kernels/cpu/parallel.h"

namespace gradloom {

inline constexpr int64_t kWinogradPlanes = 16;
inline constexpr int64_t kWinogradGap = 16;  // floats between planes, which would else lie in the same sets of the caches

// Channels of a vector, which lie next to each other in filters.
inline int64_t WinogradLanes() { return BestLoops().matrix_panel / 2; }

// A convolution of stride 1 with 3 x 3 windows: x and y have channels innermost, w is [channels of y / lanes, 3, 3, channels of x, lanes]
// in memory.
struct WinogradExtents {
  int64_t images, x_height, x_width, x_channels, y_height, y_width, y_channels;
  int64_t top, left;  // padding

  // Of the forward convolution of a call of three operators.
  static WinogradExtents Of(const KernelCall& call);
  // The convolution of y's gradient with filters the other way round that gives the gradient of x.
  WinogradExtents Transposed() const;

  int64_t down() const { return CeilDiv(y_height, 2); }
  int64_t across() const { return CeilDiv(y_width, 2); }
  int64_t tiles() const { return images * down() * across(); }
};

// Goes through tiles in their order: images, then rows, then columns.
class WinogradCursor {
 public:
  WinogradCursor(const WinogradExtents& extents, int64_t tile)
      : n_(&extents),
        column_(tile % extents.across()),
        row_(tile / extents.across() % extents.down()),
        image_(tile / extents.across() / extents.down()) {}

  void Next() {
    if (++column_ < n_->across()) return;
    column_ = 0;
    if (++row_ < n_->down()) return;
    row_ = 0, ++image_;
  }

  // The addresses of the patch's points, row by row; `outside` for those that x has not.
  void Patch(const float* x, const float* outside, const float** points) const {
    Points<4, const float>(x, 2 * row_ - n_->top, 2 * column_ - n_->left, n_->x_height, n_->x_width, n_->x_channels, outside, points);
  }
  // The same of the tile's points of y, or of its gradient.
  template <typename Float>
  void Tile(Float* y, Float* outside, Float** points) const {
    Points<2, Float>(y, 2 * row_, 2 * column_, n_->y_height, n_->y_width, n_->y_channels, outside, points);
  }

 private:
  template <int kSize, typename Float>
  void Points(Float* data, int64_t row, int64_t column, int64_t height, int64_t width, int64_t channels, Float* outside,
              Float** points) const {
    Float* const first = data + ((image_ * height + row) * width + column) * channels;
    for (int i = 0; i < kSize; ++i) {
      for (int j = 0; j < kSize; ++j) {
        const bool inside = row + i >= 0 && row + i < height && column + j >= 0 && column + j < width;
        points[kSize * i + j] = inside ? first + (i * width + j) * channels : outside;
      }
    }
  }

  const WinogradExtents* n_;
  int64_t column_, row_, image_;
};

// Why no Winograd kernel serves a call, whatever its layouts.
std::string RejectsWinogradShapes(const KernelCall& call);
// The same for the layouts it has.
std::string RejectsWinograd(const KernelCall& call);

}  // namespace gradloom
