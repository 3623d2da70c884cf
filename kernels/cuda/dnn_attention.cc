// Attention by cuDNN, or by Gradloom's own kernel for the same call if cuDNN has no algorithm.
#include <array>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/cuda_kernel.h"
#include "kernels/cuda/dnn_mask.h"
#include "kernels/cuda/dnn_plan.h"
#include "kernels/cuda/fallback_kernel.h"
#include "kernels/cuda/rows/attention.h"

namespace gradloom::cuda {
namespace {

// The mask of a call, if it has one, in cuDNN's form.
struct DnnMask {
  DType from = DType::kUndefined, to = DType::kUndefined;  // `from` undefined: no mask
  int64_t elements = 0;

  DnnMask(const KernelCall& call, const DnnAttention& attention) : to(attention.dtype) {
    if (!attention.has_mask()) return;
    from = call.inputs[kMask].dtype;
    elements = call.inputs[kMask].shape.elements();
  }
  bool present() const { return from != DType::kUndefined; }
  void Write(const void* const* inputs, void* out, CUstream_st* stream) const {
    if (present()) WriteDnnMask(from, inputs[kMask], elements, to, out, stream);
  }

  // Without the mask's address, which is the last, if the problem has no mask.
  template <size_t kAddresses>
  std::span<const void* const> Of(const std::array<const void*, kAddresses>& all) const {
    return std::span(all).first(present() ? kAddresses : kAddresses - 1);
  }

 private:
  static constexpr size_t kMask = 3;  // index of the input
};

// The first elements of Q, K and V, or of their gradients, in the operands of a call. Elements have two bytes.
struct DnnSources {
  std::array<size_t, 3> operands;  // for a gradient, the operand whose gradient it is
  std::array<int64_t, 3> bytes;

  DnnSources(const KernelCall& call, const DnnAttention& a) : bytes{2 * a.q.first, 2 * a.k.first, 2 * a.v.first} {
    const AttentionForm form = AttentionFormOf(call);
    for (size_t i = 0; i < operands.size(); ++i) operands[i] = static_cast<size_t>(form.source(static_cast<int64_t>(i)));
  }
  const void* At(const void* const* inputs, size_t i) const { return static_cast<const char*>(inputs[operands[i]]) + bytes[i]; }
};

class DnnAttentionKernel : public Kernel {
 public:
  DnnAttentionKernel(const KernelCall& call, const DnnAttention& attention, const DnnMask& mask, const DnnAttentionScratch& scratch,
                     std::unique_ptr<DnnPlan> plan)
      : sources_(call, attention), mask_(mask), returns_log_sums_(ReturnsLogSums(call)), scratch_(scratch), plan_(std::move(plan)) {}

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void* stream) override {
    auto* const on = static_cast<CUstream_st*>(stream);
    auto* const bytes = static_cast<char*>(scratch);
    void* const mask = bytes + scratch_.mask;
    mask_.Write(inputs, mask, on);
    const void *const q = sources_.At(inputs, attention::kQ), *const k = sources_.At(inputs, attention::kK),
                      *const v = sources_.At(inputs, attention::kV);
    if (returns_log_sums_) {
      const std::array<const void*, 6> addresses{q, k, v, outputs[attention::kY], outputs[attention::kLogSums], mask};
      plan_->Run(mask_.Of(addresses), bytes + scratch_.library, on);
    } else {
      const std::array<const void*, 5> addresses{q, k, v, outputs[0], mask};
      plan_->Run(mask_.Of(addresses), bytes + scratch_.library, on);
    }
  }

 private:
  DnnSources sources_;
  DnnMask mask_;
  bool returns_log_sums_;
  DnnAttentionScratch scratch_;
  std::unique_ptr<DnnPlan> plan_;
};

// Computes the gradients part by part. Repeats the forward pass before, unless the call has what that computed.
class DnnAttentionGradKernel : public Kernel {
 public:
  // `forward` is null if the call has o and the log-sum-exps.
  DnnAttentionGradKernel(const KernelCall& call, const DnnAttention& all, const DnnAttention& part, const DnnMask& mask,
                         const DnnAttentionScratch& scratch, std::unique_ptr<DnnPlan> forward, std::unique_ptr<DnnPlan> backward)
      : all_(all),
        part_(part),
        sources_(call, all),
        mask_(mask),
        scratch_(scratch),
        wanted_(call.attributes.Ints("wanted")),
        forward_(std::move(forward)),
        backward_(std::move(backward)) {}

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void* stream) override {
    auto* const on = static_cast<CUstream_st*>(stream);
    auto* const bytes = static_cast<char*>(scratch);
    mask_.Write(inputs, bytes + scratch_.mask, on);
    std::array<const void*, 3> of_operands{}, gradients;
    for (size_t k = 0; k < wanted_.size(); ++k) of_operands[static_cast<size_t>(wanted_[k])] = outputs[k];
    for (size_t i = 0; i < gradients.size(); ++i)
      gradients[i] = scratch_.gradients[i] < 0 ? sources_.At(of_operands.data(), i) : bytes + scratch_.gradients[i];
    Tensors tensors{.q = sources_.At(inputs, attention::kQ),
                    .k = sources_.At(inputs, attention::kK),
                    .v = sources_.At(inputs, attention::kV),
                    .dy = inputs[attention::kGradY],
                    .dq = gradients[0],
                    .dk = gradients[1],
                    .dv = gradients[2],
                    .o = bytes + scratch_.o,
                    .sums = nullptr};
    if (all_.kept) tensors.o = inputs[attention::kKeptY], tensors.sums = static_cast<const float*>(inputs[attention::kKeptLogSums]);
    for (int64_t sample = 0; sample < all_.q.dims[0]; sample += part_.q.dims[0]) {
      for (int64_t head = 0; head < all_.k.dims[1]; head += part_.k.dims[1]) RunPart(sample, head, tensors, bytes, on);
    }
  }

 private:
  // The first elements of the whole call's tensors. The log-sum-exps only if they are given.
  struct Tensors {
    const void *q, *k, *v, *dy, *dq, *dk, *dv, *o;
    const float* sums;
  };

  // Runs the part that starts at this sample and head of k.
  void RunPart(int64_t sample, int64_t kv_head, const Tensors& tensors, char* scratch, CUstream_st* stream) {
    const int64_t q_head = kv_head * (all_.q.dims[1] / all_.k.dims[1]);
    const auto at = [&](const void* data, const DnnTensor& tensor, int64_t head) {
      return static_cast<const void*>(static_cast<const char*>(data) + 2 * (sample * tensor.strides[0] + head * tensor.strides[1]));
    };
    const void *const q = at(tensors.q, all_.q, q_head), *const k = at(tensors.k, all_.k, kv_head),
                      *const v = at(tensors.v, all_.v, kv_head);
    const void *const o = at(tensors.o, all_.o, q_head), *const dy = at(tensors.dy, all_.o, q_head);
    const void *const dq = at(tensors.dq, all_.q, q_head), *const dk = at(tensors.dk, all_.k, kv_head),
                      *const dv = at(tensors.dv, all_.v, kv_head);
    const void* mask = scratch + scratch_.mask;
    if (all_.has_mask()) mask = at(mask, all_.mask, all_.mask.dims[1] == 1 ? 0 : q_head);
    void* const library = scratch + scratch_.library;
    const void* sums = scratch + scratch_.sums;
    if (all_.kept) {
      sums = tensors.sums + (sample * all_.q.dims[1] + q_head) * all_.q.dims[2];
    } else {
      const std::array<const void*, 6> forward{q, k, v, o, sums, mask};
      forward_->Run(mask_.Of(forward), library, stream);
    }
    const std::array<const void*, 10> backward{q, k, v, o, dy, sums, dq, dk, dv, mask};
    backward_->Run(mask_.Of(backward), library, stream);
  }

  DnnAttention all_, part_;
  DnnSources sources_;
  DnnMask mask_;
  DnnAttentionScratch scratch_;
  std::vector<int64_t> wanted_;
  std::unique_ptr<DnnPlan> forward_, backward_;
};

std::unique_ptr<Kernel> Make(const KernelCall& call, const KernelSite& site) {
  const DnnAttention attention = *DnnAttentionOf(call);
  const DnnAttentionScratch scratch = DnnAttentionScratchOf(call, attention);
  const DnnMask mask(call, attention);
  std::string why;
  if (call.op == "AttentionGrad") {
    const DnnAttention part = *DnnGradientPart(attention);
    std::unique_ptr<DnnPlan> forward, backward;
    if (!attention.kept) forward = PlanDnnAttention(part, true, scratch.library_bytes, *site.libraries, why);
    if (attention.kept || forward != nullptr) backward = PlanDnnAttentionGradient(part, scratch.library_bytes, *site.libraries, why);
    if (backward != nullptr) {
      return std::make_unique<DnnAttentionGradKernel>(call, attention, part, mask, scratch, std::move(forward), std::move(backward));
    }
  } else if (auto plan = PlanDnnAttention(attention, ReturnsLogSums(call), scratch.library_bytes, *site.libraries, why)) {
    return std::make_unique<DnnAttentionKernel>(call, attention, mask, scratch, std::move(plan));
  }
  return MakeFallbackKernel("cuDNN", AttentionKernels(), call, site, why);
}

constexpr CudaKernel kKernels[] = {{"cudnn.Attention", Make},
                                   {"cudnn.gradloom.Attention", Make},
                                   {"cudnn.gradloom.AttentionTraining", Make},
                                   {"cudnn.gradloom.AttentionGrad", Make}};

}  // namespace

std::span<const CudaKernel> DnnAttentionKernels() { return kKernels; }

}  // namespace gradloom::cuda
