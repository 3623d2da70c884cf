// Attention and its gradient as matrix products by cuBLASLt. The scores for a part of the heads and a block of queries are one product in
// scratch memory; one kernel turns them into weights, which are multiplied by the values. In the gradient, the scores and the gradients of
// the weights are products; one kernel computes the weights and the gradients of the scores from them, and three products give the
// gradients of Q, K and V. Sums over blocks are accumulated by successive products, and sums over heads that share keys when results are
// copied, so the order of additions is fixed.
#include <limits>
#include <memory>
#include <vector>

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/exp_sum.cuh"
#include "kernels/cuda/lines.cuh"
#include "kernels/cuda/part_copy.cuh"
#include "kernels/cuda/prepared_product.h"
#include "kernels/cuda/rows/attention_products.h"

namespace gradloom::cuda {
namespace {

// The elements that a thread processes at a time. Rows are padded to a multiple of four elements.
template <typename N>
using Vector4 = AlignedVector<N, 4>;

// Elements i to i + 3 of a row with `elements` valid elements; zeros in place of the padding, which is uninitialized.
GRADLOOM_DEVICE Vector4<float> Load(const float* data, int64_t i, int64_t elements) {
  if (i + 4 <= elements) return *reinterpret_cast<const Vector4<float>*>(data + i);
  Vector4<float> vector = {};
  for (int64_t r = 0; i + r < elements; ++r) vector.at[r] = data[i + r];
  return vector;
}
template <typename N>
GRADLOOM_DEVICE void Store(const Vector4<N>& vector, N* data, int64_t i) {
  *reinterpret_cast<Vector4<N>*>(data + i) = vector;
}

// The scores of a call that are in scratch memory.
struct ScoreBlock {
  int64_t first_sample, first_head, heads;
  QueryBlock of;
  int64_t row, matrix;

  // A row of scores: a query of a head, and the offset of the row.
  struct Row {
    int64_t b, h, i, start;
  };
  GRADLOOM_DEVICE Row RowAt(int64_t n) const {
    const Quotient query = Divide(n, of.queries), head = Divide(query.quotient, heads);
    return {first_sample + head.quotient, first_head + head.rest, of.first_query + query.rest, query.quotient * matrix + query.rest * row};
  }
};

// One row of scores.
template <typename T>
struct ScoreRow {
  const AttentionData<T>& a;
  const ScoreBlock& block;
  const ScoreBlock::Row& row;
  KeyVisibility visibility;
  PhiloxGenerator generator;

  GRADLOOM_DEVICE ScoreRow(const AttentionData<T>& data, const ScoreBlock& scores, const ScoreBlock::Row& at)
      : a(data),
        block(scores),
        row(at),
        visibility(data.VisibilityOf(at.b)),
        generator(data.ratio > 0 ? data.philox() : PhiloxGenerator(PhiloxKey{}, BatchSlice{})) {}

  GRADLOOM_DEVICE typename AttentionData<T>::Score At(int64_t j, float dot) const {
    return a.ScoreOf(visibility, row.b, row.h, row.i, block.of.first_key + j, dot);
  }
  // Like AttentionData::Dropped, but consecutive elements share a counter block.
  GRADLOOM_DEVICE float Dropped(int64_t j, float x) {
    if (a.ratio == 0) return x;
    const int64_t index = ((row.b * a.at_q.heads + row.h) * a.at_q.length + row.i) * a.total + block.of.first_key + j;
    return generator.Uniform(index) >= a.ratio ? x * a.kept_scale : 0;
  }
};

// Computes weights from scores.
template <typename T>
struct SoftmaxScores {
  AttentionData<T> a;
  ScoreBlock block;
  const float* scores;
  T* weights;  // if T is float, may be the scores

  template <typename Group>
  GRADLOOM_DEVICE void operator()(const Group& group, int64_t n) const {
    const ScoreBlock::Row at = block.RowAt(n);
    ScoreRow<T> row(a, block, at);
    const int64_t keys = block.of.keys, first = 4 * group.thread(), step = 4 * group.threads();
    ExpSum<float> all;
    for (int64_t j = first; j < keys; j += step) {
      const Vector4<float> vector = Load(scores + at.start, j, keys);
      for (int r = 0; r < 4; ++r) {
        if (j + r < keys) all.Add(row.At(j + r, vector.at[r]).biased);
      }
    }
    all = group.Reduce(all, JoinExpSums{});
    const bool sees = all.largest != -std::numeric_limits<float>::infinity();
    const RowStatistics<float> statistics = sees ? RowStatistics<float>{all.largest, 1 / all.Divisor(), 0} : RowStatistics<float>{0, 0, 0};
    for (int64_t j = first; j < keys; j += step) {
      const Vector4<float> vector = Load(scores + at.start, j, keys);
      Vector4<T> made;
      for (int r = 0; r < 4; ++r) {
        float weight = 0;
        if (j + r < keys) weight = row.Dropped(j + r, a.Probability(row.At(j + r, vector.at[r]), statistics));
        made.at[r] = static_cast<T>(weight);
      }
      Store(made, weights + at.start, j);
    }
  }
};

// The largest of several scores, the sum of exp(score - largest), and the same sum with each term multiplied by a number. The
// caller must skip hidden scores, which are minus infinity.
struct WeightedExpSum {
  float largest = -std::numeric_limits<float>::infinity(), sum = 0, weighted = 0;

  GRADLOOM_DEVICE void Add(float score, float number) {
    if (score > largest) {
      const float factor = ::exp(largest - score);
      sum *= factor;
      weighted *= factor;
      largest = score;
    }
    const float term = ::exp(score - largest);
    sum += term;
    weighted += term * number;
  }
};

struct JoinWeightedExpSums {
  GRADLOOM_DEVICE WeightedExpSum operator()(const WeightedExpSum& a, const WeightedExpSum& b) const {
    const float largest = a.largest > b.largest ? a.largest : b.largest;
    const float of_a = a.largest == largest ? 1 : ::exp(a.largest - largest), of_b = b.largest == largest ? 1 : ::exp(b.largest - largest);
    return {largest, a.sum * of_a + b.sum * of_b, a.weighted * of_a + b.weighted * of_b};
  }
};

// Computes the weights, and the gradients of the products q k^T without the scale, from the scores and the gradients of the weights.
template <typename T>
struct ScoreGradients {
  AttentionData<T> a;
  ScoreBlock block;
  const float *scores, *d_weights;
  T *weights, *d_scores;  // if T is float, may be scores and d_weights

  template <typename Group>
  GRADLOOM_DEVICE void operator()(const Group& group, int64_t n) const {
    constexpr float kHidden = -std::numeric_limits<float>::infinity();
    const ScoreBlock::Row at = block.RowAt(n);
    ScoreRow<T> row(a, block, at);
    const int64_t keys = block.of.keys, first = 4 * group.thread(), step = 4 * group.threads();
    WeightedExpSum all;
    for (int64_t j = first; j < keys; j += step) {
      const Vector4<float> vector = Load(scores + at.start, j, keys), d_weight = Load(d_weights + at.start, j, keys);
      for (int r = 0; r < 4; ++r) {
        if (j + r >= keys) continue;
        const float score = row.At(j + r, vector.at[r]).biased;
        if (score != kHidden) all.Add(score, row.Dropped(j + r, d_weight.at[r]));
      }
    }
    all = group.Reduce(all, JoinWeightedExpSums{});
    const RowStatistics<float> statistics =
        all.largest == kHidden ? RowStatistics<float>{0, 0, 0} : RowStatistics<float>{all.largest, 1 / all.sum, all.weighted / all.sum};
    for (int64_t j = first; j < keys; j += step) {
      const Vector4<float> vector = Load(scores + at.start, j, keys), d_weight = Load(d_weights + at.start, j, keys);
      Vector4<T> weight, made;
      for (int r = 0; r < 4; ++r) {
        const auto both = j + r < keys ? ScoreGradientOf(row, j + r, vector.at[r], d_weight.at[r], statistics) : ScoreGradient{0, 0};
        weight.at[r] = static_cast<T>(both.weight);
        made.at[r] = static_cast<T>(both.d_score);
      }
      Store(weight, weights + at.start, j);
      Store(made, d_scores + at.start, j);
    }
  }

 private:
  struct ScoreGradient {
    float weight, d_score;
  };
  GRADLOOM_DEVICE ScoreGradient ScoreGradientOf(ScoreRow<T>& row, int64_t j, float dot, float d_weight,
                                                const RowStatistics<float>& statistics) const {
    const auto score = row.At(j, dot);
    const float p = a.Probability(score, statistics);
    if (p == 0) return {0, 0};
    const float d_score = p * (row.Dropped(j, d_weight) - statistics.mean), part = a.softcap > 0 ? score.capped / a.softcap : 0;
    return {row.Dropped(j, p), d_score * (1 - part * part)};
  }
};

// Everything that does not change between runs.
struct ProductsPlan {
  struct Block {
    QueryBlock of;
    PreparedProduct scores, result, d_weights, q_gradient, k_gradient, v_gradient;
  };

  AttentionProducts n;
  AttentionScratchLayout at;
  OperandCounts operands;
  WantedOutputs wanted;
  AttentionForm::Packing packing;
  int64_t k_source, v_source;  // the operands with K and V
  std::vector<Block> blocks;

  ProductsPlan(const KernelCall& call, const KernelSite& site)
      : n(*AttentionProductsOf(call)),
        at(n),
        operands(call),
        wanted(call),
        packing(AttentionForm::PackingOf(call.attributes)),
        k_source(AttentionFormOf(call).source(kK)),
        v_source(AttentionFormOf(call).source(kV)) {
    const auto prepared = [&](bool needed, const BlasProduct& product) {
      return PreparedProduct(needed ? product : BlasProduct(), call, site);
    };
    for (const QueryBlock& of : n.blocks) {
      blocks.push_back({of, prepared(true, n.Scores(of)), prepared(!n.gradient, n.Result(of)), prepared(n.gradient, n.WeightGradient(of)),
                        prepared(wanted.Has(kQ), n.QGradient(of)), prepared(wanted.Has(k_source), n.KGradient(of)),
                        prepared(wanted.Has(v_source), n.VGradient(of))});
    }
  }
};

// A part of the heads, in one run.
template <typename T>
struct Part {
  const ProductsPlan& plan;
  const Launch& launch;
  const AttentionData<T>& a;
  int64_t sample, kv_head;

  template <typename U>
  U* Scratch(int64_t bytes) const {
    return reinterpret_cast<U*>(static_cast<char*>(launch.scratch) + bytes);
  }

  // A pointer into a tensor of the whole call, to the first sample and head of this part.
  template <typename U>
  U* Of(U* data, const DnnTensor& tensor) const {
    const int64_t head = kv_head * (tensor.dims[1] / plan.n.k.dims[1]);
    return data == nullptr ? nullptr : data + tensor.first + sample * tensor.strides[0] + head * tensor.strides[1];
  }

  // The operand of a product: in place, or its packed copy.
  const T* Operand(const T* data, const DnnTensor& tensor, int64_t copy) const;
  // The address for a product's result: in place, or in scratch memory, from which StoreCopy copies it.
  T* Result(T* data, const DnnTensor& tensor, int64_t copy) const { return plan.n.packed ? Scratch<T>(copy) : Of(data, tensor); }

  ScoreBlock Block(const QueryBlock& of) const { return {sample, kv_head * plan.n.group(), plan.n.heads(), of, plan.n.row, plan.n.matrix}; }

  // Runs a product whose operands start at a, b and d.
  template <typename U, typename V, typename W>
  void Multiply(const PreparedProduct& product, const U* a, const V* b, W* d) const {
    product.Run(a, b, d, Scratch<void>(plan.at.workspace), launch.stream);
  }
};

// Whether all vectors of a tensor consist of four elements at a time, which are aligned to four elements.
bool IsInFours(const DnnTensor& tensor) {
  return (tensor.dims[3] | tensor.first | tensor.strides[0] | tensor.strides[1] | tensor.strides[2]) % 4 == 0;
}

template <typename T>
const T* Part<T>::Operand(const T* data, const DnnTensor& tensor, int64_t copy) const {
  const AttentionProducts& n = plan.n;
  const T* const from = Of(data, tensor);
  if (!n.packed) return from;
  const DnnTensor part = n.part_of(tensor);
  const int64_t shared = part.dims[1] * n.k.dims[1] / (n.kv_heads * tensor.dims[1]);
  if (IsInFours(tensor))
    Pack(PartCopy<4>(part, tensor, shared), from, Scratch<T>(copy), launch.stream);
  else
    Pack(PartCopy<1>(part, tensor, shared), from, Scratch<T>(copy), launch.stream);
  return Scratch<T>(copy);
}

// Copies a result of type U from scratch memory to the tensor.
template <typename U, typename T>
void StoreCopy(const Part<T>& part, int64_t copy, const DnnTensor& tensor, T* data) {
  const AttentionProducts& n = part.plan.n;
  const DnnTensor packed = n.part_of(tensor);
  const int64_t shared = packed.dims[1] * n.k.dims[1] / (n.kv_heads * tensor.dims[1]);
  const U* const from = part.template Scratch<U>(copy);
  T* const to = part.Of(data, tensor);
  if (IsInFours(tensor))
    Unpack(PartCopy<4>(packed, tensor, shared), from, to, part.launch.stream);
  else
    Unpack(PartCopy<1>(packed, tensor, shared), from, to, part.launch.stream);
}

// Calls f(part) for all parts, one after the other.
template <typename T, typename F>
void ForEachPart(const ProductsPlan& plan, const Launch& l, const AttentionData<T>& a, F f) {
  const AttentionProducts& n = plan.n;
  for (int64_t sample = 0; sample < n.q.dims[0]; sample += n.samples) {
    for (int64_t head = 0; head < n.k.dims[1]; head += n.kv_heads) f(Part<T>{plan, l, a, sample, head});
  }
}

// Calls f for each row of scores of a block, with a group of threads that suits the number of vectors in it.
template <typename T, typename F>
void ForEachScoreRow(const Part<T>& part, const QueryBlock& block, const F& f) {
  ForEachRowOf(part.plan.n.matrices() * block.queries, (block.keys + 3) / 4, 1, part.launch.stream, f);
}

template <typename T>
void Attend(const Part<T>& part, T* y) {
  const AttentionProducts& n = part.plan.n;
  const AttentionScratchLayout& at = part.plan.at;
  const T *const q = part.Operand(part.a.q, n.q, at.q), *const k = part.Operand(part.a.k, n.k, at.k),
                 *const v = part.Operand(part.a.v, n.v, at.v);
  T* const o = part.Result(y, n.o, at.o);
  const int64_t q_step = n.operand(n.q).strides[2], k_step = n.operand(n.k).strides[2], v_step = n.operand(n.v).strides[2],
                o_step = n.operand(n.o).strides[2];
  float* const scores = part.template Scratch<float>(at.scores);
  T* const weights = part.template Scratch<T>(at.weights);
  for (const ProductsPlan::Block& block : part.plan.blocks) {
    const QueryBlock& of = block.of;
    part.Multiply(block.scores, q + of.first_query * q_step, k + of.first_key * k_step, scores);
    ForEachScoreRow(part, of, SoftmaxScores<T>{part.a, part.Block(of), scores, weights});
    part.Multiply(block.result, weights, v + of.first_key * v_step, o + of.first_query * o_step);
  }
  if (n.packed) StoreCopy<T>(part, at.o, n.o, y);
}

// The gradients of a call; null if not wanted.
template <typename T>
struct AttentionGradients {
  T *q, *k, *v;
};

void Zero(void* data, int64_t bytes, cudaStream_t stream) {
  if (data != nullptr) GRADLOOM_CUDA(cudaMemsetAsync(data, 0, static_cast<size_t>(bytes), stream));
}

// U is the type of the sums of the gradients of k and v, if they are in scratch memory.
template <typename U, typename T>
void AttendBack(const Part<T>& part, const T* dy, const AttentionGradients<T>& gradients) {
  const AttentionProducts& n = part.plan.n;
  const AttentionScratchLayout& at = part.plan.at;
  const bool apart = n.kv_gradients_apart();
  const T *const q = part.Operand(part.a.q, n.q, at.q), *const k = part.Operand(part.a.k, n.k, at.k),
                 *const v = part.Operand(part.a.v, n.v, at.v), *const upstream = part.Operand(dy, n.o, at.o);
  T* const dq = gradients.q == nullptr ? nullptr : part.Result(gradients.q, n.q, at.dq);
  const int64_t q_step = n.operand(n.q).strides[2], k_step = n.operand(n.k).strides[2], v_step = n.operand(n.v).strides[2],
                o_step = n.operand(n.o).strides[2];
  const DnnTensor k_part = n.part_of(n.k), v_part = n.part_of(n.v);
  U *const dk_sums = part.template Scratch<U>(at.dk), *const dv_sums = part.template Scratch<U>(at.dv);
  if (apart && n.adds) {
    Zero(dk_sums, k_part.elements() * static_cast<int64_t>(sizeof(U)), part.launch.stream);
    Zero(dv_sums, v_part.elements() * static_cast<int64_t>(sizeof(U)), part.launch.stream);
  }
  T *const dk = part.Of(gradients.k, n.k), *const dv = part.Of(gradients.v, n.v);
  float *const scores = part.template Scratch<float>(at.scores), *const d_weights = part.template Scratch<float>(at.d_weights);
  T *const weights = part.template Scratch<T>(at.weights), *const d_scores = part.template Scratch<T>(at.d_scores);
  for (const ProductsPlan::Block& block : part.plan.blocks) {
    const QueryBlock& of = block.of;
    const T *const queries = q + of.first_query * q_step, *const keys = k + of.first_key * k_step;
    const T* const block_dy = upstream + of.first_query * o_step;
    part.Multiply(block.scores, queries, keys, scores);
    part.Multiply(block.d_weights, block_dy, v + of.first_key * v_step, d_weights);
    ForEachScoreRow(part, of, ScoreGradients<T>{part.a, part.Block(of), scores, d_weights, weights, d_scores});
    if (dq != nullptr) part.Multiply(block.q_gradient, d_scores, keys, dq + of.first_query * q_step);
    if (gradients.k != nullptr) {
      if (apart)
        part.Multiply(block.k_gradient, d_scores, queries, dk_sums + of.first_key * k_part.strides[2]);
      else
        part.Multiply(block.k_gradient, d_scores, queries, dk + of.first_key * k_step);
    }
    if (gradients.v != nullptr) {
      if (apart)
        part.Multiply(block.v_gradient, weights, block_dy, dv_sums + of.first_key * v_part.strides[2]);
      else
        part.Multiply(block.v_gradient, weights, block_dy, dv + of.first_key * v_step);
    }
  }
  if (n.packed && dq != nullptr) StoreCopy<T>(part, at.dq, n.q, gradients.q);
  if (apart && gradients.k != nullptr) StoreCopy<U>(part, at.dk, n.k, gradients.k);
  if (apart && gradients.v != nullptr) StoreCopy<U>(part, at.dv, n.v, gradients.v);
}

// Calls f(std::type_identity<T>{}) for the type of the operands.
template <typename F>
std::unique_ptr<Kernel> WithServed(DType dtype, const F& f) {
  switch (dtype) {
    case DType::kFloat16: return f(std::type_identity<Half>{});
    case DType::kBfloat16: return f(std::type_identity<Bfloat16>{});
    default: return f(std::type_identity<float>{});
  }
}

std::unique_ptr<Kernel> MakeForward(const KernelCall& call, const KernelSite& site) {
  return WithServed(call.inputs[kQ].dtype, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([plan = std::make_unique<const ProductsPlan>(call, site), seeds = PhiloxOperands(call, kSeed),
                       a = AttentionData<T>(call)](const Launch& l) mutable {
      a.Bind(plan->operands, seeds, l);
      ForEachPart(*plan, l, a, [&](const Part<T>& part) { Attend(part, l.Out<T>(0)); });
    });
  });
}

// Inputs: the seven of Attention, then the gradient of Y.
std::unique_ptr<Kernel> MakeBackward(const KernelCall& call, const KernelSite& site) {
  return WithServed(call.inputs[kQ].dtype, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([plan = std::make_unique<const ProductsPlan>(call, site), seeds = PhiloxOperands(call, kGradSeed),
                       a = AttentionData<T>(call)](const Launch& l) mutable {
      a.Bind(plan->operands, seeds, l);
      const AttentionProducts& n = plan->n;
      const AttentionGradients<T> gradients{plan->wanted.template Of<T>(l, kQ), plan->wanted.template Of<T>(l, plan->k_source),
                                            plan->wanted.template Of<T>(l, plan->v_source)};
      if (n.adds && !n.kv_gradients_apart()) {
        const int64_t k_bytes = n.k.elements() * DTypeBytes(n.dtype), v_bytes = n.v.elements() * DTypeBytes(n.dtype);
        // With the other parts of a packed operand.
        if (plan->packing == AttentionForm::Packing::kAll) {
          Zero(gradients.k, n.q.elements() * DTypeBytes(n.dtype) + k_bytes + v_bytes, l.stream);
        } else if (plan->packing == AttentionForm::Packing::kKeysAndValues) {
          Zero(gradients.k, k_bytes + v_bytes, l.stream);
        } else {
          Zero(gradients.k, k_bytes, l.stream);
          Zero(gradients.v, v_bytes, l.stream);
        }
      }
      const bool wide = n.kv_gradient_type() == DType::kFloat32;
      ForEachPart(*plan, l, a, [&](const Part<T>& part) {
        const T* const dy = l.In<T>(kGradY);
        wide ? AttendBack<float>(part, dy, gradients) : AttendBack<T>(part, dy, gradients);
      });
    });
  });
}

constexpr CudaKernel kAttentionBlasKernels[] = {
    {"cublas.Attention", MakeForward},
    {"cublas.gradloom.Attention", MakeForward},
    {"cublas.gradloom.AttentionGrad", MakeBackward},
    {"cublas.gradloom.AttentionDropout", MakeForward},
    {"cublas.gradloom.AttentionDropoutGrad", MakeBackward},
};

}  // namespace

std::span<const CudaKernel> AttentionBlasKernels() { return kAttentionBlasKernels; }

}  // namespace gradloom::cuda
