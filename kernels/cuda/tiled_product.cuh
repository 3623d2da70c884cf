// Matrix products whose operands and result are accessed through functions, which can gather and convert elements.
#pragma once

#include "kernels/cuda/offset_calculator.cuh"
#include "kernels/cuda/shared.cuh"

namespace gradloom::cuda {

// Element (i, j) of matrix `batch` of a strided tensor, as an A.
template <typename A, typename T>
struct Matrix {
  const T* data;
  int64_t batch_stride, row_stride, column_stride;

  GRADLOOM_DEVICE A operator()(int64_t batch, int64_t i, int64_t j) const {
    return static_cast<A>(data[batch * batch_stride + i * row_stride + j * column_stride]);
  }
};

// The index of an operand along which neighbors are contiguous in memory: its row (m or n), or the summed index.
enum class Contiguous { kRow, kDepth };

struct ProductSize {
  int64_t batch, m, n, k;
};

inline constexpr int kProductSide = 16;  // a block is a square of threads
inline constexpr int kProductDepth = 16;
static_assert(kProductSide * kProductSide == kThreads);

// Stages a tile of kRows x kProductDepth elements in `to` [depth][kRows + 1]; the padding avoids bank conflicts. Elements out of range are
// 0.
template <Contiguous kAlong, int kRows, typename A, typename Load>
GRADLOOM_DEVICE void StageTile(const Block& block, int64_t first_row, int64_t rows, int64_t first_depth, int64_t depth, const Load& load,
                               A* to) {
  for (int x = block.thread(); x < kRows * kProductDepth; x += block.threads()) {
    const int row = kAlong == Contiguous::kDepth ? x / kProductDepth : x % kRows;
    const int p = kAlong == Contiguous::kDepth ? x % kProductDepth : x / kRows;
    const bool inside = first_row + row < rows && first_depth + p < depth;
    to[p * (kRows + 1) + row] = inside ? load(first_row + row, first_depth + p) : A(0);
  }
}

// Calls store(batch, i, j, the sum over p of a(batch, i, p) * b(batch, p, j)) for all i < m, j < n. Each thread computes kSide x kSide
// sums, adding terms in order. kAlongA and kAlongB say how a and b are laid out.
template <typename A, int kSide, Contiguous kAlongA, Contiguous kAlongB, typename LoadA, typename LoadB, typename Store>
void TiledProduct(const ProductSize& size, cudaStream_t stream, const LoadA& a, const LoadB& b, const Store& store) {
  constexpr int kTile = kProductSide * kSide;
  const int64_t row_tiles = (size.m + kTile - 1) / kTile, column_tiles = (size.n + kTile - 1) / kTile;
  ForEachRow(
      size.batch * row_tiles * column_tiles, stream, GRADLOOM_ON_DEVICE(const Block& block, int64_t tile) {
        const Quotient column = Divide(tile, column_tiles), row = Divide(column.quotient, row_tiles);
        const int64_t batch = row.quotient, i0 = row.rest * kTile, j0 = column.rest * kTile;
        A* const left = Shared<0, A, kProductDepth*(kTile + 1)>();
        A* const right = Shared<1, A, kProductDepth*(kTile + 1)>();
        const int y = block.thread() / kProductSide, x = block.thread() % kProductSide;
        A sum[kSide][kSide] = {};
        for (int64_t p0 = 0; p0 < size.k; p0 += kProductDepth) {
          block.Sync();
          StageTile<kAlongA, kTile>(
              block, i0, size.m, p0, size.k, [&](int64_t i, int64_t p) { return a(batch, i, p); }, left);
          StageTile<kAlongB, kTile>(
              block, j0, size.n, p0, size.k, [&](int64_t j, int64_t p) { return b(batch, p, j); }, right);
          block.Sync();
          for (int p = 0; p < kProductDepth; ++p) {
            A u[kSide], v[kSide];
            for (int q = 0; q < kSide; ++q) {
              u[q] = left[p * (kTile + 1) + y + q * kProductSide];
              v[q] = right[p * (kTile + 1) + x + q * kProductSide];
            }
            for (int q = 0; q < kSide; ++q) {
              for (int r = 0; r < kSide; ++r) sum[q][r] += u[q] * v[r];
            }
          }
        }
        for (int q = 0; q < kSide; ++q) {
          for (int r = 0; r < kSide; ++r) {
            const int64_t i = i0 + y + q * kProductSide, j = j0 + x + r * kProductSide;
            if (i < size.m && j < size.n) store(batch, i, j, sum[q][r]);
          }
        }
      });
}

}  // namespace gradloom::cuda
