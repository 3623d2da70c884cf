// The parts common to attention and its gradient: tiles of queries with their scores and probabilities, and the products around them. Keys
// and values of a head are packed once for all its tiles. 16-bit operands are widened when they are packed, a head or a tile at a time, and
// results are rounded once. Dropout draws random numbers only for the keys that a query sees.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <vector>

#include "kernels/catalog/pointwise.h"
#include "kernels/cpu/convert.h"
#include "kernels/cpu/isa/loops.h"
#include "kernels/cpu/operands.h"
#include "kernels/cpu/random_source.h"
#include "kernels/reference/attention_vectors.h"
#include "kernels/reference/operands.h"
#include "runtime/base/checked.h"
#include "runtime/base/half.h"

namespace gradloom::attention {

enum Operand : size_t { kQ, kK, kV, kMask, kPastKey, kPastValue, kLengths, kGradY };

inline bool IsGradient(const KernelCall& call) { return call.op == "AttentionGrad" || call.op == "AttentionDropoutGrad"; }
inline bool Drops(const KernelCall& call) { return call.op == "AttentionDropout" || call.op == "AttentionDropoutGrad"; }

// The index of the seed among the operands of a call with dropout; in a gradient, it follows the gradients of three outputs.
inline size_t SeedOf(const KernelCall& call) { return IsGradient(call) ? kGradY + 3 : kGradY; }

inline bool Is16Bit(DType dtype) { return dtype == DType::kFloat16 || dtype == DType::kBfloat16; }

constexpr float kHidden = -std::numeric_limits<float>::infinity();

// Queries per tile: few enough that the scores stay in the L2 cache, but enough for efficient products.
inline int64_t TileRows(int64_t keys) { return std::clamp<int64_t>((1 << 16) / std::max<int64_t>(keys, 1), 12, 96); }

// The parameters of a call.
struct AttentionSizes {
  int64_t batch;
  AttentionVectors q, k, v, y;
  float scale, softcap;
  bool causal;
  int64_t left, right;
  std::vector<int64_t> mask_strides;  // for batch, head, query and key; empty: no mask
  int64_t mask_keys = 0;
  DType dtype;  // of all operands except mask and lengths
  DType mask_dtype = DType::kFloat32;

  explicit AttentionSizes(const KernelCall& call) {
    const Attributes& a = call.attributes;
    dtype = call.inputs[kQ].dtype;
    batch = call.inputs[kQ].shape[0];
    q = AttentionVectors(call.inputs[kQ].shape, a.Int("q_num_heads", 0));
    k = AttentionVectors(call.inputs[kK].shape, a.Int("kv_num_heads", 0));
    v = AttentionVectors(call.inputs[kV].shape, a.Int("kv_num_heads", 0));
    y = q;
    y.size = v.size;
    scale = static_cast<float>(a.Float("scale", 1 / std::sqrt(static_cast<double>(q.size))));
    softcap = static_cast<float>(a.Float("softcap", 0));
    causal = a.Int("is_causal", 0) != 0;
    left = a.Int("left_window_size", -1);
    right = a.Int("right_window_size", -1);
    if (!HasInput(call, kMask)) return;
    const OperandType& mask = call.inputs[kMask];
    mask_keys = mask.shape[mask.shape.rank() - 1];
    mask_dtype = mask.dtype;
    mask_strides = BroadcastStrides(mask.shape, {batch, q.heads, q.length, mask_keys});
  }
  int64_t group() const { return q.heads / k.heads; }
};

struct Range {
  int64_t begin, end;
};

// float32 vectors, `stride` elements apart.
template <typename T>
struct Vectors {
  T* at = nullptr;
  int64_t stride = 0;
};

// The division of one thread's scratch memory, as offsets in floats.
struct AttentionScratchLayout {
  int64_t keys, values, scores, gradients, cap_derivatives, keys_back, queries, outputs;
  int64_t words;                                    // random words, which are as wide as floats
  int64_t wide, wide_q, wide_dy, wide_dk, wide_dv;  // for 16-bit operands: see Widen, and Sums in attention.cc
  int64_t floats = 0;

  AttentionScratchLayout(const AttentionSizes& n, bool gradient, bool drops) {
    const int64_t total = n.k.length, rows = std::min(TileRows(total), n.q.length), row = AlignUp(total, 32);
    keys = Take(MatrixPackFloats(n.q.size, total));
    values = Take(MatrixPackFloats(gradient ? n.v.size : total, gradient ? total : n.v.size));
    scores = Take(rows * row);
    gradients = Take(gradient ? rows * row : 0);
    cap_derivatives = Take(gradient && n.softcap > 0 ? rows * row : 0);
    keys_back = Take(gradient ? MatrixPackFloats(total, n.q.size) : 0);
    queries = Take(gradient ? MatrixPackFloats(rows, n.q.size) : 0);
    outputs = Take(gradient ? MatrixPackFloats(rows, n.v.size) : 0);
    words = Take(drops ? RandomWordsRoom(total) : 0);
    const bool half = Is16Bit(n.dtype);
    wide = Take(half ? std::max(total, rows) * std::max(n.q.size, n.v.size) : 0);
    wide_q = Take(half && gradient ? rows * n.q.size : 0);
    wide_dy = Take(half && gradient ? rows * n.v.size : 0);
    wide_dk = Take(half && gradient ? total * n.q.size : 0);
    wide_dv = Take(half && gradient ? total * n.v.size : 0);
  }

 private:
  int64_t Take(int64_t count) {
    const int64_t at = floats;
    floats += AlignUp(count, kAlignmentBytes / static_cast<int64_t>(sizeof(float)));
    return at;
  }
};

class AttentionKernel : public Kernel {
 protected:
  explicit AttentionKernel(const KernelCall& call)
      : n_(call),
        call_(call),
        layout_(n_, IsGradient(call), Drops(call)),
        drops_(Drops(call)),
        source_(call, SeedOf(call)),
        ratio_(static_cast<float>(call.attributes.Float("ratio", 0))),
        kept_scale_(static_cast<float>(1 / (1 - call.attributes.Float("ratio", 0)))) {}

  // Elements from one row of scores to the next.
  int64_t row() const { return AlignUp(n_.k.length, 32); }

  // The keys that query i sees by its position, regardless of the mask.
  Range Visible(const int64_t* lengths, int64_t b, int64_t i) const {
    int64_t position = i, end = n_.k.length;
    if (lengths != nullptr) {
      end = std::min(end, lengths[b]);
      position = i + lengths[b] - n_.q.length;
    }
    if (n_.causal) end = std::min(end, position + 1);
    if (n_.right >= 0) end = std::min(end, position + n_.right + 1);
    const int64_t begin = n_.left >= 0 ? std::max<int64_t>(position - n_.left, 0) : 0;
    return {std::min(begin, std::max<int64_t>(end, 0)), std::max<int64_t>(end, 0)};
  }

  // The union over the queries of a tile, extended to start at a panel of the packed keys.
  Range VisibleOfTile(const int64_t* lengths, int64_t b, int64_t i, int64_t rows) const {
    Range all{n_.k.length, 0};
    for (int64_t r = i; r < i + rows; ++r) {
      const Range one = Visible(lengths, b, r);
      if (one.begin == one.end) continue;
      all = {std::min(all.begin, one.begin), std::max(all.end, one.end)};
    }
    if (all.begin >= all.end) return {0, 0};
    return {all.begin / loops_.matrix_panel * loops_.matrix_panel, all.end};
  }

  // `count` vectors of `operand`, from element `begin` on, as floats: in place, or widened into `room`.
  Vectors<const float> Widen(const void* operand, const AttentionVectors& n, int64_t begin, int64_t count, float* room) const {
    if (n_.dtype == DType::kFloat32) return {static_cast<const float*>(operand) + begin, n.stride()};
    for (int64_t i = 0; i < count; ++i) LoadFloats(loops_, n_.dtype, operand, begin + i * n.stride(), n.size, room + i * n.size);
    return {room, n.size};
  }

  // Where to compute vectors of a result that start at element `begin`: in place, or in `room`, from which Narrow copies them.
  Vectors<float> Destination(void* result, const AttentionVectors& n, int64_t begin, float* room) const {
    if (n_.dtype == DType::kFloat32) return {static_cast<float*>(result) + begin, n.stride()};
    return {room, n.size};
  }
  void Narrow(const Vectors<float>& from, const AttentionVectors& n, int64_t count, void* result, int64_t begin) const {
    if (n_.dtype == DType::kFloat32) return;
    for (int64_t i = 0; i < count; ++i) StoreFloats(loops_, n_.dtype, from.at + i * from.stride, n.size, result, begin + i * n.stride());
  }

  void Pack(const float* b, int64_t k, int64_t n, int64_t b_row, int64_t b_col, float* packed) const {
    MatrixArgs args{};
    args.k = k;
    args.n = n;
    args.b = b;
    args.b_row = b_row;
    args.b_col = b_col;
    loops_.pack_matrix(args, packed);
  }

  // c[rows, keys] = factor a[rows, size] packed[size, all keys].
  void MultiplyByKeys(const float* a, int64_t a_row, int64_t rows, int64_t size, const float* packed, Range keys, float factor,
                      float* c) const {
    const MatrixArgs args{.m = rows,
                          .n = keys.end - keys.begin,
                          .k = size,
                          .a = a,
                          .a_row = a_row,
                          .a_col = 1,
                          .c = c + keys.begin,
                          .c_row = row(),
                          .alpha = factor};
    loops_.multiply_packed(args, packed + keys.begin * size);
  }

  // c[rows, size] = a[rows, keys] packed[all keys, size].
  void MultiplyOverKeys(const float* a, int64_t rows, const float* packed, Range keys, int64_t size, float* c, int64_t c_row) const {
    for (int64_t column = 0; column < size; column += loops_.matrix_panel) {
      const MatrixArgs args{.m = rows,
                            .n = std::min<int64_t>(loops_.matrix_panel, size - column),
                            .k = keys.end - keys.begin,
                            .a = a + keys.begin,
                            .a_row = row(),
                            .a_col = 1,
                            .c = c + column,
                            .c_row = c_row,
                            .alpha = 1};
      loops_.multiply_packed(args, packed + column * n_.k.length + keys.begin * loops_.matrix_panel);
    }
  }

  // c[keys, size] += a[rows, keys]^T packed[rows, size].
  void AddTransposed(const float* a, int64_t rows, const float* packed, Range keys, int64_t size, float* c, int64_t c_row) const {
    const MatrixArgs args{.m = keys.end - keys.begin,
                          .n = size,
                          .k = rows,
                          .a = a + keys.begin,
                          .a_row = 1,
                          .a_col = row(),
                          .c = c + keys.begin * c_row,
                          .c_row = c_row,
                          .alpha = 1,
                          .adds = true};
    loops_.multiply_packed(args, packed);
  }

  void AddRow(const float* from, int64_t n, float* to) const {
    loops_.pointwise[static_cast<size_t>(PointwiseOp::kAdd)]({to, from, to, to, n});
  }

  // Turns the scaled scores of a tile into probabilities, zero for hidden keys. With a soft cap, writes its derivatives to `slopes` unless
  // null.
  void Probabilities(const void* const* inputs, int64_t b, int64_t h, int64_t i, int64_t rows, Range keys, float* scores,
                     float* cap_derivatives) const {
    const int64_t* lengths = HasInput(call_, kLengths) ? static_cast<const int64_t*>(inputs[kLengths]) : nullptr;
    for (int64_t r = 0; r < rows; ++r, scores += row()) {
      const Range seen = Visible(lengths, b, i + r);
      std::fill(scores + keys.begin, scores + std::clamp(seen.begin, keys.begin, keys.end), 0.0f);
      std::fill(scores + std::clamp(seen.end, keys.begin, keys.end), scores + keys.end, 0.0f);
      const int64_t count = seen.end - seen.begin;
      if (count <= 0) continue;
      float* s = scores + seen.begin;
      if (n_.softcap > 0) Cap(s, cap_derivatives == nullptr ? nullptr : cap_derivatives + r * row() + seen.begin, count);
      if (!n_.mask_strides.empty()) {
        AddMask(inputs[kMask], b, h, i + r, seen, s);
        if (s[0] == kHidden && loops_.reduce_row[static_cast<size_t>(Reduction::kMax)](s, count) == kHidden) {
          std::fill_n(s, count, 0.0f);
          continue;
        }
      }
      loops_.softmax_row(s, s, count);
    }
  }

  // Dropout of one query's probabilities.
  struct RowDropout {
    Range seen;                       // the keys that the query sees
    const uint32_t* words = nullptr;  // one per such key; null: no dropout
  };
  // The dropout of query i. Its words are in the thread's memory, and valid until the next call.
  RowDropout DropoutOf(const RandomDraws& draws, const int64_t* lengths, int64_t b, int64_t h, int64_t i, float* memory) const {
    RowDropout dropout{Visible(lengths, b, i)};
    const int64_t count = dropout.seen.end - dropout.seen.begin;
    if (!drops_ || count <= 0) return dropout;
    const int64_t first = ((b * n_.q.heads + h) * n_.q.length + i) * n_.k.length + dropout.seen.begin;
    dropout.words = draws.Words(loops_, first, count, reinterpret_cast<uint32_t*>(memory + layout_.words));
    return dropout;
  }
  // Applies dropout to a query's row of probabilities, or of their gradients.
  void Drop(const RowDropout& dropout, float* row) const {
    if (dropout.words == nullptr) return;
    float* const x = row + dropout.seen.begin;
    loops_.dropout(x, dropout.words, dropout.seen.end - dropout.seen.begin, ratio_, kept_scale_, x);
  }

  const AttentionSizes n_;
  const KernelCall call_;
  const AttentionScratchLayout layout_;
  const Loops& loops_ = BestLoops();
  const bool drops_;
  const RandomSource source_;
  const float ratio_, kept_scale_;

 private:
  void Cap(float* s, float* cap_derivatives, int64_t count) const {
    for (int64_t j = 0; j < count; ++j) s[j] /= n_.softcap;
    loops_.pointwise[static_cast<size_t>(PointwiseOp::kTanh)]({s, s, s, s, count});
    for (int64_t j = 0; j < count && cap_derivatives != nullptr; ++j) cap_derivatives[j] = 1 - s[j] * s[j];
    for (int64_t j = 0; j < count; ++j) s[j] *= n_.softcap;
  }

  void AddMask(const void* mask, int64_t b, int64_t h, int64_t i, Range seen, float* s) const {
    const int64_t at = b * n_.mask_strides[0] + h * n_.mask_strides[1] + i * n_.mask_strides[2];
    const int64_t step = n_.mask_strides[3];
    const int64_t end = std::max(seen.begin, std::min(seen.end, n_.mask_keys));
    const auto add = [&](const auto* m) {
      for (int64_t j = seen.begin; j < end; ++j) s[j - seen.begin] += static_cast<float>(m[at + j * step]);
    };
    switch (n_.mask_dtype) {
      case DType::kFloat16: add(static_cast<const Half*>(mask)); break;
      case DType::kBfloat16: add(static_cast<const Bfloat16*>(mask)); break;
      case DType::kFloat32:
        if (step == 1) {
          AddRow(static_cast<const float*>(mask) + at + seen.begin, end - seen.begin, s);
        } else {
          add(static_cast<const float*>(mask));
        }
        break;
      default: {
        const bool* m = static_cast<const bool*>(mask) + at;
        for (int64_t j = seen.begin; j < end; ++j) s[j - seen.begin] = m[j * step] ? s[j - seen.begin] : kHidden;
      }
    }
    // Keys past the end of a shorter mask are hidden.
    std::fill(s + (end - seen.begin), s + (seen.end - seen.begin), kHidden);
  }
};

}  // namespace gradloom::attention
