// The parts common to attention and its gradient: operands, scores, and the two kinds of product from which everything is computed. No
// score matrix is stored. See kernels/reference/attention.cc.
#pragma once

#include <cmath>
#include <limits>

#include "kernels/catalog/attention.h"
#include "kernels/cuda/offset_calculator.cuh"
#include "kernels/cuda/operands.cuh"
#include "kernels/cuda/philox.cuh"
#include "kernels/cuda/shared.cuh"

namespace gradloom::cuda {

using enum attention::Input;
using enum attention::Output;

// The number of queries (or keys) that a block processes together. It loops over the keys (or queries), one per thread.
template <typename A>
inline constexpr int kTile = 32 / sizeof(A);
// Vectors are staged in shared memory in slices of this many elements.
template <typename A>
inline constexpr int kSlice = 64 / sizeof(A);

template <typename A>
struct alignas(16) Tile {
  A at[kTile<A>];
};

template <typename A>
constexpr int64_t TilesOf(int64_t length) {
  return (length + kTile<A> - 1) / kTile<A>;
}

struct Range {
  int64_t first, last;
};

// A range of rows of head h of sample b.
struct HeadTile {
  int64_t b, h;
  Range rows;
};
template <typename A>
GRADLOOM_DEVICE HeadTile HeadTileOf(int64_t tile, int64_t heads, int64_t length) {
  const Quotient part = Divide(tile, TilesOf<A>(length)), head = Divide(part.quotient, heads);
  const int64_t first = part.rest * kTile<A>;
  return {head.quotient, head.rest, {first, first + kTile<A> < length ? first + kTile<A> : length}};
}

// The vectors of one head by position, past keys or values first.
template <typename T>
struct HeadRows {
  T *past, *now;
  int64_t past_length, past_stride, stride;

  // Null if the part that row j belongs to is absent.
  GRADLOOM_DEVICE T* operator()(int64_t j) const {
    if (j < past_length) return past == nullptr ? nullptr : past + j * past_stride;
    return now == nullptr ? nullptr : now + (j - past_length) * stride;
  }
};

template <typename T>
GRADLOOM_DEVICE HeadRows<T> RowsOf(T* data, const AttentionVectors& vectors, int64_t b, int64_t h) {
  return {nullptr, data + vectors.At(b, h, 0), 0, 0, vectors.stride};
}

// The vectors of K or V, or of their gradients, with those of the past.
template <typename T>
GRADLOOM_DEVICE HeadRows<T> RowsOf(T* past, const AttentionVectors& past_vectors, T* now, const AttentionVectors& vectors, int64_t b,
                                   int64_t h) {
  return {past == nullptr ? nullptr : past + past_vectors.At(b, h, 0), now == nullptr ? nullptr : now + vectors.At(b, h, 0),
          past_vectors.length, past_vectors.stride, vectors.stride};
}

// The dot products of a tile's rows of `left`, from a.first on (those from a.last on are 0), with row b.first + thread of `right` if that
// is below b.last. Vectors have `size` elements.
template <typename A, typename T>
GRADLOOM_DEVICE Tile<A> Dots(const Block& block, int64_t size, const HeadRows<const T>& left, const Range& a,
                             const HeadRows<const T>& right, const Range& b) {
  constexpr int kStride = kThreads + 1;  // the padding spreads the columns over the banks
  Tile<A>* const tile = Shared<0, Tile<A>, kSlice<A>>();
  A* const chunk = Shared<1, A, kSlice<A> * kStride>();
  Tile<A> dots = {};
  for (int64_t e0 = 0; e0 < size; e0 += kSlice<A>) {
    block.Sync();
    for (int x = block.thread(); x < kTile<A> * kSlice<A>; x += block.threads()) {
      const int row = x / kSlice<A>, e = x % kSlice<A>;
      tile[e].at[row] = a.first + row < a.last && e0 + e < size ? static_cast<A>(left(a.first + row)[e0 + e]) : A(0);
    }
    for (int x = block.thread(); x < block.threads() * kSlice<A>; x += block.threads()) {
      const int row = x / kSlice<A>, e = x % kSlice<A>;
      chunk[e * kStride + row] = b.first + row < b.last && e0 + e < size ? static_cast<A>(right(b.first + row)[e0 + e]) : A(0);
    }
    block.Sync();
    for (int e = 0; e < kSlice<A>; ++e) {
      const Tile<A> u = tile[e];
      const A v = chunk[e * kStride + block.thread()];
      for (int r = 0; r < kTile<A>; ++r) dots.at[r] += u.at[r] * v;
    }
  }
  return dots;
}

// A thread's share of a weighted sum over rows: one element of the vectors, in every `parts`-th row.
struct Lane {
  int lanes, part, parts;
  int64_t e;

  // For vectors whose elements are summed from e0 on; the next elements to sum start at e0 + lanes.
  GRADLOOM_DEVICE Lane(const Block& block, int64_t size, int64_t e0)
      : lanes(LanesOf(block, size)), part(block.thread() / lanes), parts(block.threads() / lanes), e(e0 + block.thread() % lanes) {}

  GRADLOOM_DEVICE static int LanesOf(const Block& block, int64_t size) {
    return size < 1 ? 1 : size < block.threads() ? static_cast<int>(size) : block.threads();
  }
  GRADLOOM_DEVICE bool Leads(int64_t size) const { return part == 0 && e < size; }
};

// sum[r] += the sum over this thread's rows of weights[row - of.first].at[r] * row. Terms of weight 0 are skipped, as in the reference, so
// that they hide infinite elements.
template <typename A, typename T>
GRADLOOM_DEVICE void AddWeighted(const Lane& lane, const Tile<A>* weights, const HeadRows<const T>& rows, const Range& of, int64_t size,
                                 Tile<A>& sum) {
  if (lane.part >= lane.parts || lane.e >= size) return;
  for (int64_t row = of.first + lane.part; row < of.last; row += lane.parts) {
    const A value = static_cast<A>(rows(row)[lane.e]);
    const Tile<A> weight = weights[row - of.first];
    for (int r = 0; r < kTile<A>; ++r) {
      if (weight.at[r] != 0) sum.at[r] += weight.at[r] * value;
    }
  }
}

// The sum over all parts, valid in the threads with part 0. `memory` has one tile per thread.
template <typename A>
GRADLOOM_DEVICE Tile<A> SumOfParts(const Block& block, const Lane& lane, Tile<A> sum, Tile<A>* memory) {
  block.Sync();
  memory[block.thread()] = sum;
  block.Sync();
  if (lane.part == 0) {
    for (int part = 1; part < lane.parts; ++part) {
      for (int r = 0; r < kTile<A>; ++r) sum.at[r] += memory[part * lane.lanes + block.thread()].at[r];
    }
  }
  block.Sync();
  return sum;
}

// For a query: the largest score and 1 / the sum of exp(score - largest), or the log-sum-exp of the scores and 1; 0 and 0 if the query sees
// no key. For the gradient, also the mean of the gradients of its probabilities, weighted by the probabilities.
template <typename A>
struct RowStatistics {
  A highest, inverse, mean;
};

// What the queries of a sample can see: keys below `length`. Query i is at key position i + shift.
struct KeyVisibility {
  int64_t length, shift;
};

template <typename T>
struct AttentionData {
  using A = Arithmetic<T>;

  const T *q = nullptr, *k = nullptr, *v = nullptr, *past_key = nullptr, *past_value = nullptr;
  const void* mask = nullptr;
  const int64_t* lengths = nullptr;
  RowStatistics<A>* statistics = nullptr;  // [batch, heads, queries], in scratch memory

  int64_t batch = 0, total = 0, group = 1;  // total: keys of past and present; group: heads of Q that share a head of K
  AttentionVectors at_q, at_k, at_v, at_past_key, at_past_value, at_y;
  A scale, softcap;
  bool causal;
  int64_t left, right;  // sizes of the window; -1: unlimited
  bool mask_is_bool = false;
  int64_t mask_extent = 0;  // number of keys it covers
  int64_t mask_strides[4] = {};
  PhiloxState philox;  // random numbers of dropout
  float ratio = 0;     // 0: no dropout
  A kept_scale = 1;
  int k_source = kK, v_source = kV;  // the operands with k and v

  explicit AttentionData(const KernelCall& call);
  void Bind(const OperandCounts& operands, const PhiloxOperands& seeds, const Launch& l);

  GRADLOOM_DEVICE KeyVisibility VisibilityOf(int64_t b) const {
    return lengths == nullptr ? KeyVisibility{total, total - at_k.length} : KeyVisibility{lengths[b], lengths[b] - at_q.length};
  }
  // A superset of the keys that any query of a range sees, and of the queries that see any key of a range.
  GRADLOOM_DEVICE Range KeysOf(const KeyVisibility& visibility, const Range& queries) const;
  GRADLOOM_DEVICE Range QueriesOf(const KeyVisibility& visibility, const Range& keys) const;

  GRADLOOM_DEVICE HeadRows<const T> Keys(int64_t b, int64_t h) const { return RowsOf(past_key, at_past_key, k, at_k, b, h / group); }
  GRADLOOM_DEVICE HeadRows<const T> Values(int64_t b, int64_t h) const { return RowsOf(past_value, at_past_value, v, at_v, b, h / group); }
  GRADLOOM_DEVICE HeadRows<const T> Queries(int64_t b, int64_t h) const { return RowsOf(q, at_q, b, h); }
  GRADLOOM_DEVICE RowStatistics<A>& StatisticsOf(int64_t b, int64_t h, int64_t i) const {
    return statistics[(b * at_q.heads + h) * at_q.length + i];
  }

  GRADLOOM_DEVICE bool Visible(const KeyVisibility& visibility, int64_t i, int64_t j) const {
    const int64_t position = i + visibility.shift;
    if (j >= visibility.length || (causal && j > position)) return false;
    return !(left >= 0 && j < position - left) && (right < 0 || j <= position + right);
  }

  // The addend of a score; minus infinity if the key is hidden.
  GRADLOOM_DEVICE A Bias(const KeyVisibility& visibility, int64_t b, int64_t h, int64_t i, int64_t j) const {
    constexpr A kHidden = -std::numeric_limits<A>::infinity();
    if (!Visible(visibility, i, j)) return kHidden;
    if (mask == nullptr) return 0;
    if (j >= mask_extent) return kHidden;
    const int64_t at = b * mask_strides[0] + h * mask_strides[1] + i * mask_strides[2] + j * mask_strides[3];
    if (mask_is_bool) return static_cast<const bool*>(mask)[at] ? A(0) : kHidden;
    return static_cast<A>(static_cast<const T*>(mask)[at]);
  }

  // The score for a dot product of query and key: scaled, after the soft cap, and with the bias.
  struct Score {
    A raw, capped, biased;
  };
  GRADLOOM_DEVICE Score ScoreOf(const KeyVisibility& visibility, int64_t b, int64_t h, int64_t i, int64_t j, A dot) const {
    Score score;
    score.raw = dot * scale;
    score.capped = softcap > 0 ? softcap * ::tanh(score.raw / softcap) : score.raw;
    score.biased = score.capped + Bias(visibility, b, h, i, j);
    return score;
  }
  GRADLOOM_DEVICE A Probability(const Score& score, const RowStatistics<A>& row) const {
    return score.biased == -std::numeric_limits<A>::infinity() ? A(0) : ::exp(score.biased - row.highest) * row.inverse;
  }

  // Applies dropout to a probability or to its gradient.
  GRADLOOM_DEVICE A Dropped(int64_t b, int64_t h, int64_t i, int64_t j, A x) const {
    if (ratio == 0) return x;
    return philox().Uniform(((b * at_q.heads + h) * at_q.length + i) * total + j) >= ratio ? x * kept_scale : A(0);
  }

  // Computes the statistics of the queries of one tile; the mean only with dy, the gradient of Y.
  GRADLOOM_DEVICE void MakeStatistics(const Block& block, int64_t tile, const T* dy) const;
};

template <typename T>
AttentionData<T>::AttentionData(const KernelCall& call) {
  const Attributes& a = call.attributes;
  const AttentionForm form = AttentionFormOf(call);
  k_source = static_cast<int>(form.source(kK));
  v_source = static_cast<int>(form.source(kV));
  batch = form.batch;
  at_q = form.q;
  at_k = form.k;
  at_v = form.v;
  at_y = form.y;
  if (Has(call.inputs, kPastKey)) {
    at_past_key = AttentionVectors(call.inputs[kPastKey].shape, 0);
    at_past_value = AttentionVectors(call.inputs[kPastValue].shape, 0);
  }
  total = at_past_key.length + at_k.length;
  group = at_q.heads / at_k.heads;
  scale = static_cast<A>(a.Float("scale", 1 / std::sqrt(static_cast<double>(at_q.size))));
  softcap = static_cast<A>(a.Float("softcap", 0));
  causal = a.Int("is_causal", 0) != 0;
  left = AttentionForm::WindowOf(a, "left");
  right = AttentionForm::WindowOf(a, "right");
  if (call.op == "AttentionDropout" || call.op == "AttentionDropoutGrad") {
    ratio = static_cast<float>(a.Float("ratio", 0));
    kept_scale = static_cast<A>(1 / (1 - a.Float("ratio", 0)));
  }
  if (Has(call.inputs, kMask)) {
    const Shape& shape = call.inputs[kMask].shape;
    mask_is_bool = call.inputs[kMask].dtype == DType::kBool;
    mask_extent = shape[shape.rank() - 1];
    const std::vector<int64_t> strides = BroadcastStrides(shape, {batch, at_q.heads, at_q.length, mask_extent});
    std::copy(strides.begin(), strides.end(), mask_strides);
  }
}

template <typename T>
void AttentionData<T>::Bind(const OperandCounts& operands, const PhiloxOperands& seeds, const Launch& l) {
  if (ratio > 0) philox = seeds.At(l);
  q = l.In<T>(kQ);
  k = l.In<T>(static_cast<size_t>(k_source));
  v = l.In<T>(static_cast<size_t>(v_source));
  mask = operands.In<void>(l, kMask);
  past_key = operands.In<T>(l, kPastKey);
  past_value = operands.In<T>(l, kPastValue);
  lengths = operands.In<int64_t>(l, kLengths);
  statistics = static_cast<RowStatistics<A>*>(l.scratch);
}

template <typename T>
GRADLOOM_DEVICE Range AttentionData<T>::KeysOf(const KeyVisibility& visibility, const Range& queries) const {
  const int64_t first_position = queries.first + visibility.shift, last_position = queries.last - 1 + visibility.shift;
  Range keys{0, visibility.length < total ? visibility.length : total};
  if (mask != nullptr && mask_extent < keys.last) keys.last = mask_extent;
  if (left >= 0 && first_position - left > 0) keys.first = first_position - left;
  if (right >= 0 && last_position + right + 1 < keys.last) keys.last = last_position + right + 1;
  if (causal && last_position + 1 < keys.last) keys.last = last_position + 1;
  return keys;
}

template <typename T>
GRADLOOM_DEVICE Range AttentionData<T>::QueriesOf(const KeyVisibility& visibility, const Range& keys) const {
  Range queries{0, at_q.length};
  if (keys.first >= visibility.length || (mask != nullptr && keys.first >= mask_extent)) return {0, 0};
  if (right >= 0 && keys.first - visibility.shift - right > 0) queries.first = keys.first - visibility.shift - right;
  if (causal && keys.first - visibility.shift > queries.first) queries.first = keys.first - visibility.shift;
  if (left >= 0 && keys.last - visibility.shift + left < queries.last) queries.last = keys.last - visibility.shift + left;
  return queries;
}

template <typename T>
GRADLOOM_DEVICE void AttentionData<T>::MakeStatistics(const Block& block, int64_t tile, const T* dy) const {
  constexpr A kNone = -std::numeric_limits<A>::infinity();
  const auto [b, h, queries] = HeadTileOf<A>(tile, at_q.heads, at_q.length);
  const KeyVisibility visibility = VisibilityOf(b);
  Range keys = KeysOf(visibility, queries);
  Tile<A> highest, sum = {}, weighted = {};
  for (int r = 0; r < kTile<A>; ++r) highest.at[r] = kNone;
  for (; keys.first < keys.last; keys.first += block.threads()) {
    const Tile<A> dots = Dots<A>(block, at_q.size, Queries(b, h), queries, Keys(b, h), keys);
    Tile<A> d_probabilities = {};
    if (dy != nullptr) d_probabilities = Dots<A>(block, at_v.size, RowsOf(dy, at_y, b, h), queries, Values(b, h), keys);
    const int64_t j = keys.first + block.thread();
    for (int r = 0; r < kTile<A>; ++r) {
      if (j >= keys.last || queries.first + r >= queries.last) continue;
      const A score = ScoreOf(visibility, b, h, queries.first + r, j, dots.at[r]).biased;
      if (score == kNone) continue;
      if (score > highest.at[r]) {
        const A factor = ::exp(highest.at[r] - score);
        sum.at[r] *= factor;
        weighted.at[r] *= factor;
        highest.at[r] = score;
      }
      const A term = ::exp(score - highest.at[r]);
      sum.at[r] += term;
      if (dy != nullptr) weighted.at[r] += term * Dropped(b, h, queries.first + r, j, d_probabilities.at[r]);
    }
  }
  for (int r = 0; r < kTile<A> && queries.first + r < queries.last; ++r) {
    const A top = block.Reduce(highest.at[r], Largest());
    const A factor = top == kNone ? A(0) : ::exp(highest.at[r] - top);
    const A all = block.Reduce(sum.at[r] * factor, Sum()), mean = block.Reduce(weighted.at[r] * factor, Sum());
    if (block.thread() != 0) continue;
    StatisticsOf(b, h, queries.first + r) = top == kNone ? RowStatistics<A>{0, 0, 0} : RowStatistics<A>{top, 1 / all, mean / all};
  }
}

// Computes the statistics of all queries.
template <typename T>
void FindStatistics(const AttentionData<T>& a, const T* dy, cudaStream_t stream) {
  ForEachRow(
      a.batch * a.at_q.heads * TilesOf<Arithmetic<T>>(a.at_q.length), stream,
      GRADLOOM_ON_DEVICE(const Block& block, int64_t tile) { a.MakeStatistics(block, tile, dy); });
}

// Defined in attention_grad.cu.
std::unique_ptr<Kernel> MakeAttentionGrad(const KernelCall& call, const KernelSite& site);

}  // namespace gradloom::cuda
