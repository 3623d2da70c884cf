// The parts common to attention and its gradient, whatever computes the products: tiles of queries with their scores and probabilities.
// Dropout draws random numbers only for the keys that a query sees.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <vector>

#include "kernels/catalog/attention.h"
#include "kernels/catalog/pointwise.h"
#include "kernels/cpu/convert.h"
#include "kernels/cpu/isa/loops.h"
#include "kernels/cpu/operands.h"
#include "kernels/cpu/random_source.h"
#include "kernels/reference/operands.h"
#include "kernels/reference/wanted.h"
#include "runtime/base/checked.h"
#include "runtime/base/half.h"

namespace gradloom::attention {

inline bool IsGradient(const KernelCall& call) { return call.op == "AttentionGrad" || call.op == "AttentionDropoutGrad"; }
inline bool Drops(const KernelCall& call) { return call.op == "AttentionDropout" || call.op == "AttentionDropoutGrad"; }

// The index of the seed among the operands of a call with dropout.
inline size_t SeedOf(const KernelCall& call) { return IsGradient(call) ? kGradSeed : kSeed; }

constexpr float kHidden = -std::numeric_limits<float>::infinity();

// Queries per tile: few enough that the scores stay in the L2 cache, but enough for efficient products.
inline int64_t TileRows(int64_t keys) { return std::clamp<int64_t>((1 << 16) / std::max<int64_t>(keys, 1), 12, 96); }

// The parameters of a call.
struct AttentionSizes : AttentionForm {
  float scale, softcap;
  bool causal;
  int64_t left, right;
  std::vector<int64_t> mask_strides;  // for batch, head, query and key; empty: no mask
  int64_t mask_keys = 0;
  DType dtype;  // of all operands except mask and lengths
  DType mask_dtype = DType::kFloat32;

  explicit AttentionSizes(const KernelCall& call) : AttentionForm(AttentionFormOf(call)) {
    const Attributes& a = call.attributes;
    dtype = call.inputs[kQ].dtype;
    scale = static_cast<float>(a.Float("scale", 1 / std::sqrt(static_cast<double>(q.size))));
    softcap = static_cast<float>(a.Float("softcap", 0));
    causal = a.Int("is_causal", 0) != 0;
    left = AttentionForm::WindowOf(a, "left");
    right = AttentionForm::WindowOf(a, "right");
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

class AttentionKernel : public Kernel {
 protected:
  explicit AttentionKernel(const KernelCall& call)
      : n_(call),
        call_(call),
        drops_(Drops(call)),
        source_(call, SeedOf(call)),
        ratio_(static_cast<float>(call.attributes.Float("ratio", 0))),
        kept_scale_(static_cast<float>(1 / (1 - call.attributes.Float("ratio", 0)))) {}

  static constexpr int64_t kVector = 16;  // elements of the widest vectors; divides row()

  // The operand with the vectors of Q, K or V.
  const void* SourceOf(const void* const* inputs, Input i) const { return inputs[n_.source(i)]; }

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

  void AddRow(const float* from, int64_t n, float* to) const {
    loops_.pointwise[static_cast<size_t>(PointwiseOp::kAdd)]({to, from, to, to, n});
  }

  // Turns the scaled scores of a tile into probabilities, zero for hidden keys. With a soft cap, writes its derivatives to
  // `cap_derivatives` unless null.
  void Probabilities(const void* const* inputs, int64_t b, int64_t h, int64_t i, int64_t rows, Range keys, float* scores,
                     float* cap_derivatives) const {
    const int64_t* lengths = HasInput(call_, kLengths) ? static_cast<const int64_t*>(inputs[kLengths]) : nullptr;
    for (int64_t r = 0; r < rows; ++r, scores += row()) {
      const Range seen = Visible(lengths, b, i + r);
      // Softmax is faster for whole vectors, in which hidden keys are minus infinity.
      const Range whole{std::max(seen.begin / kVector * kVector, keys.begin), AlignUp(seen.end, kVector)};
      const int64_t count = seen.end - seen.begin;
      if (count <= 0) {
        std::fill(scores + keys.begin, scores + keys.end, 0.0f);
        continue;
      }
      std::fill(scores + keys.begin, scores + whole.begin, 0.0f);
      std::fill(scores + whole.begin, scores + seen.begin, kHidden);
      std::fill(scores + seen.end, scores + whole.end, kHidden);
      std::fill(scores + whole.end, scores + std::max(whole.end, keys.end), 0.0f);
      float* s = scores + seen.begin;
      if (n_.softcap > 0) Cap(s, cap_derivatives == nullptr ? nullptr : cap_derivatives + r * row() + seen.begin, count);
      if (!n_.mask_strides.empty()) {
        AddMask(inputs[kMask], b, h, i + r, seen, s);
        if (s[0] == kHidden && loops_.reduce_row[static_cast<size_t>(Reduction::kMax)](s, count) == kHidden) {
          std::fill(scores + whole.begin, scores + whole.end, 0.0f);
          continue;
        }
      }
      loops_.softmax_row(scores + whole.begin, scores + whole.begin, whole.end - whole.begin);
    }
  }

  // Dropout of one query's probabilities.
  struct RowDropout {
    Range seen;                       // the keys that the query sees
    const uint32_t* words = nullptr;  // one per such key; null: no dropout
  };
  // The dropout of query i. Its words are written to `words`.
  RowDropout DropoutOf(const RandomDraws& draws, const int64_t* lengths, int64_t b, int64_t h, int64_t i, uint32_t* words) const {
    RowDropout dropout{Visible(lengths, b, i)};
    const int64_t count = dropout.seen.end - dropout.seen.begin;
    if (!drops_ || count <= 0) return dropout;
    const int64_t first = ((b * n_.q.heads + h) * n_.q.length + i) * n_.k.length + dropout.seen.begin;
    dropout.words = draws.Words(loops_, first, count, words);
    return dropout;
  }
  // Applies dropout to a query's row of probabilities, or of their gradients.
  void Drop(const RowDropout& dropout, float* row) const {
    if (dropout.words == nullptr) return;
    float* const x = row + dropout.seen.begin;
    loops_.dropout(x, dropout.words, dropout.seen.end - dropout.seen.begin, ratio_, kept_scale_, x);
  }

  // From the probabilities `p` of a tile and the gradients `ds` of the probabilities after dropout: `ds` becomes the gradients of the
  // unscaled scores, and dropout is applied to `p`. Adds the gradient of the mask to `mask_gradient` unless null. Both hold zeros for
  // hidden keys.
  void ScoreGradients(const RandomDraws& draws, const int64_t* lengths, int64_t b, int64_t h, int64_t i, int64_t rows, Range keys,
                      const float* cap_derivatives, float* mask_gradient, uint32_t* words, float* p, float* ds) const {
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t at = r * row() + keys.begin, count = keys.end - keys.begin;
      const RowDropout dropout = DropoutOf(draws, lengths, b, h, i + r, words);
      Drop(dropout, ds + r * row());
      loops_.softmax_grad_row(p + at, ds + at, count, mask_gradient == nullptr ? n_.scale : 1);
      if (mask_gradient != nullptr) {
        AddToMask(ds + r * row(), b, h, i + r, keys, mask_gradient);
        for (int64_t j = at; j < at + count; ++j) ds[j] *= n_.scale;
      }
      // For hidden keys the gradient is 0 already, and the derivative has not been written.
      for (int64_t j = at; j < at + count && cap_derivatives != nullptr; ++j) ds[j] = p[j] == 0 ? 0 : ds[j] * cap_derivatives[j];
      Drop(dropout, p + r * row());
    }
  }

  const AttentionSizes n_;
  const KernelCall call_;
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

  // Adds the gradients of a query's scores, which are 0 for hidden keys, to the gradient of the mask.
  void AddToMask(const float* ds, int64_t b, int64_t h, int64_t i, Range keys, float* gradient) const {
    float* const to = gradient + b * n_.mask_strides[0] + h * n_.mask_strides[1] + i * n_.mask_strides[2];
    const int64_t step = n_.mask_strides[3], end = std::min(keys.end, n_.mask_keys);
    if (step == 1) return AddRow(ds + keys.begin, end - keys.begin, to + keys.begin);
    for (int64_t j = keys.begin; j < end; ++j) to[j * step] += ds[j];
  }
};

// The index of the output with the gradient of the vectors of `i`; -1: not wanted.
inline int64_t GradientOutput(const KernelCall& call, const AttentionForm& form, Input i) {
  return GradientOutputIndex(call, form.source(i));
}

// Why a kernel cannot compute a call with operands of the types that `serves` accepts, or "".
std::string RejectsAttention(const KernelCall& call, bool (*serves)(DType));

}  // namespace gradloom::attention
