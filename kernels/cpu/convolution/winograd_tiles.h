// The parts common to the Winograd kernels: which of them serves a call, and the tiles of 2 x 2 points of y with the patches of 4 x 4
// points of x that they read.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/catalog/kernel.h"
#include "kernels/cpu/isa/loops.h"
#include "kernels/cpu/parallel.h"
#include "runtime/base/checked.h"

namespace gradloom {

inline constexpr int64_t kWinogradPlanes = 16;
inline constexpr int64_t kWinogradGap = 16;  // floats between planes, which would otherwise compete for the same cache sets

// Channels per vector, which are contiguous in filters.
inline int64_t WinogradLanes() { return BestLoops().matrix_panel / 2; }

// A convolution of stride 1 with 3 x 3 windows. x and y are channels-last; w is stored as [channels of y / lanes, 3, 3, channels of x,
// lanes].
struct WinogradExtents {
  int64_t images, x_height, x_width, x_channels, y_height, y_width, y_channels;
  int64_t top, left;  // padding

  // The extents of the forward convolution, for a call of the forward operator or of either gradient.
  static WinogradExtents Of(const KernelCall& call);
  // The convolution of the gradient of y with flipped filters, which gives the gradient of x.
  WinogradExtents Transposed() const;

  int64_t down() const { return CeilDiv(y_height, 2); }
  int64_t across() const { return CeilDiv(y_width, 2); }
  int64_t tiles() const { return images * down() * across(); }
};

// Iterates over tiles in order: images, then rows, then columns.
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

  // The addresses of the patch's points, row by row; `outside` for points outside x.
  void Patch(const float* x, const float* outside, const float** points) const {
    Points<4, const float>(x, 2 * row_ - n_->top, 2 * column_ - n_->left, n_->x_height, n_->x_width, n_->x_channels, outside, points);
  }
  // The same for the tile's points of y, or of its gradient.
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

// Why no Winograd kernel serves a call in any layout, or "".
std::string RejectsWinogradShapes(const KernelCall& call);
// Why no Winograd kernel serves a call in its present layouts, or "".
std::string RejectsWinograd(const KernelCall& call);

}  // namespace gradloom
