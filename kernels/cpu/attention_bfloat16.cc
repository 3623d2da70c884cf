// Attention and its gradient in bfloat16, by products of pairs (kernels/cpu/isa/loops.h). The structure is that of attention.cc: tiles of
// queries, and keys and values that are packed once per head. Scores, probabilities, their gradients and all sums are float32.
// Probabilities and the gradients of scores are rounded to bfloat16 as operands of products.
//
// Every extent of a product is padded to whole tiles. Padding is zero where it is summed.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/cpu/attention_tiles.h"
#include "kernels/cpu/bfloat16.h"
#include "kernels/cpu/families.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/parallel_bytes.h"
#include "kernels/reference/wanted.h"

namespace gradloom {
namespace {

using namespace attention;  // NOLINT: the tiles are its own

int64_t Padded(int64_t extent) { return AlignUp(extent, kPairColumns); }

// Queries per tile: TileRows, but whole tiles of the products.
int64_t PairTileRows(int64_t keys) { return std::max<int64_t>(TileRows(keys) / kPairColumns, 1) * kPairColumns; }

// The division of one thread's scratch memory, as offsets in words of 32 bits.
struct PairScratchLayout {
  int64_t size, v_size, keys, rows;  // padded: of a query, of a value, keys, and queries per tile

  int64_t packed_keys, packed_values, packed_back;  // as right operands of the products by keys, and with keys
  int64_t queries, outputs, transposed;             // a tile of Q and of the gradient of Y, as left operands
  int64_t scores, gradients, cap_derivatives;
  int64_t rounded, pairs;          // scores or their gradients as left and as right operand
  int64_t staged, result;          // [rows / 2, kPairColumns]; [rows, size or v_size]
  int64_t grad_keys, grad_values;  // transposed: [size, keys], [v_size, keys]
  int64_t zeros, words;
  int64_t total = 0;

  PairScratchLayout(const AttentionSizes& n, bool gradient, bool drops)
      : size(Padded(n.q.size)),
        v_size(Padded(n.v.size)),
        keys(Padded(n.k.length)),
        rows(Padded(std::min(PairTileRows(n.k.length), n.q.length))) {
    const int64_t wider = std::max(size, v_size);
    const auto only = [&](int64_t count) { return gradient ? count : 0; };
    packed_keys = Take(keys * size / 2);
    packed_values = Take(keys * v_size / 2);
    packed_back = Take(only(keys * size / 2));
    queries = Take(rows * size / 2);
    outputs = Take(only(rows * v_size / 2));
    transposed = Take(only(rows * wider / 2));
    scores = Take(rows * keys);
    gradients = Take(only(rows * keys));
    cap_derivatives = Take(n.softcap > 0 ? only(rows * keys) : 0);
    rounded = Take(rows * keys / 2);
    pairs = Take(only(rows * keys / 2));
    staged = Take(only(rows / 2 * kPairColumns));
    result = Take(rows * wider);
    grad_keys = Take(only(size * keys));
    grad_values = Take(only(v_size * keys));
    zeros = Take(std::max(keys, wider));
    words = Take(drops ? RandomWordsCapacity(n.k.length) : 0);
  }

 private:
  int64_t Take(int64_t count) {
    const int64_t at = total;
    total += AlignUp(count, kAlignmentBytes / static_cast<int64_t>(sizeof(float)));
    return at;
  }
};

class PairAttention : public AttentionKernel {
 protected:
  explicit PairAttention(const KernelCall& call) : AttentionKernel(call), layout_(n_, IsGradient(call), Drops(call)) {}

  // One thread's scratch memory.
  struct Memory {
    float* base;
    float* Floats(int64_t offset) const { return base + offset; }
    uint32_t* Pairs(int64_t offset) const { return reinterpret_cast<uint32_t*>(base + offset); }
    uint16_t* Halves(int64_t offset) const { return reinterpret_cast<uint16_t*>(base + offset); }
  };
  Memory MemoryOfThread(void* scratch) const {
    const Memory memory{static_cast<float*>(scratch) + ThreadIndex() * layout_.total};
    std::fill_n(memory.Floats(layout_.zeros), std::max({layout_.keys, layout_.size, layout_.v_size}), 0.0f);
    return memory;
  }

  static const uint16_t* At(const void* operand, int64_t element) { return static_cast<const uint16_t*>(operand) + element; }

  // The visible keys of a tile, extended to whole panels.
  Range KeysOfTile(const int64_t* lengths, int64_t b, int64_t i, int64_t rows) const {
    const Range range = VisibleOfTile(lengths, b, i, rows);
    return {range.begin / kPairColumns * kPairColumns, Padded(range.end)};
  }

  // Packs `count` vectors as the columns of a right operand. Pairs lie within a vector: [padded size / 2, count].
  void PackColumns(const uint16_t* from, int64_t stride, int64_t count, int64_t size, uint32_t* to) const {
    const bool aligned = reinterpret_cast<uintptr_t>(from) % sizeof(uint32_t) == 0;
    const int64_t pairs = Padded(size) / 2, whole = aligned && size % 2 == 0 && stride % 2 == 0 ? size / 2 : 0;
    for (int64_t first = 0; first < count; first += kPairColumns, to += pairs * kPairColumns) {
      const int64_t columns = std::min<int64_t>(kPairColumns, count - first);
      const uint16_t* const vectors = from + first * stride;
      if (columns < kPairColumns || whole < pairs) std::fill_n(to, pairs * kPairColumns, 0u);
      if (whole > 0) {
        loops_.transpose(reinterpret_cast<const float*>(vectors), stride / 2, reinterpret_cast<float*>(to), kPairColumns, whole, columns);
        continue;
      }
      for (int64_t j = 0; j < columns; ++j) {
        for (int64_t e = 0; e < size; ++e) to[e / 2 * kPairColumns + j] |= uint32_t{vectors[j * stride + e]} << e % 2 * 16;
      }
    }
  }

  // Packs `count` vectors as the rows of a right operand. Pairs are of consecutive vectors: [padded count / 2, size].
  void PackRows(const Memory& memory, const uint16_t* from, int64_t stride, int64_t count, int64_t size, uint32_t* to) const {
    const uint16_t* const zeros = memory.Halves(layout_.zeros);
    const int64_t pairs = Padded(count) / 2;
    for (int64_t column = 0; column < size; column += kPairColumns, to += pairs * kPairColumns) {
      const int64_t columns = std::min<int64_t>(kPairColumns, size - column);
      if (columns < kPairColumns) std::fill_n(to, pairs * kPairColumns, 0u);
      for (int64_t p = 0; p < pairs; ++p) {
        const auto row = [&](int64_t i) { return i < count ? from + i * stride + column : zeros; };
        loops_.pair_rows(row(2 * p), row(2 * p + 1), to + p * kPairColumns, columns);
      }
    }
  }

  // Copies `count` vectors to rows of a left operand, [padded count, padded size].
  static void CopyRows(const uint16_t* from, int64_t stride, int64_t count, int64_t size, uint16_t* to) {
    const int64_t padded = Padded(size);
    for (int64_t i = 0; i < count; ++i) {
      std::memcpy(to + i * padded, from + i * stride, static_cast<size_t>(size) * sizeof(uint16_t));
      std::fill(to + i * padded + size, to + (i + 1) * padded, uint16_t{0});
    }
    std::fill(to + count * padded, to + Padded(count) * padded, uint16_t{0});
  }

  // The transpose of such a left operand: [padded size, padded count].
  void TransposeRows(const Memory& memory, const uint16_t* from, int64_t count, int64_t size, uint16_t* to) const {
    const int64_t padded = Padded(size), pairs = Padded(count) / 2;
    uint32_t* const staged = memory.Pairs(layout_.staged);
    for (int64_t column = 0; column < padded; column += kPairColumns) {
      for (int64_t p = 0; p < pairs; ++p) {
        const uint16_t* const first = from + 2 * p * padded + column;
        loops_.pair_rows(first, first + padded, staged + p * kPairColumns, kPairColumns);
      }
      loops_.transpose(reinterpret_cast<const float*>(staged), kPairColumns, reinterpret_cast<float*>(to + column * 2 * pairs), pairs,
                       kPairColumns, pairs);
    }
  }

  // Rounds the scores of a tile, or their gradients, for keys `range` to a left operand with rows of row() elements.
  void Round(const float* from, int64_t rows, Range range, uint16_t* to) const {
    for (int64_t r = 0; r < rows; ++r)
      loops_.store_bfloat16(from + r * row() + range.begin, to + r * row() + range.begin, range.end - range.begin);
  }

  // The same as a right operand with these keys as columns: [padded rows / 2, keys].
  void RoundPairs(const Memory& memory, const float* from, int64_t rows, Range range, uint32_t* to) const {
    const float* const zeros = memory.Floats(layout_.zeros);
    const int64_t pairs = Padded(rows) / 2;
    for (int64_t column = range.begin; column < range.end; column += kPairColumns, to += pairs * kPairColumns) {
      for (int64_t p = 0; p < pairs; ++p) {
        const auto of_row = [&](int64_t r) { return r < rows ? from + r * row() + column : zeros; };
        loops_.round_pairs(of_row(2 * p), of_row(2 * p + 1), to + p * kPairColumns, kPairColumns);
      }
    }
  }

  // c[rows, keys] = a[rows, padded size] times packed columns.
  void MultiplyByKeys(const uint16_t* a, int64_t rows, int64_t size, const uint32_t* packed, Range keys, float* c) const {
    product_({.m = AlignUp(rows, 16),
              .n = keys.end - keys.begin,
              .k = size,
              .a = a,
              .a_row = size,
              .b = packed + keys.begin * size / 2,
              .b_panel = kPairColumns * size / 2,
              .c = c + keys.begin,
              .c_row = row(),
              .adds = false});
  }

  // c[rows, padded size] = a[rows, keys] times packed rows.
  void MultiplyOverKeys(const uint16_t* a, int64_t rows, const uint32_t* packed, Range keys, int64_t size, float* c) const {
    product_({.m = AlignUp(rows, 16),
              .n = size,
              .k = keys.end - keys.begin,
              .a = a + keys.begin,
              .a_row = row(),
              .b = packed + keys.begin / 2 * kPairColumns,
              .b_panel = kPairColumns * layout_.keys / 2,
              .c = c,
              .c_row = size,
              .adds = false});
  }

  // c[size, keys] += a[size, padded rows] times pairs of rows; `size` is padded.
  void AddOverRows(const uint16_t* a, int64_t size, int64_t rows, const uint32_t* pairs, Range keys, float* c) const {
    product_({.m = size,
              .n = keys.end - keys.begin,
              .k = Padded(rows),
              .a = a,
              .a_row = Padded(rows),
              .b = pairs,
              .b_panel = kPairColumns * Padded(rows) / 2,
              .c = c + keys.begin,
              .c_row = layout_.keys,
              .adds = true});
  }

  void Scale(int64_t rows, Range keys, float* scores) const {
    for (int64_t r = 0; r < rows; ++r) {
      float* const s = scores + r * row() + keys.begin;
      loops_.shift_scale_shift(s, s, keys.end - keys.begin, 0, n_.scale, 0);
    }
  }

  // Rounds `count` vectors from rows that are `from_row` apart to a result.
  void StoreRows(const float* from, int64_t from_row, int64_t count, const AttentionVectors& n, void* result, int64_t begin) const {
    for (int64_t i = 0; i < count; ++i) StoreFloats(loops_, DType::kBfloat16, from + i * from_row, n.size, result, begin + i * n.stride);
  }

  const PairScratchLayout layout_;
  const PairProduct product_ = BestPairProduct();
};

class Attention : public PairAttention {
 public:
  explicit Attention(const KernelCall& call) : PairAttention(call) {}

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void*) override {
    const int64_t* lengths = HasInput(call_, kLengths) ? static_cast<const int64_t*>(inputs[kLengths]) : nullptr;
    const RandomDraws draws = drops_ ? source_(inputs) : RandomDraws{};
    const int64_t tile = PairTileRows(n_.k.length);
    ParallelRanges(n_.batch * n_.q.heads, 1, call_.threads, [&](int64_t begin, int64_t end) {
      const Memory memory = MemoryOfThread(scratch);
      uint32_t *keys = memory.Pairs(layout_.packed_keys), *values = memory.Pairs(layout_.packed_values);
      uint16_t *queries = memory.Halves(layout_.queries), *rounded = memory.Halves(layout_.rounded);
      float *scores = memory.Floats(layout_.scores), *result = memory.Floats(layout_.result);
      int64_t packed = -1;
      for (int64_t task = begin; task < end; ++task) {
        const int64_t b = task / n_.q.heads, h = task % n_.q.heads, g = h / n_.group();
        if (packed != b * n_.k.heads + g) {
          PackColumns(At(SourceOf(inputs, kK), n_.k.At(b, g, 0)), n_.k.stride, n_.k.length, n_.k.size, keys);
          PackRows(memory, At(SourceOf(inputs, kV), n_.v.At(b, g, 0)), n_.v.stride, n_.v.length, n_.v.size, values);
          packed = b * n_.k.heads + g;
        }
        for (int64_t i = 0; i < n_.q.length; i += tile) {
          const int64_t rows = std::min(tile, n_.q.length - i);
          const Range range = KeysOfTile(lengths, b, i, rows);
          CopyRows(At(SourceOf(inputs, kQ), n_.q.At(b, h, i)), n_.q.stride, rows, n_.q.size, queries);
          MultiplyByKeys(queries, rows, layout_.size, keys, range, scores);
          Scale(rows, range, scores);
          Probabilities(inputs, b, h, i, rows, range, scores, nullptr);
          for (int64_t r = 0; r < rows && drops_; ++r)
            Drop(DropoutOf(draws, lengths, b, h, i + r, memory.Pairs(layout_.words)), scores + r * row());
          Round(scores, rows, range, rounded);
          MultiplyOverKeys(rounded, rows, values, range, layout_.v_size, result);
          StoreRows(result, layout_.v_size, rows, n_.y, outputs[0], n_.y.At(b, h, i));
        }
      }
    });
  }
};

// A thread takes heads of K and V, each together with all heads of Q that share it.
class AttentionGrad : public PairAttention {
 public:
  explicit AttentionGrad(const KernelCall& call)
      : PairAttention(call), gradient_outputs_{GradientOutput(call, n_, kQ), GradientOutput(call, n_, kK), GradientOutput(call, n_, kV)} {}

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void*) override {
    ZeroAllOutputs(call_, outputs);
    if (inputs[kGradY] == nullptr) return;
    const RandomDraws draws = drops_ ? source_(inputs) : RandomDraws{};
    ParallelRanges(n_.batch * n_.k.heads, 1, call_.threads, [&](int64_t begin, int64_t end) {
      const Memory memory = MemoryOfThread(scratch);
      for (int64_t task = begin; task < end; ++task) Head(inputs, outputs, draws, task / n_.k.heads, task % n_.k.heads, memory);
    });
  }

 private:
  void Head(const void* const* inputs, void* const* outputs, const RandomDraws& draws, int64_t b, int64_t g, const Memory& memory) const {
    const auto out = [&](size_t i) { return gradient_outputs_[i] < 0 ? nullptr : outputs[gradient_outputs_[i]]; };
    const int64_t size = layout_.size, v_size = layout_.v_size;
    uint32_t *keys = memory.Pairs(layout_.packed_keys), *values = memory.Pairs(layout_.packed_values);
    uint32_t *keys_back = memory.Pairs(layout_.packed_back), *pairs = memory.Pairs(layout_.pairs);
    uint16_t *queries = memory.Halves(layout_.queries), *dys = memory.Halves(layout_.outputs);
    uint16_t *rounded = memory.Halves(layout_.rounded), *transposed = memory.Halves(layout_.transposed);
    float *p = memory.Floats(layout_.scores), *ds = memory.Floats(layout_.gradients), *result = memory.Floats(layout_.result);
    float *dk = memory.Floats(layout_.grad_keys), *dv = memory.Floats(layout_.grad_values);
    float* const cap_derivatives = n_.softcap > 0 ? memory.Floats(layout_.cap_derivatives) : nullptr;

    const uint16_t* const k = At(SourceOf(inputs, kK), n_.k.At(b, g, 0));
    PackColumns(k, n_.k.stride, n_.k.length, n_.k.size, keys);
    if (out(kQ) != nullptr) PackRows(memory, k, n_.k.stride, n_.k.length, n_.k.size, keys_back);
    PackColumns(At(SourceOf(inputs, kV), n_.v.At(b, g, 0)), n_.v.stride, n_.v.length, n_.v.size, values);
    if (out(kK) != nullptr) std::fill_n(dk, size * layout_.keys, 0.0f);
    if (out(kV) != nullptr) std::fill_n(dv, v_size * layout_.keys, 0.0f);

    const int64_t* lengths = HasInput(call_, kLengths) ? static_cast<const int64_t*>(inputs[kLengths]) : nullptr;
    const int64_t tile = PairTileRows(n_.k.length);
    for (int64_t h = g * n_.group(); h < (g + 1) * n_.group(); ++h) {
      for (int64_t i = 0; i < n_.q.length; i += tile) {
        const int64_t rows = std::min(tile, n_.q.length - i);
        const Range range = KeysOfTile(lengths, b, i, rows);
        if (range.begin == range.end) continue;
        CopyRows(At(SourceOf(inputs, kQ), n_.q.At(b, h, i)), n_.q.stride, rows, n_.q.size, queries);
        CopyRows(At(inputs[kGradY], n_.y.At(b, h, i)), n_.y.stride, rows, n_.y.size, dys);
        MultiplyByKeys(queries, rows, size, keys, range, p);
        Scale(rows, range, p);
        Probabilities(inputs, b, h, i, rows, range, p, cap_derivatives);
        MultiplyByKeys(dys, rows, v_size, values, range, ds);
        ScoreGradients(draws, lengths, b, h, i, rows, range, cap_derivatives, nullptr, memory.Pairs(layout_.words), p, ds);
        if (out(kV) != nullptr) {
          RoundPairs(memory, p, rows, range, pairs);
          TransposeRows(memory, dys, rows, n_.v.size, transposed);
          AddOverRows(transposed, v_size, rows, pairs, range, dv);
        }
        if (out(kQ) != nullptr) {
          Round(ds, rows, range, rounded);
          MultiplyOverKeys(rounded, rows, keys_back, range, size, result);
          StoreRows(result, size, rows, n_.q, out(kQ), n_.q.At(b, h, i));
        }
        if (out(kK) != nullptr) {
          RoundPairs(memory, ds, rows, range, pairs);
          TransposeRows(memory, queries, rows, n_.q.size, transposed);
          AddOverRows(transposed, size, rows, pairs, range, dk);
        }
      }
    }
    if (out(kK) != nullptr) StoreColumns(dk, n_.k, out(kK), n_.k.At(b, g, 0), result);
    if (out(kV) != nullptr) StoreColumns(dv, n_.v, out(kV), n_.v.At(b, g, 0), result);
  }

  // Stores the vectors of a head, which are the columns of `from`[padded size, padded keys].
  void StoreColumns(const float* from, const AttentionVectors& n, void* result, int64_t begin, float* memory) const {
    for (int64_t key = 0; key < n.length; key += kPairColumns) {
      const int64_t count = std::min<int64_t>(kPairColumns, n.length - key);
      loops_.transpose(from + key, layout_.keys, memory, n.size, count, n.size);
      StoreRows(memory, n.size, count, n, result, begin + key * n.stride);
    }
  }

  const std::array<int64_t, 3> gradient_outputs_;  // indices of the outputs with the gradients of Q, K and V; -1: not wanted
};

std::string Rejects(const KernelCall& call) {
  if (std::string why = RejectsAttention(call, [](DType dtype) { return dtype == DType::kBfloat16; }); !why.empty()) return why;
  return IsGradient(call) && GradientOutputIndex(call, kMask) >= 0 ? "the gradient of a mask" : "";
}

int64_t Scratch(const KernelCall& call) {
  const PairScratchLayout layout(AttentionSizes(call), IsGradient(call), Drops(call));
  return std::max(call.threads, 1) * layout.total * static_cast<int64_t>(sizeof(float));
}

template <typename K>
constexpr CpuKernel Row(std::string_view name, std::string_view op, std::string_view domain) {
  return {.row = {.name = name, .op = op, .domain = domain, .rejects = Rejects, .scratch_bytes = Scratch}, .make = MakeKernel<K>};
}

constexpr CpuKernel kKernels[] = {
    Row<Attention>("cpu.bfloat16.Attention", "Attention", ""),
    Row<Attention>("cpu.bfloat16.gradloom.Attention", "Attention", "gradloom"),
    Row<AttentionGrad>("cpu.bfloat16.AttentionGrad", "AttentionGrad", "gradloom"),
    Row<Attention>("cpu.bfloat16.AttentionDropout", "AttentionDropout", "gradloom"),
    Row<AttentionGrad>("cpu.bfloat16.AttentionDropoutGrad", "AttentionDropoutGrad", "gradloom"),
};

}  // namespace

std::span<const CpuKernel> CpuFastAttentionKernels() { return HasFastBfloat16() ? std::span(kKernels) : std::span<const CpuKernel>(); }
std::span<const CpuKernel> CpuSlowAttentionKernels() { return HasFastBfloat16() ? std::span<const CpuKernel>() : std::span(kKernels); }

}  // namespace gradloom
