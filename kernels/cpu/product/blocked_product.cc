#include "kernels/cpu/product/blocked_product.h"

#include <algorithm>
#include <limits>
#include <string_view>

#include "kernels/cpu/convert.h"
#include "kernels/cpu/parallel.h"
#include "runtime/base/checked.h"

namespace gradloom {
namespace {

// The part of k that is summed before the next part of both operands is packed. A panel of b and a tile of a stay in the L1 cache.
constexpr int64_t kDepth = 256;
// Rows of a, and columns of b, that are widened or transposed at once.
constexpr int64_t kStripRows = 96, kStripColumns = 128;
// The most columns of a block, and its most rows if it is widened. Its part of b, and a widened block of c, stay in the L2 cache.
constexpr int64_t kMaxBlock = 384;
constexpr int64_t kRowUnit = 12, kColumnUnit = 32;
// The cost of widening and of packing an element, in multiply-adds.
constexpr int64_t kWidening = 12, kPacking = 4;
constexpr int64_t kMinRows = 8, kMinColumns = 8, kMinDepth = 16;
constexpr int64_t kWorkPerThread = 1 << 18;
constexpr int64_t kPadding = 16;  // floats between rows of a copy, so that they are not a multiple of 4 KiB apart

// The number of parts of size at most `most`.
int64_t Count(int64_t extent, int64_t max) { return (extent + max - 1) / max; }

// Divides an extent into equal parts of at most `most`, rounded up to whole units.
int64_t BalancedBlock(int64_t extent, int64_t max, int64_t unit) { return Count(Count(extent, Count(extent, max)), unit) * unit; }

// The index of an operand's matrix for each matrix of `batch`.
std::vector<int64_t> MatrixIndices(const std::vector<int64_t>& batch, const std::vector<int64_t>& own, int64_t matrices) {
  std::vector<int64_t> indices(static_cast<size_t>(matrices), 0);
  int64_t stride = 1, below = 1;
  for (size_t axis = batch.size(); axis-- > 0;) {
    for (int64_t i = 0; i < matrices && own[axis] > 1; ++i) indices[static_cast<size_t>(i)] += i / below % batch[axis] * stride;
    stride *= own[axis];
    below *= batch[axis];
  }
  return indices;
}

}  // namespace

bool PrefersBlockedProducts() {
  static const bool prefers = std::string_view(BestLoops().name) == "avx2";
  return prefers;
}

bool PackingPaysOff(const MatrixProduct& p) { return p.m >= kMinRows && p.n >= kMinColumns && p.k >= kMinDepth; }

BlockedProduct::BlockedProduct(MatrixProduct product, DType dtype, int threads)
    : product_(std::move(product)), dtype_(dtype), c_row_(product_.n) {
  const MatrixProduct& p = product_;
  ChooseBlocks(ThreadsFor(p.work(), kWorkPerThread, threads));
  const std::vector<int64_t> a = MatrixIndices(p.batch, p.a_batch, p.matrices()), b = MatrixIndices(p.batch, p.b_batch, p.matrices());
  for (size_t i = 0; i < a.size(); ++i) offsets_.emplace_back(a[i] * p.m * p.k, b[i] * p.k * p.n);
}

// Chooses the block size with the shortest estimated time of the slowest thread.
void BlockedProduct::ChooseBlocks(int threads) {
  const MatrixProduct& p = product_;
  const int64_t cost_of_a = widens() ? kWidening : p.a_col == 1 ? 0 : kPacking, cost_of_b = widens() ? kWidening : kPacking;
  int64_t best = std::numeric_limits<int64_t>::max();
  for (int64_t rows = widens() ? kMaxBlock : std::max(p.m, 2 * kRowUnit); rows >= 2 * kRowUnit; rows /= 2) {
    for (int64_t columns = kMaxBlock; columns >= kColumnUnit; columns -= columns > 128 ? 128 : columns / 2) {
      const int64_t block_rows = BalancedBlock(p.m, rows, kRowUnit), block_columns = BalancedBlock(p.n, columns, kColumnUnit);
      const int64_t tasks = p.matrices() * Count(p.m, block_rows) * Count(p.n, block_columns);
      const int64_t cost = Count(tasks, threads) * (block_rows * block_columns + cost_of_a * block_rows + cost_of_b * block_columns);
      if (cost >= best) continue;
      best = cost;
      block_rows_ = block_rows;
      block_columns_ = block_columns;
    }
  }
  row_blocks_ = Count(p.m, block_rows_);
  column_blocks_ = Count(p.n, block_columns_);
  threads_ = static_cast<int>(std::min<int64_t>(threads, p.matrices() * row_blocks_ * column_blocks_));
}

// The parts are whole cache lines each; see Run.
int64_t BlockedProduct::part_floats() const {
  const int64_t depth = AlignUp(std::min(product_.k, kDepth), 16), b = depth * block_columns_;
  if (widens()) return depth * (kStripRows + kStripColumns) + b + block_rows_ * block_columns_;
  return b + (product_.a_col == 1 ? 0 : (depth + kPadding) * kStripRows);
}

int64_t BlockedProduct::bias_floats() const { return product_.has_bias ? AlignUp(product_.n, 16) : 0; }

int64_t BlockedProduct::scratch_bytes() const { return (bias_floats() + threads_ * part_floats()) * static_cast<int64_t>(sizeof(float)); }

// Row blocks vary fastest, so that consecutive tasks use the same columns of b.
BlockedProduct::Block BlockedProduct::BlockAt(int64_t task) const {
  const int64_t i = task % row_blocks_ * block_rows_, j = task / row_blocks_ % column_blocks_ * block_columns_;
  return {task / (row_blocks_ * column_blocks_), i, j, std::min(block_rows_, product_.m - i), std::min(block_columns_, product_.n - j)};
}

void BlockedProduct::Run(const void* a, const void* b, const void* bias, void* c, void* scratch) const {
  const MatrixProduct& p = product_;
  auto* const floats = static_cast<float*>(scratch);
  Operands operands{a, b, widens() ? floats : static_cast<const float*>(bias), c};
  if (!p.has_bias) {
    operands.bias = nullptr;
  } else if (widens()) {
    LoadFloats(loops_, dtype_, bias, 0, p.bias_col == 0 ? 1 : p.n, floats);
  }
  ParallelRanges(p.matrices() * row_blocks_ * column_blocks_, 1, threads_, [&](int64_t begin, int64_t end) {
    const int64_t depth = AlignUp(std::min(p.k, kDepth), 16);
    Parts parts{};
    // With one thread, this may be within another team, whose index does not matter here.
    parts.b = floats + bias_floats() + (threads_ > 1 ? ThreadIndex() : 0) * part_floats();
    parts.a = parts.b + depth * block_columns_;
    parts.rows = parts.a + depth * kStripRows;
    parts.c = parts.rows + depth * kStripColumns;
    int64_t packed_b = -1, packed_j = -1;
    for (int64_t task = begin; task < end; ++task) {
      const Block block = BlockAt(task);
      const int64_t b_at = offsets_[static_cast<size_t>(block.matrix)].second;
      const bool packed = p.k <= kDepth && packed_b == b_at && packed_j == block.j;
      Multiply(block, operands, packed, parts);
      packed_b = b_at;
      packed_j = block.j;
    }
  });
}

// `packed`: the columns of b are already packed from the previous block.
void BlockedProduct::Multiply(const Block& block, const Operands& operands, bool packed, const Parts& parts) const {
  const MatrixProduct& p = product_;
  const auto [a_at, b_at] = offsets_[static_cast<size_t>(block.matrix)];
  const int64_t c_at = (block.matrix * p.m + block.i) * c_row_ + block.j, c_row = widens() ? block.columns : c_row_;
  float* const c = widens() ? parts.c : static_cast<float*>(operands.c) + c_at;
  for (int64_t begin = 0; begin < p.k; begin += kDepth) {
    const int64_t depth = std::min(kDepth, p.k - begin);
    const bool last = begin + depth == p.k;
    if (!packed) PackB(operands.b, b_at + begin * p.b_row + block.j * p.b_col, depth, block.columns, parts);
    for (int64_t i = 0; i < block.rows; i += kStripRows) {
      MatrixArgs args{};
      args.m = std::min(kStripRows, block.rows - i);
      args.n = block.columns;
      args.k = depth;
      SetA(operands.a, a_at + (block.i + i) * p.a_row + begin * p.a_col, depth, args.m, args, parts.a);
      args.c = c + i * c_row;
      args.c_row = c_row;
      args.adds = adds_ || begin > 0;
      args.alpha = last ? p.alpha : 1.0F;
      if (last && operands.bias != nullptr) {
        args.bias = operands.bias + block.j * p.bias_col;
        args.bias_step = p.bias_col;
        args.beta = p.beta;
      }
      loops_.multiply_packed(args, parts.b);
      for (int64_t r = i; widens() && last && r < i + args.m; ++r) {
        StoreFloats(loops_, dtype_, parts.c + r * block.columns, block.columns, operands.c, c_at + r * c_row_);
      }
    }
  }
}

void BlockedProduct::PackB(const void* b, int64_t at, int64_t depth, int64_t columns, const Parts& parts) const {
  const MatrixProduct& p = product_;
  MatrixArgs args{};
  args.k = depth;
  if (!widens()) {
    args.n = columns;
    args.b = static_cast<const float*>(b) + at;
    args.b_row = p.b_row;
    args.b_col = p.b_col;
    loops_.pack_matrix(args, parts.b);
    return;
  }
  args.b = parts.rows;
  for (int64_t j = 0; j < columns; j += kStripColumns) {
    args.n = std::min(kStripColumns, columns - j);
    const int64_t from = at + j * p.b_col;
    if (p.b_col == 1) {
      for (int64_t i = 0; i < depth; ++i) LoadFloats(loops_, dtype_, b, from + i * p.b_row, args.n, parts.rows + i * args.n);
      args.b_row = args.n;
      args.b_col = 1;
    } else {
      for (int64_t i = 0; i < args.n; ++i) LoadFloats(loops_, dtype_, b, from + i * p.b_col, depth, parts.rows + i * depth);
      args.b_row = 1;
      args.b_col = depth;
    }
    loops_.pack_matrix(args, parts.b + j * depth);
  }
}

// Sets the operand a of `args`; `to` is memory for a copy.
void BlockedProduct::SetA(const void* a, int64_t at, int64_t depth, int64_t rows, MatrixArgs& args, float* to) const {
  if (widens()) return WidenA(a, at, depth, rows, args, to);
  const float* const from = static_cast<const float*>(a) + at;
  args.a = from;
  args.a_row = product_.a_row;
  args.a_col = 1;
  if (product_.a_col == 1) return;
  loops_.transpose(from, product_.a_col, to, depth + kPadding, rows, depth);
  args.a = to;
  args.a_row = depth + kPadding;
}

void BlockedProduct::WidenA(const void* a, int64_t at, int64_t depth, int64_t rows, MatrixArgs& args, float* to) const {
  const MatrixProduct& p = product_;
  args.a = to;
  if (p.a_col == 1) {
    for (int64_t i = 0; i < rows; ++i) LoadFloats(loops_, dtype_, a, at + i * p.a_row, depth, to + i * depth);
    args.a_row = depth;
    args.a_col = 1;
  } else {
    for (int64_t i = 0; i < depth; ++i) LoadFloats(loops_, dtype_, a, at + i * p.a_col, rows, to + i * rows);
    args.a_row = 1;
    args.a_col = rows;
  }
}

}  // namespace gradloom
