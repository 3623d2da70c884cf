// Attention and its gradient, one row of queries at a time. No score matrix is stored, so the gradient recomputes each row, including the
// random numbers of dropout.
#include "kernels/catalog/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/catalog/batch_slice.h"
#include "kernels/reference/families.h"
#include "kernels/reference/operands.h"
#include "kernels/reference/wanted.h"
#include "kernels/reference/wide.h"
#include "runtime/base/philox.h"

namespace gradloom {
namespace {

using enum attention::Input;
using enum attention::Output;

template <typename T>
struct AttentionCall {
  const KernelCall& call;
  const void* const* inputs;
  const AttentionForm form;
  const int64_t batch;
  const AttentionVectors &q = form.q, &k = form.k, &v = form.v, &y = form.y;
  int64_t past, total;
  AttentionVectors past_k, past_v;
  T scale, softcap;
  bool causal;
  int64_t left, right;
  std::vector<int64_t> lengths;
  std::vector<int64_t> mask_strides;
  // For dropout.
  float ratio = 0;
  PhiloxKey key = {};
  BatchSlice batch_slice;

  // `seeds` is the index of the input with the seed; the batch number and the first sample follow. -1: no dropout.
  AttentionCall(const KernelCall& c, const void* const* in, int seeds) : call(c), inputs(in), form(AttentionFormOf(c)), batch(form.batch) {
    const Attributes& a = call.attributes;
    if (seeds >= 0) {
      const auto number = [&](int i) { return *In<int64_t>(inputs, static_cast<size_t>(i)); };
      ratio = static_cast<float>(a.Float("ratio", 0));
      key = NodeKey(static_cast<uint64_t>(number(seeds)), static_cast<uint64_t>(number(seeds + 1)),
                    static_cast<uint64_t>(a.Int("origin", 0)));
      batch_slice = BatchSlice::Of(call, Has(call.inputs, static_cast<size_t>(seeds) + 2) ? number(seeds + 2) : 0);
    }
    past = Has(call.inputs, kPastKey) ? call.inputs[kPastKey].shape[2] : 0;
    if (past > 0) {
      past_k = AttentionVectors(call.inputs[kPastKey].shape, 0);
      past_v = AttentionVectors(call.inputs[kPastValue].shape, 0);
    }
    total = past + k.length;
    scale = static_cast<T>(a.Float("scale", 1 / std::sqrt(static_cast<double>(q.size))));
    softcap = static_cast<T>(a.Float("softcap", 0));
    causal = a.Int("is_causal", 0) != 0;
    left = AttentionForm::WindowOf(a, "left");
    right = AttentionForm::WindowOf(a, "right");
    lengths = InputInts(call, inputs, kLengths);
    if (Has(call.inputs, kMask)) {
      const Shape& shape = call.inputs[kMask].shape;
      mask_strides = BroadcastStrides(shape, {batch, q.heads, q.length, shape[shape.rank() - 1]});
    }
  }

  int64_t kv_head(int64_t h) const { return h / (q.heads / k.heads); }

  const T* Source(int64_t i) const { return In<T>(inputs, static_cast<size_t>(form.source(i))); }

  // Pointers to key and value j, in the past or in K and V.
  const T* Key(int64_t b, int64_t h, int64_t j) const {
    return j < past ? In<T>(inputs, kPastKey) + past_k.At(b, kv_head(h), j) : Source(kK) + k.At(b, kv_head(h), j - past);
  }
  const T* Value(int64_t b, int64_t h, int64_t j) const {
    return j < past ? In<T>(inputs, kPastValue) + past_v.At(b, kv_head(h), j) : Source(kV) + v.At(b, kv_head(h), j - past);
  }

  // Whether query i sees key j by its position, regardless of the mask.
  bool Visible(int64_t b, int64_t i, int64_t j) const {
    int64_t position = i + past;
    if (!lengths.empty()) {
      const int64_t length = lengths[static_cast<size_t>(b)];
      if (j >= length) return false;
      position = i + length - q.length;
    }
    if (causal && j > position) return false;
    if (left >= 0 && j < position - left) return false;
    return right < 0 || j <= position + right;
  }

  int64_t MaskAt(int64_t b, int64_t h, int64_t i, int64_t j) const {
    return b * mask_strides[0] + h * mask_strides[1] + i * mask_strides[2] + j * mask_strides[3];
  }

  // The addend of a score; minus infinity if the key is hidden.
  T Bias(int64_t b, int64_t h, int64_t i, int64_t j) const {
    constexpr T kHidden = -std::numeric_limits<T>::infinity();
    if (!Visible(b, i, j)) return kHidden;
    if (mask_strides.empty()) return 0;
    const OperandType& mask = call.inputs[kMask];
    const int64_t extent = mask.shape[mask.shape.rank() - 1];
    if (j >= extent) return kHidden;
    const int64_t at = MaskAt(b, h, i, extent == 1 ? 0 : j);
    if (mask.dtype == DType::kBool) return In<bool>(inputs, kMask)[at] ? T(0) : kHidden;
    return In<T>(inputs, kMask)[at];
  }

  // The factor that dropout applies to a probability.
  T Factor(int64_t b, int64_t h, int64_t i, int64_t j) const {
    if (ratio == 0) return 1;
    const uint64_t index = batch_slice(((b * q.heads + h) * q.length + i) * total + j);
    return UniformFloat(ElementBits(index, key)) >= ratio ? T(1 / (1 - call.attributes.Float("ratio", 0))) : T(0);
  }

  // Rows of `total` scores: scaled, after the soft cap, and with the bias; and the probabilities.
  struct Rows {
    std::vector<T> raw, capped, biased, probability;
    T log_sum;  // of the exponentials of the biased scores; infinity if the query sees no key
  };

  void Row(int64_t b, int64_t h, int64_t i, Rows* rows) const {
    const size_t n = static_cast<size_t>(total);
    for (auto* row : {&rows->raw, &rows->capped, &rows->biased, &rows->probability}) row->assign(n, 0);
    const T* query = In<T>(inputs, kQ) + q.At(b, h, i);
    T highest = -std::numeric_limits<T>::infinity();
    bool sees = false;  // some key; a score that is not a number is not hidden
    for (size_t j = 0; j < n; ++j) {
      const T* key = Key(b, h, static_cast<int64_t>(j));
      T dot = 0;
      for (int64_t e = 0; e < q.size; ++e) dot += query[e] * key[e];
      rows->raw[j] = dot * scale;
      rows->capped[j] = softcap > 0 ? softcap * std::tanh(rows->raw[j] / softcap) : rows->raw[j];
      rows->biased[j] = rows->capped[j] + Bias(b, h, i, static_cast<int64_t>(j));
      highest = std::max(highest, rows->biased[j]);
      sees = sees || rows->biased[j] != -std::numeric_limits<T>::infinity();
    }
    rows->log_sum = std::numeric_limits<T>::infinity();
    if (!sees) return;  // the result is zero
    T sum = 0;
    for (size_t j = 0; j < n; ++j) sum += rows->probability[j] = std::exp(rows->biased[j] - highest);
    for (T& p : rows->probability) p /= sum;
    rows->log_sum = highest + std::log(sum);
  }

  template <typename F>
  void ForEachQuery(F&& f) const {
    Rows rows;
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t h = 0; h < q.heads; ++h) {
        for (int64_t i = 0; i < q.length; ++i) {
          Row(b, h, i, &rows);
          f(b, h, i, rows);
        }
      }
    }
  }
};

template <int kSeeds>
void Attention(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  WithFloat(call.inputs[kQ].dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const AttentionCall<T> a(call, inputs, kSeeds);
    const int64_t mode = call.attributes.Int("qk_matmul_output_mode", 0);
    T* const scores = call.outputs.size() > 3 ? Out<T>(outputs, 3) : nullptr;
    T* const log_sums = ReturnsLogSums(call) ? Out<T>(outputs, kLogSums) : nullptr;
    a.ForEachQuery([&](int64_t b, int64_t h, int64_t i, const auto& rows) {
      T* y = Out<T>(outputs, 0) + a.y.At(b, h, i);
      std::fill_n(y, a.v.size, T(0));
      for (int64_t j = 0; j < a.total; ++j) {
        const T p = rows.probability[static_cast<size_t>(j)] * a.Factor(b, h, i, j);
        if (p == 0) continue;
        const T* value = a.Value(b, h, j);
        for (int64_t e = 0; e < a.v.size; ++e) y[e] += p * value[e];
      }
      if (log_sums != nullptr) log_sums[(b * a.q.heads + h) * a.q.length + i] = rows.log_sum;
      if (scores == nullptr) return;
      const auto& row = mode == 0 ? rows.raw : mode == 1 ? rows.capped : mode == 2 ? rows.biased : rows.probability;
      std::copy_n(row.data(), a.total, scores + ((b * a.q.heads + h) * a.q.length + i) * a.total);
    });
    for (size_t out : {1, 2}) {
      if (call.outputs.size() <= out || outputs[out] == nullptr) continue;
      const int64_t size = out == 1 ? a.k.size : a.v.size;
      T* to = Out<T>(outputs, out);
      for (int64_t row = 0; row < a.batch * a.k.heads * a.total; ++row) {
        const int64_t j = row % a.total, h = row / a.total % a.k.heads * (a.q.heads / a.k.heads), b = row / a.total / a.k.heads;
        std::copy_n(out == 1 ? a.Key(b, h, j) : a.Value(b, h, j), size, to + row * size);
      }
    }
  });
}

// The destination of the gradient of a key or value: in K or V, or in the past.
template <typename T>
T* Cell(T* now, T* past, const AttentionVectors& vectors, const AttentionVectors& past_vectors, int64_t b, int64_t h, int64_t j,
        int64_t past_length) {
  if (j < past_length) return past == nullptr ? nullptr : past + past_vectors.At(b, h, j);
  return now == nullptr ? nullptr : now + vectors.At(b, h, j - past_length);
}

template <typename T>
void AddScaled(T factor, const T* from, int64_t n, T* to) {
  if (to == nullptr) return;
  for (int64_t i = 0; i < n; ++i) to[i] += factor * from[i];
}

// Inputs: the seven of Attention, then the gradients of Y, present_key and present_value. What the forward pass kept is not used.
template <int kSeeds>
void AttentionGrad(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  WithFloat(call.inputs[kQ].dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const AttentionCall<T> a(call, inputs, kSeeds);
    ZeroOutputs(call, outputs);
    const auto gradient = [&](int64_t i) { return static_cast<T*>(GradientOf(call, outputs, a.form.source(i))); };
    T *dq = gradient(kQ), *dk = gradient(kK), *dv = gradient(kV), *dmask = gradient(kMask);
    T *dpast_k = gradient(kPastKey), *dpast_v = gradient(kPastValue);
    const auto key_cell = [&](int64_t b, int64_t h, int64_t j) { return Cell(dk, dpast_k, a.k, a.past_k, b, h, j, a.past); };
    const auto value_cell = [&](int64_t b, int64_t h, int64_t j) { return Cell(dv, dpast_v, a.v, a.past_v, b, h, j, a.past); };
    for (int64_t row = 0; row < a.batch * a.k.heads * a.total; ++row) {
      const int64_t j = row % a.total, h = row / a.total % a.k.heads, b = row / a.total / a.k.heads;
      if (inputs[kGradPresentKey] != nullptr) AddScaled(T(1), In<T>(inputs, kGradPresentKey) + row * a.k.size, a.k.size, key_cell(b, h, j));
      if (inputs[kGradPresentValue] != nullptr)
        AddScaled(T(1), In<T>(inputs, kGradPresentValue) + row * a.v.size, a.v.size, value_cell(b, h, j));
    }
    if (inputs[kGradY] == nullptr) return;
    std::vector<T> ds(static_cast<size_t>(a.total));
    a.ForEachQuery([&](int64_t b, int64_t h, int64_t i, const auto& rows) {
      const T* dy = In<T>(inputs, kGradY) + a.y.At(b, h, i);
      const T* query = In<T>(inputs, kQ) + a.q.At(b, h, i);
      const int64_t g = a.kv_head(h);
      T mean = 0;
      for (int64_t j = 0; j < a.total; ++j) {
        const size_t at = static_cast<size_t>(j);
        const T p = rows.probability[at];
        ds[at] = 0;
        if (p == 0) continue;
        const T factor = a.Factor(b, h, i, j);
        if (factor == 0) continue;
        const T* value = a.Value(b, h, j);
        for (int64_t e = 0; e < a.v.size; ++e) ds[at] += factor * dy[e] * value[e];
        mean += p * ds[at];
        AddScaled(p * factor, dy, a.v.size, value_cell(b, g, j));
      }
      for (int64_t j = 0; j < a.total; ++j) {
        const size_t at = static_cast<size_t>(j);
        const T p = rows.probability[at];
        if (p == 0) continue;
        T d = p * (ds[at] - mean);
        if (dmask != nullptr) dmask[a.MaskAt(b, h, i, j)] += d;
        if (a.softcap > 0) d *= 1 - rows.capped[at] * rows.capped[at] / (a.softcap * a.softcap);
        if (dq != nullptr) AddScaled(d * a.scale, a.Key(b, h, j), a.q.size, dq + a.q.At(b, h, i));
        AddScaled(d * a.scale, query, a.q.size, key_cell(b, g, j));
      }
    });
  });
}

constexpr ReferenceKernel kKernels[] = {
    {"Attention", "", Wide<Attention<-1>>},
    {"Attention", "gradloom", Wide<Attention<-1>>},
    {"AttentionTraining", "gradloom", Wide<Attention<-1>>},
    {"AttentionGrad", "gradloom", Wide<AttentionGrad<-1>>},
    {"AttentionDropout", "gradloom", Wide<Attention<kSeed>>},
    {"AttentionDropoutGrad", "gradloom", Wide<AttentionGrad<kGradSeed>>},
};

}  // namespace

std::span<const ReferenceKernel> ReferenceAttention() { return kKernels; }

}  // namespace gradloom
