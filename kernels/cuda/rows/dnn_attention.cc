// Attention in 16 bits by cuDNN.
#include <algorithm>
#include <cmath>

#include "kernels/catalog/operands.h"
#include "kernels/cuda/rows/attention.h"
#include "kernels/cuda/rows/rows.h"

namespace gradloom {
namespace {

using namespace cuda_rows;  // NOLINT: for the functions that reject calls
using enum attention::Input;
using enum attention::Output;

constexpr int64_t kMiB = int64_t{1} << 20;

bool IsGradient(const KernelCall& call) { return call.op == "AttentionGrad"; }
int64_t RoundUp(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

// A row-major mask, with strides of 0 along axes of extent 1; nullopt if it does not cover all keys.
std::optional<DnnTensor> MaskOf(const Shape& shape, const DnnAttention& a) {
  const std::array<int64_t, 4> all{a.q.dims[0], a.q.dims[1], a.q.dims[2], a.k.dims[2]};
  DnnTensor mask{{all.begin(), all.end()}, {0, 0, 0, 1}};
  if (shape.rank() < 1 || shape.rank() > 4 || shape[shape.rank() - 1] != all[3]) return std::nullopt;
  const std::vector<int64_t> own = shape.strides();
  for (int axis = 0; axis + 1 < shape.rank(); ++axis) {
    const auto at = static_cast<size_t>(axis + 4 - shape.rank());
    if (shape[axis] != 1) mask.strides[at] = own[static_cast<size_t>(axis)];
  }
  // cuDNN expects an extent of 1 if all heads share the mask.
  if (mask.strides[1] == 0) mask.dims[1] = 1, mask.strides[1] = all[2] * all[3];
  return mask;
}

std::string NotServed(const KernelCall& call) {
  const DType dtype = call.inputs[kQ].dtype;
  if (dtype != DType::kFloat16 && dtype != DType::kBfloat16) return std::string(DTypeName(dtype));
  if (HasInput(call, kMask) && call.inputs[kMask].dtype != dtype && call.inputs[kMask].dtype != DType::kBool)
    return "a mask of " + std::string(DTypeName(call.inputs[kMask].dtype));
  for (size_t i : {kPastKey, kPastValue, kLengths}) {
    if (HasInput(call, i)) return "input " + std::to_string(i);
  }
  const Attributes& a = call.attributes;
  if (a.Float("softcap", 0) > 0) return "attribute softcap";
  if (AttentionForm::WindowOf(a, "left") >= 0 || AttentionForm::WindowOf(a, "right") >= 0) return "a window";
  if (IsGradient(call)) {
    if (!HasInput(call, kGradY) || HasInput(call, kGradPresentKey) || HasInput(call, kGradPresentValue))
      return "gradients of other outputs than Y";
    for (int64_t i : a.Ints("wanted")) {
      if (i < 0 || i > 2) return "a gradient of input " + std::to_string(i);
    }
    return "";
  }
  for (size_t k = 1; k < std::min<size_t>(call.outputs.size(), kLogSums); ++k) {
    if (call.outputs[k].present()) return "output " + std::to_string(k);
  }
  return "";
}

// Of Q, K and V as operands of their own.
std::string NotServedRank(const KernelCall& call) {
  if (AttentionForm::PackingOf(call.attributes) != AttentionForm::Packing::kNone) return "";
  const Shape &q = call.inputs[kQ].shape, &k = call.inputs[kK].shape, &v = call.inputs[kV].shape;
  const bool has_heads = call.attributes.Int("q_num_heads", 0) > 0 && call.attributes.Int("kv_num_heads", 0) > 0;
  const bool fits = (q.rank() == 4 || (q.rank() == 3 && has_heads)) && k.rank() == q.rank() && v.rank() == q.rank();
  return fits ? "" : "rank " + std::to_string(q.rank());
}

std::string NotFitting(const DnnAttention& a) {
  const auto &q = a.q.dims, &k = a.k.dims, &v = a.v.dims;
  if (a.q.elements() == 0 || a.k.elements() == 0 || a.v.elements() == 0) return "nothing to compute";
  if (q[0] != k[0] || q[0] != v[0] || k[1] != v[1] || k[2] != v[2] || q[3] != k[3] || q[1] % k[1] != 0) return "shapes that do not fit";
  if (q[3] % 8 != 0 || v[3] % 8 != 0 || q[3] > 128 || v[3] > 128) return "vectors of other than 8, 16 .. 128 elements";
  return "";
}

constexpr int64_t kMaxScoreBytes = 256 * kMiB;

// The problem restricted to this number of samples and heads of k.
DnnAttention PartOf(DnnAttention a, int64_t samples, int64_t kv_heads) {
  const int64_t group = a.q.dims[1] / a.k.dims[1];
  for (DnnTensor* tensor : {&a.q, &a.k, &a.v, &a.o}) {
    tensor->dims[0] = samples;
    tensor->dims[1] = tensor == &a.k || tensor == &a.v ? kv_heads : kv_heads * group;
  }
  if (a.has_mask()) {
    a.mask.dims[0] = samples;
    if (a.mask.dims[1] > 1) a.mask.dims[1] = kv_heads * group;
  }
  return a;
}

std::string Rejects(const KernelCall& call) {
  if (std::string why = FirstOf({Layouts(call), RejectsPackedOperands(call)}); !why.empty()) return why;
  std::string why;
  DnnAttentionOf(call, &why);
  return why;
}

int64_t Scratch(const KernelCall& call) {
  return std::max(DnnAttentionScratchOf(call, *DnnAttentionOf(call)).bytes(), AttentionScratchBytes(call));
}

constexpr KernelRow Row(std::string_view name, std::string_view op, std::string_view domain) {
  return {.name = name, .op = op, .domain = domain, .device = DeviceKind::kCuda, .rejects = Rejects, .scratch_bytes = Scratch};
}

constexpr KernelRow kRows[] = {
    Row("cudnn.Attention", "Attention", ""),
    Row("cudnn.gradloom.Attention", "Attention", "gradloom"),
    Row("cudnn.gradloom.AttentionTraining", "AttentionTraining", "gradloom"),
    Row("cudnn.gradloom.AttentionGrad", "AttentionGrad", "gradloom"),
};

}  // namespace

int64_t DnnAttention::score_gradient_bytes() const {
  return deterministic ? q.dims[0] * q.dims[1] * RoundUp(q.dims[2], 64) * RoundUp(k.dims[2], 128) * 2 : 0;
}

std::optional<DnnAttention> DnnAttentionOf(const KernelCall& call, std::string* why) {
  const auto no = [&](std::string reason) {
    if (why != nullptr) *why = std::move(reason);
    return std::nullopt;
  };
  if (std::string reason = NotServed(call); !reason.empty()) return no(std::move(reason));
  if (std::string reason = NotServedRank(call); !reason.empty()) return no(std::move(reason));
  const AttentionForm form = AttentionFormOf(call);
  DnnAttention a{.dtype = call.inputs[kQ].dtype,
                 .causal = call.attributes.Int("is_causal", 0) != 0,
                 .deterministic = call.attributes.Int("deterministic", 1) != 0,
                 .q = AttentionTensor(form.q, form.batch),
                 .k = AttentionTensor(form.k, form.batch),
                 .v = AttentionTensor(form.v, form.batch),
                 .o = AttentionTensor(form.y, form.batch),
                 .kept = HasLogSums(call)};
  if (std::string reason = NotFitting(a); !reason.empty()) return no(std::move(reason));
  a.scale = call.attributes.Float("scale", 1 / std::sqrt(static_cast<double>(a.q.dims[3])));
  if (HasInput(call, kMask)) {
    const auto mask = MaskOf(call.inputs[kMask].shape, a);
    if (!mask) return no("a mask of other keys");
    a.mask = *mask;
  }
  if (IsGradient(call) && !DnnGradientPart(a)) return no("scores of more than 256 MiB that no parts divide");
  return a;
}

std::optional<DnnAttention> DnnGradientPart(const DnnAttention& a) {
  const int64_t samples = a.q.dims[0], kv_heads = a.k.dims[1];
  // cuDNN takes tensors at multiples of 16 bytes. Vectors have such sizes, but a part's mask and log-sum-exps begin anywhere in those of
  // the whole call.
  const int64_t mask_sample = a.has_mask() ? a.mask.strides[0] : 0;
  const int64_t mask_head = a.has_mask() && a.mask.dims[1] > 1 ? a.mask.strides[1] * (a.q.dims[1] / kv_heads) : 0;
  const int64_t sums_sample = a.kept ? a.q.dims[1] * a.q.dims[2] : 0, sums_head = sums_sample / kv_heads;
  const auto aligned = [](int64_t mask_elements, int64_t sums) { return mask_elements * 2 % 16 == 0 && sums * 4 % 16 == 0; };
  const auto fits = [&](int64_t some, int64_t heads) {
    return PartOf(a, some, heads).score_gradient_bytes() <= kMaxScoreBytes &&
           (some == samples || aligned(some * mask_sample, some * sums_sample)) &&
           (heads == kv_heads || aligned(heads * mask_head, heads * sums_head));
  };
  for (int64_t some = samples; some > 0; --some) {
    if (samples % some == 0 && fits(some, kv_heads)) return PartOf(a, some, kv_heads);
  }
  for (int64_t heads = kv_heads; heads > 0; --heads) {
    if (kv_heads % heads == 0 && fits(1, heads)) return PartOf(a, 1, heads);
  }
  return std::nullopt;
}

DnnAttentionScratch DnnAttentionScratchOf(const KernelCall& call, const DnnAttention& a) {
  DnnAttentionScratch s;
  int64_t end = 0;
  const auto take = [&](int64_t bytes) {
    const int64_t begin = end;
    end += RoundUp(bytes, 256);
    return begin;
  };
  if (a.has_mask()) s.mask = take(call.inputs[kMask].shape.elements() * 2);
  if (IsGradient(call)) {
    const DnnAttention part = *DnnGradientPart(a);
    const int64_t queries = part.q.dims[0] * part.q.dims[1] * part.q.dims[2];
    if (!a.kept) {
      s.o = take(a.o.elements() * 2);
      s.sums = take(queries * 4);
    }
    const std::array tensors{&a.q, &a.k, &a.v};
    const std::vector<int64_t> wanted = call.attributes.Ints("wanted");
    const AttentionForm form = AttentionFormOf(call);
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (std::find(wanted.begin(), wanted.end(), form.source(static_cast<int64_t>(i))) == wanted.end())
        s.gradients[i] = take(tensors[i]->elements() * 2);
    }
    // Sums per query; if heads of q share a head of k and v, the gradients of k and v per head of q.
    const int64_t by_head = queries / a.q.dims[2] * a.k.dims[2] * (a.k.dims[3] + a.v.dims[3]) * 4;
    s.library_bytes = part.score_gradient_bytes() + by_head + (part.q.elements() + queries) * 4;
  }
  s.library = end;
  s.library_bytes += 4 * kMiB;
  return s;
}

std::span<const KernelRow> CudaDnnAttentionRows() { return kRows; }

}  // namespace gradloom
