// Copies of words, elements or tiles, depending on the strides.
#include <algorithm>
#include <cstdlib>

#include "kernels/cuda/shared.cuh"
#include "kernels/cuda/strided_copy.cuh"
#include "kernels/cuda/words.cuh"

namespace gradloom::cuda {
namespace {

template <typename T>
void CopyElements(int64_t n, const T* from, T* to, const OffsetCalculator<2>& offsets, cudaStream_t stream) {
  ForEachElement(
      n, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        const auto offset = offsets(i);
        to[offset.at[1]] = from[offset.at[0]];
      });
}

// A matrix of rows x columns: element (r, c) is at r + c from_step in the source and at r to_step + c in the target.
struct Matrix {
  int64_t rows, columns, from_step, to_step;
};

inline constexpr int kTile = 32;

// Copies the tile that starts at (top, left). Both sides are accessed along their contiguous axes.
template <typename T>
GRADLOOM_DEVICE void CopyTile(const Block& block, const T* from, T* to, const Matrix& matrix, int64_t top, int64_t left) {
  constexpr int kWidth = kTile + 1;  // odd, so that the elements of a column are in different memory banks
  T* const tile = Shared<0, T, kTile * kWidth>();
  for (int k = block.thread(); k < kTile * kTile; k += block.threads()) {
    const int64_t r = top + k % kTile, c = left + k / kTile;
    if (r < matrix.rows && c < matrix.columns) tile[k % kTile * kWidth + k / kTile] = from[r + c * matrix.from_step];
  }
  block.Sync();
  for (int k = block.thread(); k < kTile * kTile; k += block.threads()) {
    const int64_t r = top + k / kTile, c = left + k % kTile;
    if (r < matrix.rows && c < matrix.columns) to[r * matrix.to_step + c] = tile[k / kTile * kWidth + k % kTile];
  }
  block.Sync();
}

template <typename T>
void CopyTiles(int64_t matrices, const T* from, T* to, const OffsetCalculator<2>& offsets, const Matrix& matrix, cudaStream_t stream) {
  const int64_t down = (matrix.rows + kTile - 1) / kTile, across = (matrix.columns + kTile - 1) / kTile;
  ForEachRow(
      matrices * down * across, stream, GRADLOOM_ON_DEVICE(const Block& block, int64_t tile) {
        const Quotient at_row = Divide(tile, across), at_matrix = Divide(at_row.quotient, down);
        const auto offset = offsets(at_matrix.quotient);
        CopyTile(block, from + offset.at[0], to + offset.at[1], matrix, at_matrix.rest * kTile, at_row.rest * kTile);
      });
}

using Loops = Nest<2>;  // strides 0: from, 1: to

// The axes with more than one element, in the memory order of `to`, so that writes are contiguous.
Loops LoopsOf(const Shape& shape, const std::vector<int64_t>& from, const std::vector<int64_t>& to) {
  std::vector<size_t> order;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (shape[axis] != 1) order.push_back(static_cast<size_t>(axis));
  }
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return std::abs(to[a]) > std::abs(to[b]); });
  Shape extents;
  std::array<std::vector<int64_t>, 2> strides;
  for (size_t axis : order) {
    extents.push_back(shape[static_cast<int>(axis)]);
    strides[0].push_back(from[axis]);
    strides[1].push_back(to[axis]);
  }
  return Loops(extents, strides);
}

// The size of the widest word in which rows can be copied.
int64_t WordBytes(const Loops& loops, int64_t element_bytes, int64_t from_start, int64_t to_start) {
  if (loops.extents.empty() || loops.strides[0].back() != 1 || loops.strides[1].back() != 1) return element_bytes;
  int64_t bits = loops.extents.back() | from_start | to_start;
  for (const auto& strides : loops.strides) {
    for (size_t axis = 0; axis + 1 < strides.size(); ++axis) bits |= strides[axis];
  }
  return WordBytesOf(bits * element_bytes);
}

// The axis along which `from` is contiguous, if that is not the last one and tiles are worthwhile; else -1.
int MatrixAxis(const Loops& loops) {
  constexpr int64_t kMinExtent = 8;  // elements per side
  const int last = static_cast<int>(loops.extents.size()) - 1;
  if (last < 1 || loops.strides[1].back() != 1 || loops.extents.back() < kMinExtent) return -1;
  for (int axis = 0; axis < last; ++axis) {
    if (loops.strides[0][static_cast<size_t>(axis)] == 1 && loops.extents[static_cast<size_t>(axis)] >= kMinExtent) return axis;
  }
  return -1;
}

OffsetCalculator<2> OffsetsOf(const Loops& loops) { return OffsetCalculator<2>(Shape(loops.extents), loops.strides); }

}  // namespace

std::vector<int64_t> StridesOf(const OperandType& operand) {
  const Shape& shape = operand.shape;
  if (operand.layout.plain()) return shape.strides();
  std::vector<int64_t> strides(static_cast<size_t>(shape.rank()));
  int64_t stride = 1;
  for (size_t i = operand.layout.order.size(); i-- > 0;) {
    const int axis = operand.layout.order[i];
    strides[static_cast<size_t>(axis)] = stride;
    stride *= shape[axis];
  }
  return strides;
}

StridedCopy::StridedCopy(const Shape& shape, int64_t element_bytes, const Strided& from, const Strided& to)
    : word_bytes_(element_bytes), words_(shape.elements()), from_start_(from.start), to_start_(to.start) {
  if (words_ == 0) return;
  Loops loops = LoopsOf(shape, from.strides, to.strides);
  if (const int axis = MatrixAxis(loops); axis >= 0) {
    const auto at = static_cast<size_t>(axis);
    strategy_ = Strategy::kTiles;
    rows_ = loops.extents[at];
    columns_ = loops.extents.back();
    from_step_ = loops.strides[0].back();
    to_step_ = loops.strides[1][at];
    words_ /= rows_ * columns_;
    for (auto* numbers : {&loops.extents, &loops.strides[0], &loops.strides[1]}) {
      numbers->pop_back();
      numbers->erase(numbers->begin() + axis);
    }
  } else {
    word_bytes_ = WordBytes(loops, element_bytes, from_start_, to_start_);
    const int64_t wider = word_bytes_ / element_bytes;
    if (!loops.extents.empty()) loops.extents.back() /= wider;
    for (auto& strides : loops.strides) {
      for (size_t i = 0; i + 1 < strides.size(); ++i) strides[i] /= wider;
    }
    words_ /= wider;
    from_start_ /= wider;
    to_start_ /= wider;
    const bool one_run = loops.extents.size() <= 1 && (loops.extents.empty() || (loops.strides[0][0] == 1 && loops.strides[1][0] == 1));
    if (one_run) strategy_ = Strategy::kBytes;
  }
  offsets_ = OffsetsOf(loops);
}

void StridedCopy::Run(const void* from, void* to, cudaStream_t stream) const {
  if (words_ == 0) return;
  WithWord(word_bytes_, [&]<typename T>(std::type_identity<T>) {
    const T* const first = static_cast<const T*>(from) + from_start_;
    T* const into = static_cast<T*>(to) + to_start_;
    switch (strategy_) {
      case Strategy::kBytes:
        GRADLOOM_CUDA(cudaMemcpyAsync(into, first, static_cast<size_t>(words_) * sizeof(T), cudaMemcpyDeviceToDevice, stream));
        return;
      case Strategy::kElements: return CopyElements(words_, first, into, offsets_, stream);
      case Strategy::kTiles: return CopyTiles(words_, first, into, offsets_, Matrix{rows_, columns_, from_step_, to_step_}, stream);
    }
  });
}

}  // namespace gradloom::cuda
