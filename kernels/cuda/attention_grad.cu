// The gradient of attention: the statistics of each query, from its scores or from what the forward pass kept; then the gradient of Q, one
// tile of queries at a time; then those of K and V, one tile of keys at a time. Each pass recomputes the scores, and no two blocks write
// the same rows.
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/lines.cuh"

namespace gradloom::cuda {
namespace {

template <typename T>
struct AttentionBackward {
  using A = Arithmetic<T>;

  AttentionData<T> a;
  const T *dy = nullptr, *dpresent_key = nullptr, *dpresent_value = nullptr;
  T *dq = nullptr, *dk = nullptr, *dv = nullptr, *dpast_key = nullptr, *dpast_value = nullptr;

  GRADLOOM_DEVICE HeadRows<const T> Upstream(int64_t b, int64_t h) const { return RowsOf(dy, a.at_y, b, h); }

  // For query i and key j: the weight of the value (the probability after dropout), and the gradients of the score with its bias and of the
  // raw score.
  struct ScoreGradient {
    A weight, biased, raw;
  };
  GRADLOOM_DEVICE ScoreGradient ScoreGradientOf(const KeyVisibility& visibility, int64_t b, int64_t h, int64_t i, int64_t j, A dot,
                                                A d_probability) const {
    const auto score = a.ScoreOf(visibility, b, h, i, j, dot);
    const RowStatistics<A> row = a.StatisticsOf(b, h, i);
    const A p = a.Probability(score, row);
    if (p == 0) return {0, 0, 0};
    const A weight = a.Dropped(b, h, i, j, p), d = p * (a.Dropped(b, h, i, j, d_probability) - row.mean);
    if (!(a.softcap > 0)) return {weight, d, d};
    const A part = score.capped / a.softcap;
    return {weight, d, d * (1 - part * part)};
  }

  GRADLOOM_DEVICE void QueryGradient(const Block& block, int64_t tile) const;
  GRADLOOM_DEVICE void KeyGradient(const Block& block, int64_t tile) const;

  // The contribution of query i and key j to the gradient of the mask.
  GRADLOOM_DEVICE A MaskTerm(int64_t b, int64_t h, int64_t i, int64_t j) const {
    const T *query = a.Queries(b, h)(i), *key = a.Keys(b, h)(j), *value = a.Values(b, h)(j), *d_out = Upstream(b, h)(i);
    A dot = 0, d_probability = 0;
    for (int64_t e = 0; e < a.at_q.size; ++e) dot += static_cast<A>(query[e]) * static_cast<A>(key[e]);
    for (int64_t e = 0; e < a.at_v.size; ++e) d_probability += static_cast<A>(d_out[e]) * static_cast<A>(value[e]);
    return ScoreGradientOf(a.VisibilityOf(b), b, h, i, j, dot, d_probability).biased;
  }
};

template <typename T>
GRADLOOM_DEVICE void AttentionBackward<T>::QueryGradient(const Block& block, int64_t tile) const {
  const HeadTile head_tile = HeadTileOf<A>(tile, a.at_q.heads, a.at_q.length);
  const int64_t b = head_tile.b, h = head_tile.h;
  const KeyVisibility visibility = a.VisibilityOf(b);
  const HeadRows<const T> all_keys = a.Keys(b, h);
  const HeadRows<T> out = RowsOf(dq, a.at_q, b, h);
  Tile<A>* const memory = Shared<2, Tile<A>, kThreads>();
  int64_t e0 = 0;
  do {
    const Lane lane(block, a.at_q.size, e0);
    Tile<A> sum = {};
    Range keys = dy == nullptr ? Range{0, 0} : a.KeysOf(visibility, head_tile.rows);
    for (; keys.first < keys.last; keys.first += block.threads()) {
      const Tile<A> dots = Dots<A>(block, a.at_q.size, a.Queries(b, h), head_tile.rows, all_keys, keys);
      const Tile<A> d_probabilities = Dots<A>(block, a.at_v.size, Upstream(b, h), head_tile.rows, a.Values(b, h), keys);
      const int64_t j = keys.first + block.thread(), end = keys.first + block.threads();
      Tile<A> weights = {};
      for (int r = 0; r < kTile<A>; ++r) {
        const int64_t i = head_tile.rows.first + r;
        if (j < keys.last && i < head_tile.rows.last)
          weights.at[r] = ScoreGradientOf(visibility, b, h, i, j, dots.at[r], d_probabilities.at[r]).raw;
      }
      memory[block.thread()] = weights;
      block.Sync();
      AddWeighted(lane, memory, all_keys, {keys.first, end < keys.last ? end : keys.last}, a.at_q.size, sum);
      block.Sync();
    }
    sum = SumOfParts(block, lane, sum, memory);
    for (int r = 0; r < kTile<A>; ++r) {
      const int64_t i = head_tile.rows.first + r;
      if (lane.Leads(a.at_q.size) && i < head_tile.rows.last) out(i)[lane.e] = static_cast<T>(sum.at[r] * a.scale);
    }
    e0 += lane.lanes;
  } while (e0 < a.at_q.size);
}

// The gradients of a tile of rows of K and V, or of their past, summed over all heads of Q that share them.
template <typename T>
GRADLOOM_DEVICE void AttentionBackward<T>::KeyGradient(const Block& block, int64_t tile) const {
  const HeadTile head_tile = HeadTileOf<A>(tile, a.at_k.heads, a.total);
  const int64_t b = head_tile.b;
  const KeyVisibility visibility = a.VisibilityOf(b);
  const HeadRows<const T> tile_keys = a.Keys(b, head_tile.h * a.group), tile_values = a.Values(b, head_tile.h * a.group);
  const HeadRows<T> key_out = RowsOf(dpast_key, a.at_past_key, dk, a.at_k, b, head_tile.h);
  const HeadRows<T> value_out = RowsOf(dpast_value, a.at_past_value, dv, a.at_v, b, head_tile.h);
  Tile<A>* const weights = Shared<2, Tile<A>, kThreads>();
  Tile<A>* const scores = Shared<3, Tile<A>, kThreads>();
  const int64_t size = a.at_k.size < a.at_v.size ? a.at_v.size : a.at_k.size;
  int64_t e0 = 0;
  do {
    const Lane lane(block, size, e0);
    Tile<A> key_sum = {}, value_sum = {};
    for (int64_t h = head_tile.h * a.group; h < (head_tile.h + 1) * a.group; ++h) {
      const HeadRows<const T> all_queries = a.Queries(b, h), upstream = Upstream(b, h);
      Range queries = dy == nullptr ? Range{0, 0} : a.QueriesOf(visibility, head_tile.rows);
      for (; queries.first < queries.last; queries.first += block.threads()) {
        const Tile<A> dots = Dots<A>(block, a.at_q.size, tile_keys, head_tile.rows, all_queries, queries);
        const Tile<A> d_probabilities = Dots<A>(block, a.at_v.size, tile_values, head_tile.rows, upstream, queries);
        const int64_t i = queries.first + block.thread(), end = queries.first + block.threads();
        Tile<A> weight = {}, score = {};
        for (int r = 0; r < kTile<A>; ++r) {
          const int64_t j = head_tile.rows.first + r;
          if (i >= queries.last || j >= head_tile.rows.last) continue;
          const ScoreGradient gradient = ScoreGradientOf(visibility, b, h, i, j, dots.at[r], d_probabilities.at[r]);
          weight.at[r] = gradient.weight;
          score.at[r] = gradient.raw;
        }
        weights[block.thread()] = weight;
        scores[block.thread()] = score;
        block.Sync();
        const Range chunk{queries.first, end < queries.last ? end : queries.last};
        AddWeighted(lane, scores, all_queries, chunk, a.at_q.size, key_sum);
        AddWeighted(lane, weights, upstream, chunk, a.at_v.size, value_sum);
        block.Sync();
      }
    }
    key_sum = SumOfParts(block, lane, key_sum, scores);
    value_sum = SumOfParts(block, lane, value_sum, weights);
    for (int r = 0; r < kTile<A>; ++r) {
      const int64_t j = head_tile.rows.first + r, row = (b * a.at_k.heads + head_tile.h) * a.total + j;
      if (j >= head_tile.rows.last) continue;
      T *const key = key_out(j), *const value = value_out(j);
      if (key != nullptr && lane.Leads(a.at_k.size)) {
        const A present = dpresent_key == nullptr ? A(0) : static_cast<A>(dpresent_key[row * a.at_k.size + lane.e]);
        key[lane.e] = static_cast<T>(present + key_sum.at[r] * a.scale);
      }
      if (value != nullptr && lane.Leads(a.at_v.size)) {
        const A present = dpresent_value == nullptr ? A(0) : static_cast<A>(dpresent_value[row * a.at_v.size + lane.e]);
        value[lane.e] = static_cast<T>(present + value_sum.at[r]);
      }
    }
    e0 += lane.lanes;
  } while (e0 < size);
}

template <typename T>
void QueryGradients(const AttentionBackward<T>& backward, cudaStream_t stream) {
  const AttentionData<T>& a = backward.a;
  ForEachRow(
      a.batch * a.at_q.heads * TilesOf<Arithmetic<T>>(a.at_q.length), stream,
      GRADLOOM_ON_DEVICE(const Block& block, int64_t tile) { backward.QueryGradient(block, tile); });
}

template <typename T>
void KeyGradients(const AttentionBackward<T>& backward, cudaStream_t stream) {
  const AttentionData<T>& a = backward.a;
  ForEachRow(
      a.batch * a.at_k.heads * TilesOf<Arithmetic<T>>(a.total), stream,
      GRADLOOM_ON_DEVICE(const Block& block, int64_t tile) { backward.KeyGradient(block, tile); });
}

// The extents of a mask, padded with leading ones, and the number of samples, heads and queries that share each of its elements.
struct MaskShape {
  int64_t extents[4] = {1, 1, 1, 1}, shared[3] = {1, 1, 1};

  MaskShape(const Shape& mask, int64_t batch, const AttentionVectors& queries) {
    for (int axis = 0; axis < mask.rank(); ++axis) extents[axis + 4 - mask.rank()] = mask[axis];
    const int64_t all[] = {batch, queries.heads, queries.length};
    for (int axis = 0; axis < 3; ++axis) shared[axis] = all[axis] / std::max<int64_t>(extents[axis], 1);
  }

  int64_t elements() const { return extents[0] * extents[1] * extents[2] * extents[3]; }
  constexpr int64_t terms() const { return shared[0] * shared[1] * shared[2]; }
};

// Term n of element i of the mask's gradient.
template <typename T>
GRADLOOM_DEVICE Arithmetic<T> MaskTerm(const AttentionBackward<T>& backward, const MaskShape& mask, int64_t i, int64_t n) {
  const Quotient key = Divide(i, mask.extents[3]), query = Divide(key.quotient, mask.extents[2]),
                 head = Divide(query.quotient, mask.extents[1]);
  const Quotient query_term = Divide(n, mask.shared[2]), head_term = Divide(query_term.quotient, mask.shared[1]);
  return backward.MaskTerm(head.quotient + head_term.quotient, head.rest + head_term.rest, query.rest + query_term.rest, key.rest);
}

// One block per element if many scores share it, else one thread. A thread recomputes the dot products of its scores, which takes 2 * size
// reads each per score.
template <typename T>
void MaskGradient(const AttentionBackward<T>& backward, const MaskShape& mask, T* dmask, cudaStream_t stream) {
  using A = Arithmetic<T>;
  const int64_t terms = backward.dy == nullptr ? 0 : mask.terms();
  if (terms < 32) {
    ForEachElement(
        mask.elements(), stream, GRADLOOM_ON_DEVICE(int64_t i) {
          A sum = 0;
          for (int64_t n = 0; n < terms; ++n) sum += MaskTerm(backward, mask, i, n);
          dmask[i] = static_cast<T>(sum);
        });
    return;
  }
  ForEachRow(
      mask.elements(), stream, GRADLOOM_ON_DEVICE(const Block& block, int64_t i) {
        A sum = 0;
        for (int64_t n = block.thread(); n < terms; n += block.threads()) sum += MaskTerm(backward, mask, i, n);
        sum = block.Reduce(sum, Sum());
        if (block.thread() == 0) dmask[i] = static_cast<T>(sum);
      });
}

// Makes the statistics of a query from what the forward pass kept. The weighted mean of the gradients of its probabilities is the dot
// product of Y and its gradient.
template <typename T>
struct KeptStatistics {
  using A = Arithmetic<T>;

  AttentionBackward<T> backward;
  const T* y;
  const A* log_sums;

  GRADLOOM_DEVICE void operator()(const Warp& warp, int64_t n) const {
    const AttentionData<T>& a = backward.a;
    const Quotient head = Divide(n, a.at_q.length), sample = Divide(head.quotient, a.at_q.heads);
    const int64_t at = a.at_y.At(sample.quotient, sample.rest, head.rest);
    A mean = 0;
    for (int64_t e = warp.thread(); e < a.at_y.size; e += warp.threads())
      mean += static_cast<A>(y[at + e]) * static_cast<A>(backward.dy[at + e]);
    mean = warp.Reduce(mean, Sum());
    if (warp.thread() != 0) return;
    const bool sees = log_sums[n] != std::numeric_limits<A>::infinity();
    a.statistics[n] = sees ? RowStatistics<A>{log_sums[n], 1, mean} : RowStatistics<A>{0, 0, 0};
  }
};

}  // namespace

// Inputs: the seven of Attention, then the gradients of Y, present_key and present_value; then Y and the log-sum-exps, or neither.
std::unique_ptr<Kernel> MakeAttentionGrad(const KernelCall& call, const KernelSite&) {
  const WantedOutputs wanted(call);
  const PhiloxOperands seeds(call, kGradSeed);
  const AttentionForm form = AttentionFormOf(call);
  const int64_t k_source = form.source(kK), v_source = form.source(kV);
  const bool has_log_sums = HasLogSums(call);
  const bool keys = wanted.Has(k_source) || wanted.Has(v_source) || wanted.Has(kPastKey) || wanted.Has(kPastValue);
  return WithFloating(call.inputs[kQ].dtype, [&]<typename T>(std::type_identity<T>) {
    const AttentionData<T> data(call);
    const MaskShape mask(call.inputs[kMask].shape, data.batch, data.at_q);
    const int64_t queries = data.batch * data.at_q.heads * data.at_q.length;
    return MakeKernel(
        [data, mask, queries, keys, wanted, has_log_sums, k_source, v_source, operands = OperandCounts(call), seeds](const Launch& l) {
          AttentionBackward<T> backward{data};
          backward.a.Bind(operands, seeds, l);
          backward.dy = l.In<T>(kGradY);
          backward.dpresent_key = l.In<T>(kGradPresentKey);
          backward.dpresent_value = l.In<T>(kGradPresentValue);
          backward.dq = wanted.Of<T>(l, kQ);
          backward.dk = wanted.Of<T>(l, k_source);
          backward.dv = wanted.Of<T>(l, v_source);
          backward.dpast_key = wanted.Of<T>(l, kPastKey);
          backward.dpast_value = wanted.Of<T>(l, kPastValue);
          if (backward.dy != nullptr && has_log_sums) {
            ForEachRowByWarp(queries, l.stream, KeptStatistics<T>{backward, l.In<T>(kKeptY), l.In<Arithmetic<T>>(kKeptLogSums)});
          } else if (backward.dy != nullptr) {
            FindStatistics(backward.a, backward.dy, l.stream);
          }
          if (wanted.Has(kQ)) QueryGradients(backward, l.stream);
          if (keys) KeyGradients(backward, l.stream);
          if (wanted.Has(kMask)) MaskGradient(backward, mask, wanted.Of<T>(l, kMask), l.stream);
        });
  });
}

}  // namespace gradloom::cuda
