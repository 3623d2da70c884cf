// Attention and its gradient over tiles of queries: only the scores of one tile exist at a time, and the gradient recomputes them. Keys and
// values of a head are packed once for all its tiles. 16-bit operands are widened when they are packed, a head or a tile at a time, and
// results are rounded once.
#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "kernels/cpu/attention_tiles.h"
#include "kernels/cpu/families.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/parallel_bytes.h"
#include "kernels/reference/wanted.h"

namespace gradloom {
namespace {

using namespace attention;  // NOLINT: the tiles are its own

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
    words = Take(drops ? RandomWordsCapacity(total) : 0);
    const bool half = Is16BitFloat(n.dtype);
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

// The products of float32 numbers.
class WideAttention : public AttentionKernel {
 protected:
  explicit WideAttention(const KernelCall& call) : AttentionKernel(call), layout_(n_, IsGradient(call), Drops(call)) {}

  // `count` vectors of `operand`, from element `begin` on, as floats: in place, or widened into `room`.
  Vectors<const float> Widen(const void* operand, const AttentionVectors& n, int64_t begin, int64_t count, float* room) const {
    if (n_.dtype == DType::kFloat32) return {static_cast<const float*>(operand) + begin, n.stride};
    for (int64_t i = 0; i < count; ++i) LoadFloats(loops_, n_.dtype, operand, begin + i * n.stride, n.size, room + i * n.size);
    return {room, n.size};
  }

  // Where to compute vectors of a result that start at element `begin`: in place, or in `room`, from which Narrow copies them.
  Vectors<float> Destination(void* result, const AttentionVectors& n, int64_t begin, float* room) const {
    if (n_.dtype == DType::kFloat32) return {static_cast<float*>(result) + begin, n.stride};
    return {room, n.size};
  }
  void Narrow(const Vectors<float>& from, const AttentionVectors& n, int64_t count, void* result, int64_t begin) const {
    if (n_.dtype == DType::kFloat32) return;
    for (int64_t i = 0; i < count; ++i) StoreFloats(loops_, n_.dtype, from.at + i * from.stride, n.size, result, begin + i * n.stride);
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

  uint32_t* Words(float* memory) const { return reinterpret_cast<uint32_t*>(memory + layout_.words); }

  const AttentionScratchLayout layout_;
};

class Attention : public WideAttention {
 public:
  explicit Attention(const KernelCall& call) : WideAttention(call) {}

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
          const auto k = Widen(SourceOf(inputs, kK), n_.k, n_.k.At(b, g, 0), n_.k.length, wide);
          Pack(k.at, n_.q.size, n_.k.length, 1, k.stride, keys);
          const auto v = Widen(SourceOf(inputs, kV), n_.v, n_.v.At(b, g, 0), n_.k.length, wide);
          Pack(v.at, n_.k.length, n_.v.size, v.stride, 1, values);
          packed = b * n_.k.heads + g;
        }
        for (int64_t i = 0; i < n_.q.length; i += tile) {
          const int64_t rows = std::min(tile, n_.q.length - i);
          const Range range = VisibleOfTile(lengths, b, i, rows);
          const auto q = Widen(SourceOf(inputs, kQ), n_.q, n_.q.At(b, h, i), rows, wide);
          MultiplyByKeys(q.at, q.stride, rows, n_.q.size, keys, range, n_.scale, scores);
          Probabilities(inputs, b, h, i, rows, range, scores, nullptr);
          for (int64_t r = 0; r < rows && drops_; ++r) Drop(DropoutOf(draws, lengths, b, h, i + r, Words(memory)), scores + r * row());
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
class AttentionGrad : public WideAttention {
 public:
  explicit AttentionGrad(const KernelCall& call)
      : WideAttention(call),
        gradient_outputs_{GradientOutput(call, n_, kQ), GradientOutput(call, n_, kK), GradientOutput(call, n_, kV),
                          GradientOutputIndex(call, kMask)} {}

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void*) override {
    ZeroAllOutputs(call_, outputs);
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
    const auto k = Widen(SourceOf(inputs, kK), n_.k, k_at, n_.k.length, wide);
    Pack(k.at, n_.q.size, n_.k.length, 1, k.stride, keys);
    if (out(kQ) != nullptr) Pack(k.at, n_.k.length, n_.q.size, k.stride, 1, keys_back);
    const auto v = Widen(SourceOf(inputs, kV), n_.v, v_at, n_.k.length, wide);
    Pack(v.at, n_.v.size, n_.k.length, 1, v.stride, values);
    const Vectors<float> dk = Sums(out(kK), n_.k, k_at, memory + layout_.wide_dk), dv = Sums(out(kV), n_.v, v_at, memory + layout_.wide_dv);
    const int64_t* lengths = HasInput(call_, kLengths) ? static_cast<const int64_t*>(inputs[kLengths]) : nullptr;
    const int64_t tile = TileRows(n_.k.length);
    for (int64_t h = g * n_.group(); h < (g + 1) * n_.group(); ++h) {
      for (int64_t i = 0; i < n_.q.length; i += tile) {
        const int64_t rows = std::min(tile, n_.q.length - i);
        const Range range = VisibleOfTile(lengths, b, i, rows);
        if (range.begin == range.end) continue;
        const auto q = Widen(SourceOf(inputs, kQ), n_.q, n_.q.At(b, h, i), rows, wide_q);
        const auto dy = Widen(inputs[kGradY], n_.y, n_.y.At(b, h, i), rows, wide_dy);
        MultiplyByKeys(q.at, q.stride, rows, n_.q.size, keys, range, n_.scale, p);
        Probabilities(inputs, b, h, i, rows, range, p, cap_derivatives);
        MultiplyByKeys(dy.at, dy.stride, rows, n_.v.size, values, range, 1, ds);
        ScoreGradients(draws, lengths, b, h, i, rows, range, cap_derivatives, static_cast<float*>(out(kMask)), Words(memory), p, ds);
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

  // Where to sum the gradient of a head of K or V, zero-initialized; null if it is not wanted.
  Vectors<float> Sums(void* result, const AttentionVectors& n, int64_t begin, float* room) const {
    if (result == nullptr) return {};
    if (n_.dtype != DType::kFloat32) std::fill_n(room, n.length * n.size, 0.0f);  // the result itself is zero already
    return Destination(result, n, begin, room);
  }

  const std::array<int64_t, 4> gradient_outputs_;  // indices of the outputs with the gradients of Q, K, V and the mask; -1: not wanted
};

// Why Q, K and V do not fit each other, or "".
std::string RejectsSeparateOperands(const KernelCall& call) {
  for (size_t i : {kQ, kK, kV}) {
    const OperandType& operand = call.inputs[i];
    if (!operand.present() || operand.dtype != call.inputs[kQ].dtype) return "operands of different types";
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
  return "";
}

// The shape of Y if Q, K and V are operands of their own.
Shape SeparateResult(const Shape& q, const AttentionForm& form) {
  Shape y = q;
  y[q.rank() - 1] = q.rank() == 3 ? form.y.heads * form.y.size : form.y.size;
  return y;
}

}  // namespace

std::string attention::RejectsAttention(const KernelCall& call, bool (*serves)(DType)) {
  const bool gradient = IsGradient(call);
  if (std::string why = RejectsLayouts(call); !why.empty()) return why;
  if (call.inputs.size() < 3) return "operands are missing";
  if (HasInput(call, kPastKey) || HasInput(call, kPastValue)) return "a past";
  const DType dtype = call.inputs[kQ].dtype;
  if (!serves(dtype)) return std::string(DTypeName(dtype));
  const bool packed = AttentionForm::PackingOf(call.attributes) != AttentionForm::Packing::kNone;
  if (std::string why = packed ? RejectsPackedOperands(call) : RejectsSeparateOperands(call); !why.empty()) return why;
  const AttentionForm form = AttentionFormOf(call);
  if (HasInput(call, kMask)) {
    const OperandType& mask = call.inputs[kMask];
    if (mask.dtype != DType::kFloat32 && mask.dtype != DType::kBool && !Is16BitFloat(mask.dtype)) return std::string(DTypeName(mask.dtype));
    const int last = mask.shape.rank() - 1;
    if (last < 0 || last > 3 || mask.shape[last] > form.k.length) return "a mask of another shape";
    const Shape all{form.batch, form.q.heads, form.q.length, mask.shape[last]};
    if (Broadcast(mask.shape, all) != all) return "a mask of another shape";
  }
  if (HasInput(call, kLengths) && (call.inputs[kLengths].dtype != DType::kInt64 || call.inputs[kLengths].shape != Shape{form.batch}))
    return "lengths of another type";
  if (Drops(call)) {
    if (call.inputs.size() < SeedOf(call) + 2 || call.inputs.size() > SeedOf(call) + 3 || !HasInput(call, SeedOf(call) + 1))
      return "no seed";
    if (std::string why = RandomSource::Rejects(call, SeedOf(call)); !why.empty()) return why;
  } else if (call.inputs.size() > SeedOf(call) || (gradient && call.inputs.size() < SeedOf(call))) {
    return "an unexpected number of operands";
  }
  const Shape y = packed ? form.y_shape() : SeparateResult(call.inputs[kQ].shape, form);
  if (!gradient) {
    for (size_t i = 1; i < call.outputs.size(); ++i) {
      if (call.outputs[i].present()) return "results beside Y";
    }
    return HasOutput(call, 0) && call.outputs[0].dtype == dtype && call.outputs[0].shape == y ? "" : "a result of another shape";
  }
  if (HasInput(call, kGradPresentKey) || HasInput(call, kGradPresentValue)) return "gradients of results beside Y";
  if (HasInput(call, kGradY) && (call.inputs[kGradY].dtype != dtype || call.inputs[kGradY].shape != y))
    return "a gradient of another shape";
  const std::vector<int64_t> wanted = call.attributes.Ints("wanted");
  if (wanted.size() != call.outputs.size()) return "an unexpected number of operands";
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i] == static_cast<int64_t>(kMask) && !HasInput(call, kMask)) return "the gradient of no mask";
    if (!call.outputs[i].present()) continue;
    if (wanted[i] < 0 || wanted[i] > static_cast<int64_t>(kMask) || form.source(wanted[i]) != wanted[i])
      return "the gradient of another operand";
    const OperandType& of = call.inputs[static_cast<size_t>(wanted[i])];
    if (call.outputs[i].dtype != of.dtype || call.outputs[i].shape != of.shape) return "a result of another shape";
    if (wanted[i] != static_cast<int64_t>(kMask)) continue;
    // The sums of one thread, in float32.
    if (of.dtype != DType::kFloat32) return "the gradient of a mask that is not float32";
    const int rank = of.shape.rank();
    if (form.k.heads > 1 && (rank < 3 || of.shape[rank - 3] == 1)) return "the gradient of a mask that heads share";
  }
  return "";
}

namespace {

std::string Rejects(const KernelCall& call) {
  return RejectsAttention(call, [](DType dtype) { return dtype == DType::kFloat32 || Is16BitFloat(dtype); });
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
    Row<Attention>("cpu.gradloom.Attention", "Attention", "gradloom"),
    Row<AttentionGrad>("cpu.AttentionGrad", "AttentionGrad", "gradloom"),
    Row<Attention>("cpu.AttentionDropout", "AttentionDropout", "gradloom"),
    Row<AttentionGrad>("cpu.AttentionDropoutGrad", "AttentionDropoutGrad", "gradloom"),
};

}  // namespace

std::span<const CpuKernel> CpuAttentionKernels() { return kKernels; }

}  // namespace gradloom
