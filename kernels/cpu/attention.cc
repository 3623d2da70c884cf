// Attention and its gradient over tiles of queries: only the scores of one tile exist at a time, and the gradient recomputes them.
#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "kernels/cpu/attention_tiles.h"
#include "kernels/cpu/families.h"
#include "kernels/cpu/parallel.h"
#include "kernels/reference/wanted.h"

namespace gradloom {
namespace {

using namespace attention;  // NOLINT: the tiles are its own

class Attention : public AttentionKernel {
 public:
  explicit Attention(const KernelCall& call) : AttentionKernel(call) {}

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void*) override {
    const int64_t heads = n_.batch * n_.q.heads, tile = TileRows(n_.k.length);
    const int64_t* lengths = HasInput(call_, kLengths) ? static_cast<const int64_t*>(inputs[kLengths]) : nullptr;
    const RandomDraws draws = drops_ ? source_(inputs) : RandomDraws{};
    ParallelRanges(heads, 1, call_.threads, [&](int64_t begin, int64_t end) {
      float* memory = static_cast<float*>(scratch) + ThreadIndex() * layout_.floats;
      float *keys = memory + layout_.keys, *values = memory + layout_.values, *scores = memory + layout_.scores,
            *wide = memory + layout_.wide;
      int64_t packed = -1;
      for (int64_t task = begin; task < end; ++task) {
        const int64_t b = task / n_.q.heads, h = task % n_.q.heads, g = h / n_.group();
        if (packed != b * n_.k.heads + g) {
          const auto k = Widen(inputs[kK], n_.k, n_.k.At(b, g, 0), n_.k.length, wide);
          Pack(k.at, n_.q.size, n_.k.length, 1, k.stride, keys);
          const auto v = Widen(inputs[kV], n_.v, n_.v.At(b, g, 0), n_.k.length, wide);
          Pack(v.at, n_.k.length, n_.v.size, v.stride, 1, values);
          packed = b * n_.k.heads + g;
        }
        for (int64_t i = 0; i < n_.q.length; i += tile) {
          const int64_t rows = std::min(tile, n_.q.length - i);
          const Range range = VisibleOfTile(lengths, b, i, rows);
          const auto q = Widen(inputs[kQ], n_.q, n_.q.At(b, h, i), rows, wide);
          MultiplyByKeys(q.at, q.stride, rows, n_.q.size, keys, range, n_.scale, scores);
          Probabilities(inputs, b, h, i, rows, range, scores, nullptr);
          for (int64_t r = 0; r < rows && drops_; ++r) Drop(DropoutOf(draws, lengths, b, h, i + r, memory), scores + r * row());
          const auto y = Destination(outputs[0], n_.y, n_.y.At(b, h, i), wide);
          MultiplyOverKeys(scores, rows, values, range, n_.v.size, y.at, y.stride);
          Narrow(y, n_.y, rows, outputs[0], n_.y.At(b, h, i));
        }
      }
    });
  }
};

// A head of K and V belongs to one thread, together with all heads of Q that share it. If the gradient of a mask common to all samples is
// wanted, the thread takes the head in all samples, so that each sum has a fixed order.
class AttentionGrad : public AttentionKernel {
 public:
  explicit AttentionGrad(const KernelCall& call)
      : AttentionKernel(call),
        gradient_outputs_{GradientOutputIndex(call, kQ), GradientOutputIndex(call, kK), GradientOutputIndex(call, kV),
                          GradientOutputIndex(call, kMask)} {}

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void*) override {
    ZeroOutputs(call_, outputs);
    if (inputs[kGradY] == nullptr) return;
    const RandomDraws draws = drops_ ? source_(inputs) : RandomDraws{};
    const int64_t together = gradient_outputs_[kMask] >= 0 && n_.mask_strides[0] == 0 ? n_.batch : 1;
    ParallelRanges(n_.batch / together * n_.k.heads, 1, call_.threads, [&](int64_t begin, int64_t end) {
      float* memory = static_cast<float*>(scratch) + ThreadIndex() * layout_.floats;
      for (int64_t task = begin; task < end; ++task) {
        const int64_t first = task / n_.k.heads * together;
        for (int64_t b = first; b < first + together; ++b) Head(inputs, outputs, draws, b, task % n_.k.heads, memory);
      }
    });
  }

 private:
  void Head(const void* const* inputs, void* const* outputs, const RandomDraws& draws, int64_t b, int64_t g, float* memory) const {
    const auto out = [&](size_t i) { return gradient_outputs_[i] < 0 ? nullptr : outputs[gradient_outputs_[i]]; };
    float *keys = memory + layout_.keys, *values = memory + layout_.values, *keys_back = memory + layout_.keys_back;
    float *p = memory + layout_.scores, *ds = memory + layout_.gradients;
    float *queries = memory + layout_.queries, *dys = memory + layout_.outputs;
    float *wide = memory + layout_.wide, *wide_q = memory + layout_.wide_q, *wide_dy = memory + layout_.wide_dy;
    float* cap_derivatives = n_.softcap > 0 ? memory + layout_.cap_derivatives : nullptr;
    const int64_t k_at = n_.k.At(b, g, 0), v_at = n_.v.At(b, g, 0);
    const auto k = Widen(inputs[kK], n_.k, k_at, n_.k.length, wide);
    Pack(k.at, n_.q.size, n_.k.length, 1, k.stride, keys);
    if (out(kQ) != nullptr) Pack(k.at, n_.k.length, n_.q.size, k.stride, 1, keys_back);
    const auto v = Widen(inputs[kV], n_.v, v_at, n_.k.length, wide);
    Pack(v.at, n_.v.size, n_.k.length, 1, v.stride, values);
    const Vectors<float> dk = Sums(out(kK), n_.k, k_at, memory + layout_.wide_dk), dv = Sums(out(kV), n_.v, v_at, memory + layout_.wide_dv);
    const int64_t* lengths = HasInput(call_, kLengths) ? static_cast<const int64_t*>(inputs[kLengths]) : nullptr;
    const int64_t tile = TileRows(n_.k.length);
    for (int64_t h = g * n_.group(); h < (g + 1) * n_.group(); ++h) {
      for (int64_t i = 0; i < n_.q.length; i += tile) {
        const int64_t rows = std::min(tile, n_.q.length - i);
        const Range range = VisibleOfTile(lengths, b, i, rows);
        if (range.begin == range.end) continue;
        const auto q = Widen(inputs[kQ], n_.q, n_.q.At(b, h, i), rows, wide_q);
        const auto dy = Widen(inputs[kGradY], n_.y, n_.y.At(b, h, i), rows, wide_dy);
        MultiplyByKeys(q.at, q.stride, rows, n_.q.size, keys, range, n_.scale, p);
        Probabilities(inputs, b, h, i, rows, range, p, cap_derivatives);
        MultiplyByKeys(dy.at, dy.stride, rows, n_.v.size, values, range, 1, ds);
        for (int64_t r = 0; r < rows; ++r) {
          const int64_t at = r * row() + range.begin, count = range.end - range.begin;
          const RowDropout dropout = DropoutOf(draws, lengths, b, h, i + r, memory);
          Drop(dropout, ds + r * row());
          loops_.softmax_grad_row(p + at, ds + at, count, out(kMask) == nullptr ? n_.scale : 1);
          if (out(kMask) != nullptr) {
            AddToMask(ds + r * row(), b, h, i + r, range, static_cast<float*>(out(kMask)));
            for (int64_t j = at; j < at + count; ++j) ds[j] *= n_.scale;
          }
          // For hidden keys the gradient is 0 already, and the slope has not been written.
          for (int64_t j = at; j < at + count && cap_derivatives != nullptr; ++j) ds[j] = p[j] == 0 ? 0 : ds[j] * cap_derivatives[j];
          Drop(dropout, p + r * row());
        }
        if (dv.at != nullptr) {
          Pack(dy.at, rows, n_.v.size, dy.stride, 1, dys);
          AddTransposed(p, rows, dys, range, n_.v.size, dv.at, dv.stride);
        }
        if (out(kQ) != nullptr) {
          const auto dq = Destination(out(kQ), n_.q, n_.q.At(b, h, i), wide);
          MultiplyOverKeys(ds, rows, keys_back, range, n_.q.size, dq.at, dq.stride);
          Narrow(dq, n_.q, rows, out(kQ), n_.q.At(b, h, i));
        }
        if (dk.at != nullptr) {
          Pack(q.at, rows, n_.q.size, q.stride, 1, queries);
          AddTransposed(ds, rows, queries, range, n_.q.size, dk.at, dk.stride);
        }
      }
    }
    if (dk.at != nullptr) Narrow(dk, n_.k, n_.k.length, out(kK), k_at);
    if (dv.at != nullptr) Narrow(dv, n_.v, n_.k.length, out(kV), v_at);
  }

  // Adds the gradients of a query's scores, which are 0 for hidden keys, to the gradient of the mask.
  void AddToMask(const float* ds, int64_t b, int64_t h, int64_t i, Range range, float* gradient) const {
    float* const to = gradient + b * n_.mask_strides[0] + h * n_.mask_strides[1] + i * n_.mask_strides[2];
    const int64_t step = n_.mask_strides[3], end = std::min(range.end, n_.mask_keys);
    if (step == 1) return AddRow(ds + range.begin, end - range.begin, to + range.begin);
    for (int64_t j = range.begin; j < end; ++j) to[j * step] += ds[j];
  }

  // Where to sum the gradient of a head of K or V, zero-initialized; null if it is not wanted.
  Vectors<float> Sums(void* result, const AttentionVectors& n, int64_t begin, float* room) const {
    if (result == nullptr) return {};
    if (n_.dtype != DType::kFloat32) std::fill_n(room, n.length * n.size, 0.0f);  // the result itself is zero already
    return Destination(result, n, begin, room);
  }

  const std::array<int64_t, 4> gradient_outputs_;  // indices of the outputs with the gradients of Q, K, V and the mask; -1: not wanted
};

std::string Rejects(const KernelCall& call) {
  const bool gradient = IsGradient(call);
  if (std::string why = RejectsLayouts(call); !why.empty()) return why;
  if (call.inputs.size() < 3) return "operands are missing";
  if (HasInput(call, kPastKey) || HasInput(call, kPastValue)) return "a past";
  const DType dtype = call.inputs[kQ].dtype;
  if (dtype != DType::kFloat32 && !Is16Bit(dtype)) return std::string(DTypeName(dtype));
  for (size_t i : {kQ, kK, kV}) {
    const OperandType& operand = call.inputs[i];
    if (!operand.present() || operand.dtype != dtype) return "operands of different types";
    if (operand.shape.rank() != call.inputs[kQ].shape.rank() || (operand.shape.rank() != 3 && operand.shape.rank() != 4))
      return "operands of another rank";
    if (operand.shape.elements() == 0) return "nothing to compute";
    const char* heads = i == kQ ? "q_num_heads" : "kv_num_heads";
    if (operand.shape.rank() == 4) continue;
    const int64_t count = call.attributes.Int(heads, 0);
    if (count <= 0 || operand.shape[2] % count != 0) return "a number of heads that does not divide the hidden size";
  }
  const Shape &q = call.inputs[kQ].shape, &k = call.inputs[kK].shape, &v = call.inputs[kV].shape;
  const AttentionVectors qs(q, call.attributes.Int("q_num_heads", 0)), ks(k, call.attributes.Int("kv_num_heads", 0)),
      vs(v, call.attributes.Int("kv_num_heads", 0));
  if (q[0] != k[0] || q[0] != v[0] || qs.size != ks.size || ks.heads != vs.heads || ks.length != vs.length || qs.heads % ks.heads != 0) {
    return "operands that do not fit";
  }
  if (HasInput(call, kMask)) {
    const OperandType& mask = call.inputs[kMask];
    if (mask.dtype != DType::kFloat32 && mask.dtype != DType::kBool && !Is16Bit(mask.dtype)) return std::string(DTypeName(mask.dtype));
    const int last = mask.shape.rank() - 1;
    if (last < 0 || last > 3 || mask.shape[last] > ks.length) return "a mask of another shape";
    const Shape all{q[0], qs.heads, qs.length, mask.shape[last]};
    if (Broadcast(mask.shape, all) != all) return "a mask of another shape";
  }
  if (HasInput(call, kLengths) && (call.inputs[kLengths].dtype != DType::kInt64 || call.inputs[kLengths].shape != Shape{q[0]}))
    return "lengths of another type";
  if (Drops(call)) {
    if (call.inputs.size() < SeedOf(call) + 2 || call.inputs.size() > SeedOf(call) + 3 || !HasInput(call, SeedOf(call) + 1))
      return "no seed";
    if (std::string why = RandomSource::Rejects(call, SeedOf(call)); !why.empty()) return why;
  } else if (call.inputs.size() > SeedOf(call) || (gradient && call.inputs.size() < SeedOf(call))) {
    return "an unexpected number of operands";
  }
  Shape y = q;
  y[q.rank() - 1] = qs.flat ? qs.heads * vs.size : vs.size;
  if (!gradient) {
    for (size_t i = 1; i < call.outputs.size(); ++i) {
      if (call.outputs[i].present()) return "results beside Y";
    }
    return HasOutput(call, 0) && call.outputs[0].dtype == dtype && call.outputs[0].shape == y ? "" : "a result of another shape";
  }
  if (HasInput(call, kGradY + 1) || HasInput(call, kGradY + 2)) return "gradients of results beside Y";
  if (HasInput(call, kGradY) && (call.inputs[kGradY].dtype != dtype || call.inputs[kGradY].shape != y))
    return "a gradient of another shape";
  const std::vector<int64_t> wanted = call.attributes.Ints("wanted");
  if (wanted.size() != call.outputs.size()) return "an unexpected number of operands";
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i] == static_cast<int64_t>(kMask) && !HasInput(call, kMask)) return "the gradient of no mask";
    if (!call.outputs[i].present()) continue;
    if (wanted[i] < 0 || wanted[i] > static_cast<int64_t>(kMask)) return "the gradient of another operand";
    const OperandType& of = call.inputs[static_cast<size_t>(wanted[i])];
    if (call.outputs[i].dtype != of.dtype || call.outputs[i].shape != of.shape) return "a result of another shape";
    if (wanted[i] != static_cast<int64_t>(kMask)) continue;
    // The sums of one thread, in float32.
    if (of.dtype != DType::kFloat32) return "the gradient of a mask that is not float32";
    const int rank = of.shape.rank();
    if (ks.heads > 1 && (rank < 3 || of.shape[rank - 3] == 1)) return "the gradient of a mask that heads share";
  }
  return "";
}

int64_t Scratch(const KernelCall& call) {
  const AttentionScratchLayout layout(AttentionSizes(call), IsGradient(call), Drops(call));
  return std::max(call.threads, 1) * layout.floats * static_cast<int64_t>(sizeof(float));
}

template <typename K>
constexpr CpuKernel Row(std::string_view name, std::string_view op, std::string_view domain) {
  return {.row = {.name = name, .op = op, .domain = domain, .rejects = Rejects, .scratch_bytes = Scratch}, .make = MakeKernel<K>};
}

constexpr CpuKernel kKernels[] = {
    Row<Attention>("cpu.Attention", "Attention", ""),
    Row<AttentionGrad>("cpu.AttentionGrad", "AttentionGrad", "gradloom"),
    Row<Attention>("cpu.AttentionDropout", "AttentionDropout", "gradloom"),
    Row<AttentionGrad>("cpu.AttentionDropoutGrad", "AttentionDropoutGrad", "gradloom"),
};

}  // namespace

std::span<const CpuKernel> CpuAttentionKernels() { return kKernels; }

}  // namespace gradloom
