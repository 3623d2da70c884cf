#include "runtime/data/column_major.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include "runtime/base/error.h"

namespace gradloom {
namespace {

// Skipping fewer bytes than this takes longer than reading them.
constexpr int64_t kSkippedBytes = 4096;

// Columns that are read together have about this many bytes.
constexpr int64_t kPieceBytes = int64_t{1} << 20;

// For each column in the order of the file, which is one choice of all indices but the first: its place in a row.
class Places {
 public:
  explicit Places(const Shape& shape) : extents_(shape.begin() + 1, shape.end()), steps_(extents_.size()), index_(extents_.size()) {
    int64_t step = 1;
    for (size_t axis = extents_.size(); axis-- > 0;) steps_[axis] = step, step *= extents_[axis];
  }

  int64_t at() const { return at_; }

  void Next() {
    for (size_t axis = 0; axis < extents_.size(); ++axis) {
      at_ += steps_[axis];
      if (++index_[axis] < extents_[axis]) return;
      at_ -= steps_[axis] * index_[axis];
      index_[axis] = 0;
    }
  }

 private:
  std::vector<int64_t> extents_, steps_, index_;
  int64_t at_ = 0;
};

// Copies elements that lie one after the other to places that are `step` elements apart.
template <typename Element>
void Spread(const std::byte* from, int64_t count, int64_t step, std::byte* to) {
  for (int64_t i = 0; i < count; ++i) std::memcpy(to + i * step * sizeof(Element), from + i * sizeof(Element), sizeof(Element));
}

void Spread(const std::byte* from, int64_t count, int64_t size, int64_t step, std::byte* to) {
  switch (size) {
    case 1: return Spread<uint8_t>(from, count, step, to);
    case 2: return Spread<uint16_t>(from, count, step, to);
    case 4: return Spread<uint32_t>(from, count, step, to);
    case 8: return Spread<uint64_t>(from, count, step, to);
    default: GRADLOOM_CHECK(false);
  }
}

}  // namespace

void ReadRowMajor(const StoredArray& array, int64_t block_bytes, const TakeBytes& take) {
  const int64_t size = DTypeBytes(array.dtype), elements = array.shape.elements();
  if (elements == 0) return;
  const int64_t rows = array.shape[0], width = elements / rows;
  const int64_t most = std::clamp<int64_t>(block_bytes / (width * size), 1, rows);
  std::vector<std::byte> block(static_cast<size_t>(most * width * size)), piece;
  for (int64_t first = 0; first < rows; first += most) {
    const int64_t count = std::min(most, rows - first);
    // Of each column, the rows of this block. Whole columns, if what lies between is short.
    const bool whole = (rows - count) * size <= kSkippedBytes;
    const int64_t together = whole ? std::clamp<int64_t>(kPieceBytes / (rows * size), 1, width) : 1;
    piece.resize(static_cast<size_t>((whole ? together * rows : count) * size));
    Places places(array.shape);
    for (int64_t column = 0; column < width; column += together) {
      const int64_t columns = std::min(together, width - column);
      const int64_t begin = whole ? column * rows : column * rows + first;
      array.read(begin * size, piece.data(), (whole ? columns * rows : count) * size);
      for (int64_t i = 0; i < columns; ++i, places.Next())
        Spread(piece.data() + (whole ? i * rows + first : 0) * size, count, size, width, block.data() + places.at() * size);
    }
    take(block.data(), count * width * size);
  }
}

}  // namespace gradloom
