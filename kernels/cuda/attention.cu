// Attention in two passes over the keys: one for each query's largest score and its sum of exponentials, one for the weighted values. Both
// compute the scores, so there are three products instead of two.
#include "kernels/cuda/attention.cuh"

namespace gradloom::cuda {
namespace {

template <typename T>
struct AttentionForward {
  using A = Arithmetic<T>;

  AttentionData<T> a;
  T* y;
  T* scores;     // [batch, heads, queries, keys], or null
  int64_t mode;  // attribute qk_matmul_output_mode

  // The probabilities for this thread's key. Also writes the requested scores, if `first`.
  GRADLOOM_DEVICE Tile<A> Weights(const Block& block, const HeadTile& head_tile, const KeyVisibility& visibility, const Range& keys,
                                  bool first) const {
    const Tile<A> dots =
        Dots<A>(block, a.at_q.size, a.Queries(head_tile.b, head_tile.h), head_tile.rows, a.Keys(head_tile.b, head_tile.h), keys);
    const int64_t j = keys.first + block.thread();
    Tile<A> weights = {};
    for (int r = 0; r < kTile<A>; ++r) {
      const int64_t i = head_tile.rows.first + r;
      if (j >= keys.last || i >= head_tile.rows.last) continue;
      const auto score = a.ScoreOf(visibility, head_tile.b, head_tile.h, i, j, dots.at[r]);
      const A probability = a.Probability(score, a.StatisticsOf(head_tile.b, head_tile.h, i));
      weights.at[r] = a.Dropped(head_tile.b, head_tile.h, i, j, probability);
      if (scores == nullptr || !first) continue;
      const A shown = mode == 0 ? score.raw : mode == 1 ? score.capped : mode == 2 ? score.biased : probability;
      scores[((head_tile.b * a.at_q.heads + head_tile.h) * a.at_q.length + i) * a.total + j] = static_cast<T>(shown);
    }
    return weights;
  }

  GRADLOOM_DEVICE void operator()(const Block& block, int64_t tile) const {
    const HeadTile head_tile = HeadTileOf<A>(tile, a.at_q.heads, a.at_q.length);
    const KeyVisibility visibility = a.VisibilityOf(head_tile.b);
    const HeadRows<const T> values = a.Values(head_tile.b, head_tile.h);
    const HeadRows<T> out = RowsOf(y, a.at_y, head_tile.b, head_tile.h);
    Tile<A>* const memory = Shared<2, Tile<A>, kThreads>();
    // Vectors with more elements than a block has threads are summed in several rounds.
    int64_t e0 = 0;
    do {
      const Lane lane(block, a.at_v.size, e0);
      Tile<A> sum = {};
      Range keys = scores == nullptr ? a.KeysOf(visibility, head_tile.rows) : Range{0, a.total};
      for (; keys.first < keys.last; keys.first += block.threads()) {
        const Tile<A> weights = Weights(block, head_tile, visibility, keys, e0 == 0);
        memory[block.thread()] = weights;
        block.Sync();
        const int64_t end = keys.first + block.threads();
        AddWeighted(lane, memory, values, {keys.first, end < keys.last ? end : keys.last}, a.at_v.size, sum);
        block.Sync();
      }
      sum = SumOfParts(block, lane, sum, memory);
      for (int r = 0; r < kTile<A>; ++r) {
        const int64_t i = head_tile.rows.first + r;
        if (lane.Leads(a.at_v.size) && i < head_tile.rows.last) out(i)[lane.e] = static_cast<T>(sum.at[r]);
      }
      e0 += lane.lanes;
    } while (e0 < a.at_v.size);
  }
};

template <typename T>
void RunForward(const AttentionForward<T>& forward, cudaStream_t stream) {
  const AttentionData<T>& a = forward.a;
  FindStatistics(a, static_cast<const T*>(nullptr), stream);
  ForEachRow(
      a.batch * a.at_q.heads * TilesOf<Arithmetic<T>>(a.at_q.length), stream,
      GRADLOOM_ON_DEVICE(const Block& block, int64_t tile) { forward(block, tile); });
}

// Writes the log-sum-exp of each query's scores; infinity if it sees no key.
template <typename T>
void WriteLogSums(const AttentionData<T>& a, Arithmetic<T>* log_sums, cudaStream_t stream) {
  using A = Arithmetic<T>;
  ForEachElement(
      a.batch * a.at_q.heads * a.at_q.length, stream, GRADLOOM_ON_DEVICE(int64_t n) {
        const RowStatistics<A> row = a.statistics[n];
        log_sums[n] = row.inverse == 0 ? std::numeric_limits<A>::infinity() : row.highest - ::log(row.inverse);
      });
}

// Concatenates past and present keys or values to one tensor [batch, heads, keys, size].
template <typename T>
void Join(const AttentionData<T>& a, bool keys, int64_t size, T* out, cudaStream_t stream) {
  if (out == nullptr) return;
  ForEachElement(
      a.batch * a.at_k.heads * a.total * size, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        const Quotient row = Divide(i, size), head = Divide(row.quotient, a.total), sample = Divide(head.quotient, a.at_k.heads);
        const int64_t b = sample.quotient, h = sample.rest * a.group;
        out[i] = (keys ? a.Keys(b, h) : a.Values(b, h))(head.rest)[row.rest];
      });
}

std::unique_ptr<Kernel> MakeAttention(const KernelCall& call, const KernelSite&) {
  const int64_t mode = call.attributes.Int("qk_matmul_output_mode", 0);
  return WithFloating(call.inputs[kQ].dtype, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([mode, returns_log_sums = ReturnsLogSums(call), operands = OperandCounts(call), seeds = PhiloxOperands(call, kSeed),
                       a = AttentionData<T>(call)](const Launch& l) mutable {
      a.Bind(operands, seeds, l);
      RunForward(AttentionForward<T>{a, l.Out<T>(0), operands.Out<T>(l, 3), mode}, l.stream);
      if (returns_log_sums) WriteLogSums(a, l.Out<Arithmetic<T>>(kLogSums), l.stream);
      Join(a, true, a.at_k.size, operands.Out<T>(l, 1), l.stream);
      Join(a, false, a.at_v.size, operands.Out<T>(l, 2), l.stream);
    });
  });
}

constexpr CudaKernel kAttentionKernels[] = {
    {"cuda.Attention", MakeAttention},
    {"cuda.gradloom.Attention", MakeAttention},
    {"cuda.gradloom.AttentionTraining", MakeAttention},
    {"cuda.gradloom.AttentionGrad", MakeAttentionGrad},
    {"cuda.gradloom.AttentionDropout", MakeAttention},
    {"cuda.gradloom.AttentionDropoutGrad", MakeAttentionGrad},
};

}  // namespace

std::span<const CudaKernel> AttentionKernels() { return kAttentionKernels; }

}  // namespace gradloom::cuda
