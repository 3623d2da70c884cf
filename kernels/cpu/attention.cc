// Attention and its gradient over tiles of queries: of the scores there are never more than a tile's rows, and the gradient
// makes them again. Keys and values of a head are packed once for all its tiles. Operands of 16 bits are widened where they are packed,
// a head or a tile at a time, and results are rounded once.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "kernels/catalog/pointwise.h"
#include "kernels/cpu/convert.h"
#include "kernels/cpu/families.h"
#include "kernels/cpu/isa/loops.h"
#include "kernels/cpu/operands.h"
#include "kernels/cpu/parallel.h"
#include "kernels/reference/attention_vectors.h"
#include "kernels/reference/operands.h"
#include "kernels/reference/wanted.h"
#include "runtime/base/checked.h"
#include "runtime/base/half.h"

namespace gradloom {
namespace {

enum Operand : size_t { kQ, kK, kV, kMask, kPastKey, kPastValue, kLengths, kGradY };

bool Is16Bit(DType dtype) { return dtype == DType::kFloat16 || dtype == DType::kBfloat16; }

constexpr float kHidden = -std::numeric_limits<float>::infinity();

// Queries of a tile: few enough for its scores to stay in a second-level cache, as long as a tile is worth its products.
int64_t TileRows(int64_t keys) { return std::clamp<int64_t>((1 << 16) / std::max<int64_t>(keys, 1), 12, 96); }

// What a call computes, apart from where.
struct AttentionSizes {
  int64_t batch;
  AttentionVectors q, k, v, y;
  float scale, softcap;
  bool causal;
  int64_t left, right;
  std::vector<int64_t> mask_strides;  // by batch, head, query and key; empty: no mask
  int64_t mask_keys = 0;
  DType dtype;  // of all operands but mask and lengths
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

// Vectors in float32, `stride` apart.
template <typename T>
struct Vectors {
  T* at = nullptr;
  int64_t stride = 0;
};

// Floats that one thread needs, part by part.
struct AttentionPlaces {
  int64_t keys, values, scores, gradients, slopes, keys_back, queries, outputs;
  int64_t wide, wide_q, wide_dy, wide_dk, wide_dv;  // of 16-bit operands: see Widen and Sums
  int64_t floats = 0;

  AttentionPlaces(const AttentionSizes& n, bool gradient) {
    const int64_t total = n.k.length, rows = std::min(TileRows(total), n.q.length), row = AlignUp(total, 32);
    keys = Take(MatrixPackFloats(n.q.size, total));
    values = Take(MatrixPackFloats(gradient ? n.v.size : total, gradient ? total : n.v.size));
    scores = Take(rows * row);
    gradients = Take(gradient ? rows * row : 0);
    slopes = Take(gradient && n.softcap > 0 ? rows * row : 0);
    keys_back = Take(gradient ? MatrixPackFloats(total, n.q.size) : 0);
    queries = Take(gradient ? MatrixPackFloats(rows, n.q.size) : 0);
    outputs = Take(gradient ? MatrixPackFloats(rows, n.v.size) : 0);
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
  AttentionKernel(const KernelCall& call, bool gradient) : n_(call), call_(call), places_(n_, gradient) {}

  // Scores lie in rows of this many floats.
  int64_t row() const { return AlignUp(n_.k.length, 32); }

  // Keys that query i sees by its position alone.
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

  // Of all queries of a tile; whole panels of packed keys.
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

  // Vectors of `operand` from its element `begin` on as floats: themselves, or widened to `room`.
  Vectors<const float> Widen(const void* operand, const AttentionVectors& n, int64_t begin, int64_t count, float* room) const {
    if (n_.dtype == DType::kFloat32) return {static_cast<const float*>(operand) + begin, n.stride()};
    for (int64_t i = 0; i < count; ++i) LoadFloats(loops_, n_.dtype, operand, begin + i * n.stride(), n.size, room + i * n.size);
    return {room, n.size};
  }

  // Where vectors of a result are computed that begin at its element `begin`: in place, or in `room`, from which Narrow takes them.
  Vectors<float> Place(void* result, const AttentionVectors& n, int64_t begin, float* room) const {
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

  // c[rows, keys] = factor a[rows, size] times packed [size, all keys].
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

  // c[rows, size] = a[rows, keys] times packed [all keys, size].
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

  // c[keys, size] += a[rows, keys]^T times packed [rows, size].
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

  // From the scaled scores of a tile its probabilities, zero where nothing is seen. With a soft cap the slopes go to `slopes`.
  void Probabilities(const void* const* inputs, int64_t b, int64_t h, int64_t i, int64_t rows, Range keys, float* scores,
                     float* slopes) const {
    const int64_t* lengths = HasInput(call_, kLengths) ? static_cast<const int64_t*>(inputs[kLengths]) : nullptr;
    for (int64_t r = 0; r < rows; ++r, scores += row()) {
      const Range seen = Visible(lengths, b, i + r);
      std::fill(scores + keys.begin, scores + std::clamp(seen.begin, keys.begin, keys.end), 0.0f);
      std::fill(scores + std::clamp(seen.end, keys.begin, keys.end), scores + keys.end, 0.0f);
      const int64_t count = seen.end - seen.begin;
      if (count <= 0) continue;
      float* s = scores + seen.begin;
      if (n_.softcap > 0) Cap(s, slopes == nullptr ? nullptr : slopes + r * row() + seen.begin, count);
      if (!n_.mask_strides.empty()) {
        AddMask(inputs[kMask], b, h, i + r, seen, s);
        if (loops_.reduce_row[static_cast<size_t>(Reduction::kMax)](s, count) == kHidden) {
          std::fill_n(s, count, 0.0f);
          continue;
        }
      }
      loops_.softmax_row(s, s, count);
    }
  }

  const AttentionSizes n_;
  const KernelCall call_;
  const AttentionPlaces places_;
  const Loops& loops_ = BestLoops();

 private:
  void Cap(float* s, float* slopes, int64_t count) const {
    for (int64_t j = 0; j < count; ++j) s[j] /= n_.softcap;
    loops_.pointwise[static_cast<size_t>(PointwiseOp::kTanh)]({s, s, s, s, count});
    for (int64_t j = 0; j < count && slopes != nullptr; ++j) slopes[j] = 1 - s[j] * s[j];
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
      case DType::kFloat32: add(static_cast<const float*>(mask)); break;
      default: {
        const bool* m = static_cast<const bool*>(mask) + at;
        for (int64_t j = seen.begin; j < end; ++j) s[j - seen.begin] = m[j * step] ? s[j - seen.begin] : kHidden;
      }
    }
    // Keys behind a shorter mask are hidden.
    std::fill(s + (end - seen.begin), s + (seen.end - seen.begin), kHidden);
  }
};

class Attention : public AttentionKernel {
 public:
  explicit Attention(const KernelCall& call) : AttentionKernel(call, false) {}

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void*) override {
    const int64_t heads = n_.batch * n_.q.heads, tile = TileRows(n_.k.length);
    const int64_t* lengths = HasInput(call_, kLengths) ? static_cast<const int64_t*>(inputs[kLengths]) : nullptr;
    ParallelRanges(heads, 1, call_.threads, [&](int64_t begin, int64_t end) {
      float* memory = static_cast<float*>(scratch) + ThreadPlace() * places_.floats;
      float *keys = memory + places_.keys, *values = memory + places_.values, *scores = memory + places_.scores,
            *wide = memory + places_.wide;
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
          const auto y = Place(outputs[0], n_.y, n_.y.At(b, h, i), wide);
          MultiplyOverKeys(scores, rows, values, range, n_.v.size, y.at, y.stride);
          Narrow(y, n_.y, rows, outputs[0], n_.y.At(b, h, i));
        }
      }
    });
  }
};

// A head of K and V is one thread's, with all heads of Q that look at it.
class AttentionGrad : public AttentionKernel {
 public:
  explicit AttentionGrad(const KernelCall& call)
      : AttentionKernel(call, true), places_of_{PlaceOfGradient(call, kQ), PlaceOfGradient(call, kK), PlaceOfGradient(call, kV)} {}

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void*) override {
    ZeroOutputs(call_, outputs);
    if (inputs[kGradY] == nullptr) return;
    ParallelRanges(n_.batch * n_.k.heads, 1, call_.threads, [&](int64_t begin, int64_t end) {
      float* memory = static_cast<float*>(scratch) + ThreadPlace() * places_.floats;
      for (int64_t task = begin; task < end; ++task) Head(inputs, outputs, task / n_.k.heads, task % n_.k.heads, memory);
    });
  }

 private:
  void Head(const void* const* inputs, void* const* outputs, int64_t b, int64_t g, float* memory) const {
    const auto out = [&](size_t i) { return places_of_[i] < 0 ? nullptr : outputs[places_of_[i]]; };
    float *keys = memory + places_.keys, *values = memory + places_.values, *keys_back = memory + places_.keys_back;
    float *p = memory + places_.scores, *ds = memory + places_.gradients;
    float *queries = memory + places_.queries, *dys = memory + places_.outputs;
    float *wide = memory + places_.wide, *wide_q = memory + places_.wide_q, *wide_dy = memory + places_.wide_dy;
    float* slopes = n_.softcap > 0 ? memory + places_.slopes : nullptr;
    const int64_t k_at = n_.k.At(b, g, 0), v_at = n_.v.At(b, g, 0);
    const auto k = Widen(inputs[kK], n_.k, k_at, n_.k.length, wide);
    Pack(k.at, n_.q.size, n_.k.length, 1, k.stride, keys);
    if (out(kQ) != nullptr) Pack(k.at, n_.k.length, n_.q.size, k.stride, 1, keys_back);
    const auto v = Widen(inputs[kV], n_.v, v_at, n_.k.length, wide);
    Pack(v.at, n_.v.size, n_.k.length, 1, v.stride, values);
    const Vectors<float> dk = Sums(out(kK), n_.k, k_at, memory + places_.wide_dk), dv = Sums(out(kV), n_.v, v_at, memory + places_.wide_dv);
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
        Probabilities(inputs, b, h, i, rows, range, p, slopes);
        if (dv.at != nullptr) {
          Pack(dy.at, rows, n_.v.size, dy.stride, 1, dys);
          AddTransposed(p, rows, dys, range, n_.v.size, dv.at, dv.stride);
        }
        MultiplyByKeys(dy.at, dy.stride, rows, n_.v.size, values, range, 1, ds);
        for (int64_t r = 0; r < rows; ++r) {
          const int64_t at = r * row() + range.begin, count = range.end - range.begin;
          loops_.softmax_grad_row(p + at, ds + at, count, n_.scale);
          // Where nothing is seen the gradient is 0 already, and the slope was never written.
          for (int64_t j = at; j < at + count && slopes != nullptr; ++j) ds[j] = p[j] == 0 ? 0 : ds[j] * slopes[j];
        }
        if (out(kQ) != nullptr) {
          const auto dq = Place(out(kQ), n_.q, n_.q.At(b, h, i), wide);
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

  // Where the gradient of a head of K or V is summed, zero at first; null where nobody wants it.
  Vectors<float> Sums(void* result, const AttentionVectors& n, int64_t begin, float* room) const {
    if (result == nullptr) return {};
    if (n_.dtype != DType::kFloat32) std::fill_n(room, n.length * n.size, 0.0f);  // the result itself is zero already
    return Place(result, n, begin, room);
  }

  const std::array<int64_t, 3> places_of_;  // of the gradients of Q, K and V, among the outputs; -1: not wanted
};

std::string Rejects(const KernelCall& call) {
  const bool gradient = call.op == "AttentionGrad";
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
    if (count <= 0 || operand.shape[2] % count != 0) return "a number of heads";
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
  Shape y = q;
  y[q.rank() - 1] = qs.flat ? qs.heads * vs.size : vs.size;
  if (!gradient) {
    if (call.inputs.size() > kGradY) return "too many operands";
    for (size_t i = 1; i < call.outputs.size(); ++i) {
      if (call.outputs[i].present()) return "results beside Y";
    }
    return HasOutput(call, 0) && call.outputs[0].dtype == dtype && call.outputs[0].shape == y ? "" : "a result of another shape";
  }
  if (call.inputs.size() != kGradY + 3 || HasInput(call, kGradY + 1) || HasInput(call, kGradY + 2)) return "gradients of results beside Y";
  if (HasInput(call, kGradY) && (call.inputs[kGradY].dtype != dtype || call.inputs[kGradY].shape != y))
    return "a gradient of another shape";
  const std::vector<int64_t> wanted = call.attributes.Ints("wanted");
  if (wanted.size() != call.outputs.size()) return "a number of operands";
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (!call.outputs[i].present()) continue;
    if (wanted[i] < 0 || wanted[i] > static_cast<int64_t>(kV)) return "the gradient of the mask";
    const OperandType& of = call.inputs[static_cast<size_t>(wanted[i])];
    if (call.outputs[i].dtype != dtype || call.outputs[i].shape != of.shape) return "a result of another shape";
  }
  return "";
}

int64_t Scratch(const KernelCall& call) {
  const AttentionPlaces places(AttentionSizes(call), call.op == "AttentionGrad");
  return std::max(call.threads, 1) * places.floats * static_cast<int64_t>(sizeof(float));
}

constexpr CpuKernel kKernels[] = {
    {.row = {.name = "cpu.Attention", .op = "Attention", .domain = "", .rejects = Rejects, .scratch_bytes = Scratch},
     .make = MakeKernel<Attention>},
    {.row = {.name = "cpu.AttentionGrad", .op = "AttentionGrad", .domain = "gradloom", .rejects = Rejects, .scratch_bytes = Scratch},
     .make = MakeKernel<AttentionGrad>},
};

}  // namespace

std::span<const CpuKernel> CpuAttentionKernels() { return kKernels; }

}  // namespace gradloom
